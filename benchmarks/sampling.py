"""A draw of a sampled batch beside the training step on it, and checks of what was drawn.

`E` entries of a matrix, `N` nodes of the graph.
"""

import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.report import RESULTS, Report, Row, choose, verdict
from common.batches import StoredBatches
from common.measure import seconds_of
from common.shapes import Shape, load
from lazygnn.batch import Batch
from lazygnn.config import Config
from lazygnn.graph import Graph, select_rows
from lazygnn.loader.layerwise import Drawn, LayerLoader
from lazygnn.loader.sampled import SampledLoader
from lazygnn.methods import build, resolve
from lazygnn.ops import Csr
from lazygnn.training import EpochReport, Trainer

# drawn batches that steps are measured on, and draws for each epoch of them
NUM_BATCHES = 2
DRAWS_PER_EPOCH = 4
COLUMNS = {
    "sampler": "sampler",
    "draw, ms": "draw ms",
    "step, ms": "step ms",
    "draw / step": "draw / step",
    "before training, s": "first draw s",
    "targets": "targets",
    "nodes": "nodes",
    "entries": "entries",
    "status": "status",
    "settings": "settings",
}


class Sampler(NamedTuple):
    """A method to train, its options, and the options that describe its draws."""

    method: str
    values: dict[str, Any]
    described_by: tuple[str, ...]


def samplers(num_nodes: int) -> dict[str, Sampler]:
    """Returns the samplers by name; a subgraph has a quarter of the nodes at most.

    GraphSAGE takes all neighbors on a graph of this size by default, so it gets the options of larger graphs.
    """
    quarter = max(num_nodes // 4, 1)
    layers, subgraphs = ("batch_size", "num_samples"), ("sampler", "num_samples")
    neighbors, walks = ("batch_size", "num_neighbors"), (*subgraphs, "walk_length")
    return {
        "fastgcn": Sampler("fastgcn", {}, layers),
        "ladies": Sampler("ladies", {}, layers),
        "vr-gcn": Sampler("vr-gcn", {}, neighbors),
        "mvs-gnn": Sampler("mvs-gnn", {}, ("batch_size", "refresh_every")),
        "graphsaint-node": Sampler("graphsaint", {"sampler": "node", "num_samples": quarter}, subgraphs),
        "graphsaint-edge": Sampler("graphsaint", {"sampler": "edge", "num_samples": max(quarter // 2, 1)}, subgraphs),
        "graphsaint-walk": Sampler("graphsaint", {"sampler": "walk", "num_samples": max(quarter // 3, 1)}, walks),
        "graphsage": Sampler("graphsage", {"num_neighbors": [5, 10, 15], "batch_size": 8192}, neighbors),
        "lazygnn-neighbor": Sampler("lazygnn", {"loader": "neighbor"}, neighbors),
        "lazygnn-saint": Sampler("lazygnn", {"loader": "saint"}, walks),
    }


def main(
    shape: Shape,
    device: torch.device,
    *,
    root: str | None = None,
    only: Sequence[str] = (),
    repeats: int = 20,
    folder: Path = RESULTS,
) -> Report:
    """Measures the samplers in turn, each on the graph in the memory of the device."""
    epochs = -(-repeats // DRAWS_PER_EPOCH)
    chosen = choose(only, samplers(shape.num_nodes), "sampler")
    graph = load(shape, device, root).to(device)
    report = Report(
        f"sampling-{shape.name}",
        device,
        keys=("sampler",),
        times=("draw ms", "step ms"),
        columns=COLUMNS,
        folder=folder,
        facts={
            "graph": f"{graph.num_nodes:,} nodes, {len(graph.adj.col):,} stored entries, {graph.num_train:,} training "
            "nodes",
            "threads": torch.get_num_threads(),
            "draw, ms": f"mean of {repeats} draws, with the measurements of gradients of `mvs-gnn` among them",
            "step, ms": f"forward and backward pass and update, median over {epochs} epochs of {NUM_BATCHES} batches",
            "before training, s": "the first draw, which counts subgraphs for the weights of GraphSAINT",
            "nodes, entries": "distinct nodes of a batch and stored entries of its matrices",
            "check": "nodes are distinct, every entry is one of the graph, features and labels are those of the nodes",
        },
    )
    for name, sampler in chosen.items():
        quiet = {"eval_every": 10_000, "diagnose_every": 0, "epochs": epochs + 1}
        config = resolve(sampler.method, shape.name, quiet | sampler.values, graph=graph, use_recipe=False)
        about = {option: getattr(config.model, option) for option in sampler.described_by}
        settings = ", ".join(f"{option} {'all' if value is None else value}" for option, value in about.items())
        report.run({"sampler": name, "settings": settings}, partial(_measure, config, graph, device, repeats))
    report.write()
    return report


def _measure(config: Config, graph: Graph, device: torch.device, repeats: int) -> Row:
    torch.manual_seed(0)
    built = build(config, graph, device)
    loader = built.loader
    assert isinstance(loader, SampledLoader)
    batches = _draws(loader)
    (first,) = seconds_of(lambda: next(batches), device, repeats=1, warmup=0)
    draws = seconds_of(lambda: next(batches), device, repeats=repeats)
    stored = [next(batches) for _ in range(NUM_BATCHES)]
    reports: list[EpochReport] = []
    Trainer(built.model, StoredBatches(loader, stored), built.graph, config.trainer, on_epoch=reports.append).run()
    draw = statistics.mean(draws)
    # the first epoch warms up
    steps = [report.seconds / NUM_BATCHES for report in reports[1:]]
    step = statistics.median(steps)
    batch, layers = drawn_layers(loader, position=0, seed=1)
    return {
        "draw ms": 1000 * draw,
        "step ms": 1000 * step,
        "draw / step": draw / step,
        "first draw s": first,
        "targets": batch.num_targets,
        "nodes": len(torch.cat([nodes for layer in layers for nodes in layer]).unique()),
        "entries": sum(len(adj.col) for adj in _matrices(batch)),
        "all_draws": draws,
        "all_steps": steps,
        "config": config.model_dump(exclude={"root", "device"}),
        **check(built.graph, batch, layers),
    }


def _draws(loader: SampledLoader) -> Iterator[Batch]:
    """Yields batches in the order of an epoch, over and over, each from random numbers of its own."""
    for number in count():
        generator = torch.Generator(loader.graph.device).manual_seed(number)
        yield loader.draw(number % len(loader), generator)


class Layer(NamedTuple):
    """The nodes of the rows and of the columns of a matrix."""

    rows: Tensor
    columns: Tensor


def drawn_layers(loader: SampledLoader, position: int, seed: int) -> tuple[Batch, list[Layer]]:
    """Draws a batch and returns the nodes of each of its matrices too."""
    generator = torch.Generator(loader.graph.device).manual_seed(seed)
    if not isinstance(loader, LayerLoader):
        batch = loader.draw(position, generator)
        return batch, [Layer(batch.nodes[: adj.num_rows], batch.nodes[: adj.num_cols]) for adj in batch.adjs]
    choose_nodes, found = loader.choose, list[Tensor]()

    def record(block: Csr, targets: Tensor, generator: torch.Generator) -> Drawn:
        drawn = choose_nodes(block, targets, generator)
        found.append(drawn.nodes)
        return drawn

    # these batches do not hold the nodes of their layers
    loader.choose = record  # type: ignore[method-assign]
    batch = loader.draw(position, generator)
    del loader.choose
    return batch, [Layer(*pair) for pair in pairwise([batch.targets, *found])][::-1]


def check(graph: Graph, batch: Batch, layers: Sequence[Layer]) -> Row:
    """Checks a batch against its graph."""
    known = (graph.adj.row_index() * graph.num_nodes + graph.adj.col).sort().values
    wanted = torch.cat(
        [
            layer.rows[adj.row_index()] * graph.num_nodes + layer.columns[adj.col.long()]
            for adj, layer in zip(batch.adjs, layers, strict=True)
        ]
    )
    at = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
    inputs = layers[0].columns[: len(batch.x)]
    return verdict(
        nodes_are_distinct=all(len(nodes.unique()) == len(nodes) for layer in layers for nodes in layer),
        entries_are_in_the_graph=bool((known[at] == wanted).all()),
        features_are_those_of_the_nodes=_equal(batch.x, select_rows(graph.x, inputs)),
        labels_are_those_of_the_targets=torch.equal(batch.y, graph.y[batch.targets]),
    )


def _equal(one: Tensor | Csr, other: Tensor | Csr) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    assert isinstance(one, Csr)
    assert isinstance(other, Csr)
    return torch.equal(one.col, other.col) and torch.equal(one.value, other.value)


def _matrices(batch: Batch) -> list[Csr]:
    """Returns the matrices of a batch; one that several steps share counts once."""
    return list({id(adj): adj for adj in batch.adjs}.values())
