"""Features with mean 0 and deviation 1, for columns of very different scales, such as an age beside an income.

`N` nodes, `D` features.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.graph import Graph
from lazygnn.inference import by_rows
from lazygnn.ops import Csr

logger = logging.getLogger(__name__)

Choice = Literal["auto", "on", "off"]

# root mean square from which a column saturates the first layer, and ratio from which it drowns another column
_TOO_LARGE, _TOO_DIFFERENT = 100.0, 1000.0
# larger features may be in a memory map, which a scaled copy would not be
_MOST_BYTES = 2**32
# rows that are looked at to decide, evenly spread; statistics come from all rows
_MOST_ROWS = 100_000
_BLOCK_ROWS = 65_536
# rows of which each sums to the same, as those of shares do
_SAME_SUM = 1e-3
# fewest columns of counts of words, and the share of them that are zero in most rows; a few words are in most texts
_FEWEST_WORDS, _RARE_WORDS = 10, 0.9


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """What is subtracted from every feature and what it is divided by.

    Attributes:
        center: Mean of every column, [D]; 0 for a column that stays as it is, and for one of a large constant.
        scale: Standard deviation of every column, [D]; 1 for a column that stays as it is, and the size of a large
            constant.
    """

    center: Tensor
    scale: Tensor

    @staticmethod
    def fit(x: Tensor) -> "FeatureScale":
        """Takes mean and deviation of all rows; columns of zeros and ones stay as they are.

        So do those of one value, unless it is large: such a column becomes one of ones.
        """
        found = _Columns.of(x)
        scale = torch.where(found.large, found.size, torch.where(found.numbers, found.deviation, 1.0))
        return FeatureScale(torch.where(found.numbers, found.mean, 0.0), scale)

    @property
    def num_scaled(self) -> int:
        """Returns the number of columns that change."""
        return int(((self.center != 0) | (self.scale != 1)).sum())

    def apply(self, graph: Graph) -> Graph:
        """Scales the features of a graph; refuses one with sparse features or with others."""
        if isinstance(graph.x, Csr):
            raise ConfigError(_sparse(graph.name))
        if graph.in_channels != len(self.center):
            raise ConfigError(
                f"`{graph.name}` has {graph.in_channels} features, the scale is that of {len(self.center)}; give a "
                "graph with the same features"
            )
        center, scale = self.center.to(graph.x.device), self.scale.to(graph.x.device)

        def scaled(rows: Tensor) -> Tensor:
            return ((rows.double() - center) / scale).to(rows.dtype)

        return replace(graph, x=by_rows(scaled, graph.x.device, graph.x))

    def record(self) -> dict[str, list[float]]:
        """Returns the numbers for a file."""
        return {"center": self.center.tolist(), "scale": self.scale.tolist()}

    @staticmethod
    def read(record: Mapping[str, Any], where: str) -> "FeatureScale":
        """Reads what `record` returned; `where` names the file in an error."""
        try:
            center, scale = (torch.tensor(record[name], dtype=torch.float64) for name in ("center", "scale"))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"`{where}` does not hold the scale of features ({error!r}); train again") from error
        if center.dim() != 1 or center.shape != scale.shape or not bool((center.isfinite() & (scale > 0)).all()):
            raise CheckpointError(f"`{where}` does not hold the scale of features; train again")
        return FeatureScale(center, scale)


def choose_scale(graph: Graph, choice: Choice, *, normalized: bool = False) -> FeatureScale | None:
    """Returns the scale of a graph's features if they are to be standardized.

    Args:
        graph: The graph of training, as it was loaded.
        choice: `auto` standardizes features that `are_badly_scaled`.
        normalized: Whether rows are scaled to sum to one, which excludes this.
    """
    if choice == "on":
        if normalized:
            raise ConfigError(
                "`standardize_features` is on, but `normalize_features` is true; both scale the features: set one"
            )
        if isinstance(graph.x, Csr):
            raise ConfigError(_sparse(graph.name))
        return FeatureScale.fit(graph.x)
    # tables were scaled when they were imported
    if choice == "off" or normalized or graph.schema is not None or not are_badly_scaled(graph.x):
        return None
    assert isinstance(graph.x, Tensor)
    if graph.x.numel() * graph.x.element_size() > _MOST_BYTES:
        logger.warning(
            f"the features of `{graph.name}` have very different scales, but are too many to scale a copy of them; "
            "scale the stored ones, or set `standardize_features` to on or off"
        )
        return None
    return FeatureScale.fit(graph.x)


def are_badly_scaled(x: Tensor | Csr) -> bool:
    """Returns whether columns of numbers have very different scales, or a column is large, constant or not.

    Sparse features, zeros and ones, counts of words and rows of shares are left as they are, whatever their scales.
    """
    if isinstance(x, Csr) or x.numel() == 0:
        return False
    seen = x[:: -(-len(x) // _MOST_ROWS)]
    found = _Columns.of(seen)
    numbers = found.numbers
    if bool(found.large.any()):
        return True
    if not bool(numbers.any()) or (found.smallest >= 0 and (_are_words(seen, numbers) or _are_shares(seen))):
        return False
    smallest, largest = found.size[numbers].aminmax()
    return float(largest) > min(_TOO_LARGE, _TOO_DIFFERENT * float(smallest))


@dataclass(frozen=True, eq=False)
class _Columns:
    mean: Tensor  # [D]
    deviation: Tensor  # [D]
    size: Tensor  # [D], root mean square
    numbers: Tensor  # [D] bool, whether there are other values than 0 and 1, and not all the same
    large: Tensor  # [D] bool, whether all values are the same and saturate the first layer
    smallest: float

    @staticmethod
    def of(x: Tensor) -> "_Columns":
        mean = _total(x, lambda rows: rows.sum(dim=0)) / len(x)
        variance = _total(x, lambda rows: (rows - mean).square().sum(dim=0)) / len(x)
        size = (_total(x, lambda rows: rows.square().sum(dim=0)) / len(x)).sqrt()
        others = _total(x, lambda rows: ((rows != 0) & (rows != 1)).sum(dim=0).double())
        deviation = variance.sqrt()
        # equal numbers can deviate from their mean by rounding
        constant = deviation <= 1e-6 * size
        numbers, large = (others != 0) & ~constant, constant & (size > _TOO_LARGE)
        return _Columns(mean.cpu(), deviation.cpu(), size.cpu(), numbers.cpu(), large.cpu(), float(x.min()))


def _total(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Sums over blocks of rows in double precision, so that a memory map is never copied as a whole."""
    return torch.stack([function(rows.double()) for rows in x.split(_BLOCK_ROWS)]).sum(dim=0)


def _are_words(x: Tensor, numbers: Tensor) -> bool:
    """Returns whether there are many columns of numbers, and nearly all are mostly zero, as counts of words are."""
    zeros = (x[:, numbers.to(x.device)] == 0).float().mean(dim=0)
    return len(zeros) >= _FEWEST_WORDS and float((zeros > 0.5).float().mean()) >= _RARE_WORDS


def _are_shares(x: Tensor) -> bool:
    total = x.double().sum(dim=1)
    total = total[total > 0]
    return bool(((total - total.mean()).abs() <= _SAME_SUM * total.mean()).all())


def _sparse(name: str) -> str:
    return (
        f"`standardize_features` is on, but the features of `{name}` are sparse, and would become dense; set "
        "`standardize_features=off`, or store them as a dense array"
    )
