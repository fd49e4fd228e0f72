"""Areas under the curves of one class, from the ranks of its scores; ties count as in scikit-learn.

`T` nodes, `C` classes.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

# rows whose logits are held in float64 at a time
_ROWS = 65_536


def roc_auc(scores: Tensor, positive: Tensor) -> float:
    """Returns the share of pairs of a positive and a negative node in the right order; a tie counts half.

    Args:
        scores: Higher for nodes that are more likely positive, [T].
        positive: Which nodes have the class, [T] bool; some must have it and some must not.
    """
    hits, counts = _cumulative(scores, positive)
    misses = counts - hits
    # twice the number of ordered pairs: whole numbers, so that nothing is rounded before the division
    ordered = int((_steps(misses) * (2 * hits - _steps(hits))).sum())
    return ordered / (2 * int(hits[-1]) * int(misses[-1]))


def average_precision(scores: Tensor, positive: Tensor) -> float:
    """Returns the mean, over positive nodes, of the share of positives among the nodes ranked at least as high.

    Args:
        scores: Higher for nodes that are more likely positive, [T].
        positive: Which nodes have the class, [T] bool; some must have it.
    """
    hits, counts = _cumulative(scores, positive)
    precision = hits.double() / counts.double()
    return float((_steps(hits) * precision).sum()) / int(hits[-1])


def log_odds(logits: Tensor, classes: Iterable[int]) -> Iterator[Tensor]:
    """Yields the logarithm of the odds of each of the given classes in float64, [T].

    It ranks nodes as the probability of the class does. Probabilities near 0 and 1 round to ties; their odds do not.
    """
    if logits.shape[1] == 2:
        for column in classes:
            yield logits[:, column].double() - logits[:, 1 - column].double()
        return
    parts = [_normalizers(rows) for rows in logits.split(_ROWS)]
    top, largest, total, rest = (torch.cat(column) for column in zip(*parts, strict=True))
    for column in classes:
        own = logits[:, column].double() - largest
        # without the largest term, the total would lose its digits
        yield torch.where(top == column, -rest, own - (total - own.exp()).log())


def _normalizers(logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the likeliest class, its logit, and relative to it the sum of exponentials and log-sum of the others."""
    logits = logits.double()
    largest, top = logits.max(dim=-1, keepdim=True)
    relative = logits - largest
    rest = relative.scatter(-1, top, -torch.inf).logsumexp(dim=-1)
    return top[:, 0], largest[:, 0], relative.exp().sum(dim=-1), rest


def _cumulative(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the numbers of positives and of nodes with at least a score, for every distinct score from the top."""
    ranked, order = scores.sort(descending=True)
    differs = ranked[1:] != ranked[:-1]
    ends = torch.cat((differs, differs.new_ones(1))).nonzero()[:, 0]
    return positive[order].cumsum(dim=0)[ends], ends + 1


def _steps(cumulative: Tensor) -> Tensor:
    return cumulative.diff(prepend=cumulative.new_zeros(1))
