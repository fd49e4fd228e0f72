"""Arrays of any kind where `Graph` expects edges, features, labels, splits and weights."""

import random
import warnings
from typing import Any

import numpy as np
import scipy.sparse
import torch

from lazygnn.graph import Graph

NUMPY = ("bool", "int8", "uint16", "int32", "int64", "uint64", ">i4", "float16", "float32", "float64", "complex64")
TORCH = (
    torch.bool,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
)
EXTREMES = (0, 1, -1, 2, 255, 2**31, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 1e-45, 1e38, 1e300, np.nan, np.inf)
ODD: tuple[Any, ...] = (None, 3, -1.5, "text", b"bytes", [], [[]], [[0, 1], [1]], {}, {0: 1}, object(), ..., np.nan)
FIELDS = ("x", "y", "train_mask", "val_mask", "test_mask", "edge_weight", "num_classes", "task", "node_ids", "name")


class Data:
    """Stands in for the `Data` of PyG."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def to_dict(self) -> dict[str, Any]:
        return self.fields


def fuzz_graph(rng: random.Random) -> None:
    """Draws a sound graph, changes up to three of its arguments, and makes it in one of three ways."""
    generator = np.random.default_rng(rng.randrange(2**32))
    fields = sound(rng, generator)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        field = rng.choice(("edges", *FIELDS))
        fields[field] = changed(rng, generator, fields.get(field))
    way = rng.randrange(4)
    if way == 0:
        data = {"edge_index" if name == "edges" else name: value for name, value in fields.items()}
        graph = Graph.from_data(Data(data), task=data.pop("task", "auto"), name=data.pop("name", "graph"))
    elif way == 1 and "edge_weight" not in fields:
        given = {name: value for name, value in fields.items() if name not in ("edges", "x", "y")}
        nodes = fields["train_mask"].size if isinstance(fields["train_mask"], np.ndarray) else 3
        adjacency = scipy.sparse.coo_matrix(generator.random((nodes, nodes)) < 0.3)
        graph = Graph.from_scipy(rng.choice((adjacency, adjacency.tocsr(), fields["edges"])), fields["x"], **given)
    else:
        graph = Graph.from_edges(fields.pop("edges"), fields.pop("x"), **fields)
    check(graph)


def sound(rng: random.Random, generator: np.random.Generator) -> dict[str, Any]:
    nodes = rng.randrange(1, 8)
    order = generator.permutation(nodes)
    fields: dict[str, Any] = {
        "edges": generator.integers(0, nodes, (2, rng.randrange(0, 12))),
        "x": generator.normal(size=(nodes, rng.randrange(1, 4))),
        "y": generator.integers(0, 3, nodes) % nodes,
        "train_mask": order == 0,
        "val_mask": order == 1,
        "test_mask": order > 1,
    }
    if rng.random() < 0.3:
        fields["edge_weight"] = generator.uniform(0, 2, fields["edges"].shape[1])
    if rng.random() < 0.2:
        fields["node_ids"] = [f"n{number}" for number in range(nodes)]
    return fields


def changed(rng: random.Random, generator: np.random.Generator, value: Any) -> Any:
    """Returns a value of another type, shape, container, or with an extreme number."""
    change = rng.choice(("odd", "odd", "dtype", "tensor", "tensor", "extreme", "extreme", "shape", "other", "sparse"))
    array = value if isinstance(value, np.ndarray) and value.ndim else generator.normal(size=(3, 2))
    if change == "odd":
        return rng.choice(ODD)
    if change == "other":
        return generator.normal(size=tuple(rng.randrange(4) for _ in range(rng.randrange(4))))
    if array.dtype.kind not in "biuf":
        return rng.choice((array, array.tolist(), array.astype("S"), array.astype(object), array[:1]))
    if change == "dtype":
        with np.errstate(all="ignore"):
            return array.astype(rng.choice(NUMPY))
    if change == "shape":
        return rng.choice((array[:0], array[:1], array[..., None], array.ravel(), array.T, array[None], array[..., :0]))
    if change == "extreme" and array.size:
        with np.errstate(all="ignore"):
            flat = array.astype(rng.choice(("float64", "float64", "int64"))).ravel()
            flat[rng.randrange(flat.size)] = np.float64(rng.choice(EXTREMES)).astype(flat.dtype)
            if rng.random() < 0.3:
                flat[:] = flat[0]
        return flat.reshape(array.shape)
    return as_tensor(rng, array)


def as_tensor(rng: random.Random, array: np.ndarray) -> Any:
    tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="))).to(rng.choice(TORCH))
    form = rng.choice(("dense", "dense", "meta", "coo", "csr", "grad", "strided", "empty"))
    if form == "meta":
        return tensor.to("meta")
    if form in ("coo", "csr") and tensor.dim() == 2 and tensor.dtype in (torch.float32, torch.int64, torch.float64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tensor.to_sparse() if form == "coo" else tensor.to_sparse_csr()
    if form == "grad" and tensor.is_floating_point():
        return tensor.requires_grad_()
    if form == "strided":
        return tensor.expand(2, *tensor.shape)[0]
    return tensor[:0] if form == "empty" else tensor


def check(graph: Graph) -> None:
    """Compares what every part of the library relies on."""
    assert len(graph.x) == len(graph.y) == len(graph.degree) == graph.num_nodes > 0
    assert graph.degree.isfinite().all()
    assert graph.adj.value.isfinite().all()
    assert graph.adj.value.any()
    assert graph.task.num_outputs >= 1
    labeled = graph.task.labeled(graph.y)
    assert all(mask.dtype == torch.bool and bool(labeled[mask].all()) for mask in graph.masks.values())
