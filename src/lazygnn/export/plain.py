"""A trained graph neural network in plain PyTorch. Needs `torch` and `safetensors`, and no other package.

Beside this file are `model.json`, which describes the network, and `weights.safetensors`.

    from model import load
    network = load(".")
    outputs = network(x, edges)         # [N, C]: x is [N, D], edges is [2, M]
    answers = network.predict(x, edges)  # probabilities, or numbers for regression

As a program, it reads `x`, `edge_index` and, if it is there, `edge_weight` from an .npz file and writes the
predictions: `python model.py graph.npz predictions.npy`.
"""

import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


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


class Decoupled(nn.Module):
    """An MLP, then `x <- (1 - alpha) A x + alpha x_in`: a number of steps, or until it does not change any more."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.transform = MLP(description["sizes"], description["norm"])
        self.head = Affine(*description["head"]) if description["head"] else None
        self.alpha, self.steps = description["alpha"], description["steps"]
        self.tolerance = description["tolerance"]

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        """Returns the outputs of every node."""
        x = self.propagate(self.transform(x), adj)
        return x if self.head is None else self.head(x)

    def propagate(self, x_in: Tensor, adj: Tensor) -> Tensor:
        """Spreads the rows over the graph."""
        x, taken = x_in, 0
        while self.steps is None or taken < self.steps:
            before, x, taken = x, (1 - self.alpha) * (adj @ x) + self.alpha * x_in, taken + 1
            if self.steps is None:
                error = (x - before).norm() * (1 - self.alpha) / self.alpha
                if error <= self.tolerance * x_in.norm():
                    break
        return x


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

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
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
        self.body = Decoupled(description) if description["kind"] == "decoupled" else Stack(description)

    def forward(self, x: Tensor, edges: Tensor, weight: Tensor | None = None) -> Tensor:
        """Returns the outputs of every node, [N, C].

        Args:
            x: Features, [N, D].
            edges: Pairs of nodes, [2, M]; directions do not matter, and repeated edges count once.
            weight: Weights of the edges, [M].
        """
        if x.dim() != 2 or x.shape[1] != self.description["sizes"][0]:
            raise ValueError(f"`x` has shape {tuple(x.shape)}; give [nodes, {self.description['sizes'][0]}]")
        if self.description["normalize_features"]:
            x = x / x.abs().sum(dim=1, keepdim=True).clamp(min=1e-12)
        make = mean_of_neighbors if self.description["kind"] == "sage" else normalized_adjacency
        out: Tensor = self.body(x, make(edges, weight, len(x)))
        if self.description["scale"] is None:
            return out
        # regression targets were standardized in training
        return out * out.new_tensor(self.description["scale"]) + out.new_tensor(self.description["center"])

    @torch.no_grad()
    def predict(self, x: Tensor, edges: Tensor, weight: Tensor | None = None) -> Tensor:
        """Returns probabilities, [N, C], or the outputs themselves for regression."""
        outputs: Tensor = self(x, edges, weight)
        task = self.description["task"]
        if task == "single-label":
            return outputs.softmax(dim=-1)
        return outputs.sigmoid() if task == "multi-label" else outputs


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
    key = torch.cat((edges[0] * num_nodes + edges[1], edges[1] * num_nodes + edges[0])).long()
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


def main(graph: str, out: str) -> None:
    """Writes the predictions for a graph in an .npz file."""
    import numpy as np

    with np.load(graph) as file:
        found = {name: torch.from_numpy(file[name]) for name in ("x", "edge_index", "edge_weight") if name in file}
    network = load(Path(__file__).parent)
    np.save(out, network.predict(found["x"].float(), found["edge_index"], found.get("edge_weight")).numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
