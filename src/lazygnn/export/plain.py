"""A trained graph neural network in plain PyTorch. Needs `torch` and `safetensors`, and no other package.

Beside this file are `model.json`, which describes the network, and `weights.safetensors`.

    from model import load
    network = load(".")
    outputs = network(x, edges)         # [N, C]: x is [N, D], edges is [2, M]
    answers = network.predict(x, edges)  # probabilities, or numbers for regression

If `reads_labels` is true in `model.json`, known labels make the predictions more accurate:

    answers = network.predict(x, edges, labels=network.known(y, train_mask))

As a program, it reads `x`, `edge_index` and, if they are there, `edge_weight` and `node_ids` from an .npz file and
writes the predictions: `python model.py graph.npz predictions.npy`. Edges of the same type as `node_ids`, integers or
texts, are ids. A network that reads labels takes `y` of the nodes in `train_mask`.
"""

import json
import math
import sys
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import gelu, one_hot


class Affine(nn.Module):
    """`x W + b`, with a weight of shape [in, out]."""

    bias: nn.Parameter | None

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels)) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Transforms every row."""
        out = x @ self.weight
        return out if self.bias is None else out + self.bias


class MLP(nn.Module):
    """Linear layers with a norm and ReLU between them."""

    def __init__(self, sizes: Sequence[int], norm: str) -> None:
        super().__init__()
        count = len(sizes) - 1
        # a batch norm subtracts the mean, and a bias with it
        biases = [*[norm != "batch"] * (count - 1), True]
        self.linears = nn.ModuleList(Affine(a, b, bias) for (a, b), bias in zip(pairwise(sizes), biases, strict=True))
        self.norms = nn.ModuleList(make_norm(norm, size) for size in sizes[1:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Transforms every row."""
        for linear, norm in zip(self.linears, self.norms, strict=False):
            x = torch.relu(norm(linear(x)))
        out: Tensor = self.linears[-1](x)
        return out


class Spread:
    """`x <- +-(1 - alpha) A x + alpha x_in`: a number of steps, or to the fixed point, within a tolerance."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.alpha, self.sign = description["alpha"], description["sign"]
        self.steps, self.tolerance = description["steps"], description["tolerance"]

    def __call__(self, x_in: Tensor, adj: Tensor) -> Tensor:
        """Spreads the rows over the graph."""
        if self.steps is None:
            return self.solve(x_in, adj)
        x = x_in
        for _ in range(self.steps):
            x = self.step(x, x_in, adj)
        return x

    def step(self, x: Tensor, x_in: Tensor, adj: Tensor) -> Tensor:
        """Takes one step."""
        out: Tensor = self.sign * (1 - self.alpha) * (adj @ x) + self.alpha * x_in
        return out

    def solve(self, x_in: Tensor, adj: Tensor) -> Tensor:
        """Finds the fixed point by Chebyshev iteration, which takes as many products as the tolerance needs."""
        rho, x, before, omega = 1 - self.alpha, x_in, x_in, 2.0
        most = math.ceil(math.acosh(1 / self.tolerance) / math.acosh(1 / rho)) if rho else 1
        for taken in range(most):
            image = self.step(x, x_in, adj)
            if taken % 4 == 0 and (image - x).norm() <= self.alpha * self.tolerance * x_in.norm():
                break
            if taken:
                omega = 1 / (1 - rho**2 * omega / 4)
                image = torch.lerp(before, image, omega)
            before, x = x, image
        return x


class Decoupled(nn.Module):
    """An MLP, then rows that are spread over the graph."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.transform = MLP(description["sizes"], description["norm"])
        self.head = Affine(*description["head"]) if description["head"] else None
        self.spread = Spread(description)

    def forward(self, x: Tensor, adj: Tensor, targets: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Returns the outputs of every node."""
        x = self.spread(self.transform(x), adj)
        return x if self.head is None else self.head(x)


class Block(nn.Module):
    """`h + W_2 gelu(W_1 [u, A v, P_1 v, ...])` with `u = norm(h)` and `v = u W_v`, or `v = u`; every `P` spreads."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        channels, narrow = description["channels"], description["view_channels"]
        self.views = [Spread(view) for view in description["views"]]
        self.norm = make_norm(description["norm"], channels)
        self.narrow = None if narrow is None else Affine(channels, narrow, bias=False)
        self.first = Affine(channels + (1 + len(self.views)) * (narrow or channels), channels)
        self.last = Affine(channels, channels)

    def forward(self, h: Tensor, adj: Tensor) -> Tensor:
        """Computes every node."""
        u = self.norm(h)
        v = u if self.narrow is None else self.narrow(u)
        seen = torch.cat((u, adj @ v, *(spread(v, adj) for spread in self.views)), dim=1)
        out: Tensor = h + self.last(gelu(self.first(seen)))
        return out


class Convolution(nn.Module):
    """`gelu(norm(W A h))`."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        channels, norm = description["channels"], description["block_norm"]
        self.linear = Affine(channels, channels, bias=norm != "batch")
        self.norm = make_norm(norm, channels)

    def forward(self, h: Tensor, adj: Tensor) -> Tensor:
        """Computes every node."""
        return gelu(self.norm(self.linear(adj @ h)))


class Blocks(nn.Module):
    """`W_out norm(h)` after the blocks, from `h = gelu(W_in x)`, or `gelu(W_in x + W_l t)` with known labels `t`."""

    labels: nn.ModuleDict | None

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        channels = description["channels"]
        self.first = Affine(description["in_channels"], channels)
        embedding = Affine(description["out_channels"], channels, bias=False)
        self.labels = nn.ModuleDict({"embedding": embedding}) if description["reads_labels"] else None
        kind = Convolution if description["views"] is None else Block
        self.blocks = nn.ModuleList(kind(description) for _ in range(description["num_blocks"]))
        self.norm = make_norm(description["norm"], channels)
        self.last = Affine(channels, description["out_channels"])

    def forward(self, x: Tensor, adj: Tensor, targets: Tensor | None = None) -> Tensor:
        """Returns the outputs of every node."""
        h = self.first(x)
        if self.labels is not None and targets is not None:
            h = h + self.labels["embedding"](targets)
        h = gelu(h)
        for block in self.blocks:
            h = block(h, adj)
        out: Tensor = self.last(self.norm(h))
        return out


class Mixture(nn.Module):
    """The weighted average of several networks."""

    weights: Tensor

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.models = nn.ModuleList(make_body(each) for each in description["models"])
        self.register_buffer("weights", torch.empty(len(self.models)))

    def forward(self, x: Tensor, adj: Tensor, targets: Tensor | None = None) -> Tensor:
        """Returns the outputs of every node; a network of weight 0 is skipped."""
        used = zip(self.weights.tolist(), self.models, strict=True)
        return torch.stack([weight * model(x, adj, targets) for weight, model in used if weight]).sum(dim=0)


class GCNLayer(nn.Module):
    """`A x W + b`."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        """Computes every node."""
        return adj @ (x @ self.weight) + self.bias


class SAGELayer(nn.Module):
    """`x W + b + mean(x of the neighbors) V`."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.own = Affine(in_channels, out_channels)
        self.neighbors = nn.Parameter(torch.empty(in_channels, out_channels))

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        """Computes every node."""
        out: Tensor = self.own(x) + (adj @ x) @ self.neighbors
        return out


class Stack(nn.Module):
    """Layers over the graph with a norm and ReLU between them."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        layer = SAGELayer if description["kind"] == "sage" else GCNLayer
        sizes = description["sizes"]
        self.layers = nn.ModuleList(layer(a, b) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(make_norm(description["norm"], size) for size in sizes[1:-1])

    def forward(self, x: Tensor, adj: Tensor, targets: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Returns the outputs of every node."""
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = torch.relu(norm(layer(x, adj)))
        out: Tensor = self.layers[-1](x, adj)
        return out


class Network(nn.Module):
    """The trained network.

    Attributes:
        description: The content of `model.json`; `class_names` are the names of the outputs, if they have some.
    """

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.description = description
        self.body = make_body(description)

    def forward(self, x: Tensor, edges: Tensor, weight: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Returns the outputs of every node, [N, C].

        Args:
            x: Features, [N, D].
            edges: Pairs of nodes, [2, M]; directions do not matter, and repeated edges count once.
            weight: Weights of the edges, [M].
            labels: Known labels, if `reads_labels` is true in the description: classes, [N], with -1 for an unknown
                one, or numbers, [N, C], with NaN. `known` makes them. Without any the network predicts as if none
                were known.
        """
        if x.dim() != 2 or x.shape[1] != self.description["in_channels"]:
            raise ValueError(f"`x` has shape {tuple(x.shape)}; give [nodes, {self.description['in_channels']}]")
        if len(wrong := (~x.isfinite()).any(dim=1).nonzero()):
            raise ValueError(f"row {int(wrong[0])} of `x` has a number that is NaN or infinite; replace it")
        if weight is not None and (
            weight.shape != edges.shape[1:] or not weight.isfinite().all() or (weight < 0).any()
        ):
            raise ValueError("`weight` has to be a finite number of at least 0 for every edge")
        if labels is not None and not self.description["reads_labels"]:
            raise ValueError("this network was trained without `label_input` and reads no labels; omit `labels`")
        if (features := self.description["feature_scale"]) is not None:
            center, scale = (torch.tensor(features[name], dtype=torch.float64) for name in ("center", "scale"))
            x = ((x.double() - center.to(x.device)) / scale.to(x.device)).float()
        if self.description["normalize_features"]:
            x = x / x.abs().sum(dim=1, keepdim=True).clamp(min=1e-12)
        make = mean_of_neighbors if self.description["kind"] == "sage" else normalized_adjacency
        targets = None if labels is None else self.targets(labels)
        out: Tensor = self.body(x, make(edges, weight, len(x)), targets)
        if self.description["scale"] is None:
            return out
        # regression targets were standardized in training
        return out * out.new_tensor(self.description["scale"]) + out.new_tensor(self.description["center"])

    def targets(self, labels: Tensor) -> Tensor:
        """Returns what the network reads of labels, [N, C]: zero for a node without one."""
        task, count = self.description["task"], self.description["num_outputs"]
        if task == "single-label":
            if labels.dim() != 1 or labels.is_floating_point() or int(labels.max()) >= count:
                raise ValueError(f"`labels` have to be classes below {count}, [nodes], with -1 for an unknown one")
            return one_hot(labels.long().clamp(min=0), count).float() * (labels >= 0).unsqueeze(1)
        if labels.dim() != 2 or labels.shape[1] != count:
            raise ValueError(f"`labels` have shape {tuple(labels.shape)}; give [nodes, {count}]")
        values = labels.float()
        known = (values >= 0 if task == "multi-label" else ~values.isnan()).all(dim=1, keepdim=True)
        if self.description["scale"] is not None:
            center, scale = (values.new_tensor(self.description[name]) for name in ("center", "scale"))
            values = (values - center) / scale
        return torch.where(known, values, 0.0)

    def known(self, y: Tensor, mask: Tensor) -> Tensor:
        """Returns the labels of the nodes in a mask as `forward` reads them, with all others unknown.

        Args:
            y: Classes, [N], or numbers, [N, C]; a tensor or a NumPy array.
            mask: Nodes whose label is known, [N] bool.
        """
        y, mask = torch.as_tensor(y), torch.as_tensor(mask)
        if mask.dtype != torch.bool or mask.shape != y.shape[:1]:
            shapes = f"`mask` has shape {tuple(mask.shape)} and type {mask.dtype}, `y` has shape {tuple(y.shape)}"
            raise ValueError(f"{shapes}; give both for every node, and `mask` as bool")
        if self.description["task"] == "single-label":
            if y.dim() != 1 or y.is_floating_point():
                raise ValueError(f"`y` has shape {tuple(y.shape)} and type {y.dtype}; give a class for every node")
            return torch.where(mask, y.long(), -1)
        values = y.float().reshape(len(mask), -1)
        return torch.where(mask.unsqueeze(1), values, torch.nan)

    @torch.no_grad()
    def predict(self, x: Tensor, edges: Tensor, weight: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Returns probabilities, [N, C], or the outputs themselves for regression; arguments as for `forward`.

        Of several labels, those with a probability above `threshold` in the description are predicted.
        """
        if labels is None and self.description["reads_labels"]:
            warnings.warn("no `labels` are given to a network that reads them; see `known`", stacklevel=2)
        outputs: Tensor = self(x, edges, weight, labels)
        task = self.description["task"]
        if task == "single-label":
            return outputs.softmax(dim=-1)
        return outputs.sigmoid() if task == "multi-label" else outputs


def make_body(description: dict[str, Any]) -> nn.Module:
    """Makes a network with empty weights from its description."""
    kinds: dict[str, Any] = {"decoupled": Decoupled, "blocks": Blocks, "mixture": Mixture, "gcn": Stack, "sage": Stack}
    made: nn.Module = kinds[description["kind"]](description)
    return made


def make_norm(kind: str, channels: int) -> nn.Module:
    """Makes a normalization by name."""
    if kind == "batch":
        return nn.BatchNorm1d(channels)
    return nn.LayerNorm(channels) if kind == "layer" else nn.Identity()


def normalized_adjacency(edges: Tensor, weight: Tensor | None, num_nodes: int) -> Tensor:
    """Returns `D^-1/2 (A + I) D^-1/2`, [N, N] sparse."""
    row, col, value = undirected(edges, weight, num_nodes)
    missing = torch.ones(num_nodes, dtype=torch.bool, device=row.device)
    missing[row[row == col]] = False
    loops = missing.nonzero()[:, 0]
    row, col = torch.cat((row, loops)), torch.cat((col, loops))
    value = torch.cat((value, value.new_ones(len(loops))))
    degree = value.new_zeros(num_nodes).index_add_(0, row, value)
    scale = degree.rsqrt().nan_to_num(posinf=0.0)
    return sparse(row, col, scale[row] * value * scale[col], num_nodes)


def mean_of_neighbors(edges: Tensor, weight: Tensor | None, num_nodes: int) -> Tensor:
    """Returns the matrix that averages over the neighbors of every node, [N, N] sparse; all edges count the same."""
    row, col, value = undirected(edges, weight, num_nodes)
    others = row != col
    row, col = row[others], col[others]
    count = value.new_zeros(num_nodes).index_add_(0, row, value.new_ones(len(row)))
    return sparse(row, col, 1 / count[row], num_nodes)


def undirected(edges: Tensor, weight: Tensor | None, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns rows, columns and weights of all edges in both directions, each once, with its largest weight."""
    value = torch.ones(edges.shape[1], device=edges.device) if weight is None else weight
    first, second = edges.long()
    key = torch.cat((first * num_nodes + second, second * num_nodes + first))
    unique, inverse = key.unique(return_inverse=True)
    value = value.double().repeat(2)
    largest = value.new_zeros(len(unique)).scatter_reduce_(0, inverse, value, "amax")
    return unique // num_nodes, unique % num_nodes, largest


def sparse(row: Tensor, col: Tensor, value: Tensor, num_nodes: int) -> Tensor:
    """Returns a sparse matrix in float32."""
    return torch.sparse_coo_tensor(
        torch.stack((row, col)), value.float(), (num_nodes, num_nodes), check_invariants=False
    ).coalesce()


def load(folder: str | Path) -> Network:
    """Returns the network of a folder that `lazygnn export` wrote, for prediction; `train()` makes it learn on."""
    folder = Path(folder)
    network = Network(json.loads((folder / "model.json").read_text()))
    network.body.load_state_dict(load_file(folder / "weights.safetensors"))
    return network.eval()


def positions(edges: Any, ids: Any, num_nodes: int) -> Any:
    """Returns edges as positions of nodes, [2, M]; edges of the same type as the ids, integers or texts, are ids."""
    import numpy as np

    if edges.ndim != 2 or len(edges) != 2 or (edges.size and edges.dtype.kind not in "iuSU"):
        shape = f"`edge_index` has shape {edges.shape} and type {edges.dtype}"
        raise ValueError(f"{shape}; give integers or texts, [2, edges]")
    if ids is not None and (edges.dtype.kind == "U") == (ids.dtype.kind == "U"):
        order = np.argsort(ids, kind="stable")
        found = order[np.minimum(np.searchsorted(ids, edges, sorter=order), len(ids) - 1)]
        wrong, place = edges[ids[found] != edges], "`node_ids`"
    elif edges.dtype.kind == "U":
        raise ValueError("`edge_index` holds texts; add `node_ids`, or give positions of nodes")
    else:
        found, wrong, place = edges, edges[(edges < 0) | (edges >= num_nodes)], f"0 to {num_nodes - 1}"
    if len(wrong):
        raise ValueError(f"`edge_index` names node {wrong[0].item()!r}, which is not in {place}; remove the edge")
    return found


def read(graph: str, names: Sequence[str]) -> dict[str, Any]:
    """Returns the arrays of an .npz file that have these names."""
    import numpy as np

    try:
        with Path(graph).open("rb") as stream, np.load(stream) as file:
            return {name: file[name] for name in names if name in file}
    except (OSError, EOFError, TypeError, ValueError, BadZipFile) as error:
        why = getattr(error, "strerror", None) or error
        sys.exit(f"error: cannot read `{graph}`: {why}; give a file that `numpy.savez` wrote")


def predict_file(graph: str) -> Any:
    """Returns the predictions for a graph in an .npz file."""
    network, labels = load(Path(__file__).parent), None
    shown = ("y", "train_mask") if network.description["reads_labels"] else ()
    arrays = read(graph, ("x", "edge_index", "edge_weight", "node_ids", *shown))
    for name, content in {"x": "dense features, [N, D]", "edge_index": "edges, [2, E]"}.items():
        if name not in arrays:
            sys.exit(f"error: `{graph}` has no array `{name}`; save it with {content}")
    arrays["edge_index"] = positions(arrays["edge_index"], arrays.pop("node_ids", None), len(arrays["x"]))
    found = {name: torch.from_numpy(array) for name, array in arrays.items()}
    missing = [f"`{name}`" for name in shown if name not in found]
    if missing:
        sys.stderr.write(
            f"warning: `{graph}` has no {' and '.join(missing)}; the network reads known labels, so give them\n"
        )
    elif shown:
        labels = network.known(found["y"], found["train_mask"])
    x, edges = found["x"].float(), found["edge_index"]
    with warnings.catch_warnings():
        # it was said above
        warnings.filterwarnings("ignore", message="no `labels` are given")
        return network.predict(x, edges, found.get("edge_weight"), labels).numpy()


def main(graph: str, out: str) -> None:
    """Writes the predictions for a graph in an .npz file; what is wrong with a file is one line."""
    import numpy as np

    try:
        found = predict_file(graph)
    except (TypeError, ValueError, RuntimeError) as error:
        sys.exit(f"error: `{graph}`: {' '.join(str(error).split())}")
    try:
        np.save(out, found)
    except OSError as error:
        sys.exit(f"error: cannot write `{out}`: {error.strerror}; choose another file")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: python {sys.argv[0]} graph.npz predictions.npy")
    main(*sys.argv[1:])
