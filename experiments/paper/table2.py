"""Table 2: memory and time of an epoch, with histories on the GPU and in host memory."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from common.measure import settle
from common.shapes import Shape, find_shape
from common.shapes import draw as draw_graph
from common.summary import Cell, Column, Row, Sources, Summary
from experiments.grid import Result
from experiments.paper.frame import PUBLISHED, Experiment, Plan, cells_of, published_cell
from experiments.paper.measuring import GPU, HOST, TIME, epochs, measure, shown
from experiments.paper.numbers import TABLE2
from experiments.paper.pictures import Panel, log_dots
from experiments.paper.verdict import Check, Verdict, judge
from lazygnn.config import Config
from lazygnn.graph import Graph
from lazygnn.methods import derive, resolve
from lazygnn.ops import choose_device

UNITS = {TIME: "{value:.3f}", GPU: "{value:,.0f}", HOST: "{value:,.0f}"}
# memory that still counts as the same, with more layers
SAME = 1.1
REPEATS = 3


class System(NamedTuple):
    """A method and what it sets.

    Attributes:
        method: Its name.
        values: What it sets.
        num_batches: How many batches of an epoch are measured; all if it is `None`.
        drawn: Whether these are drawn anew, with their sampling in the time.
    """

    method: str
    values: dict[str, Any]
    num_batches: int | None = None
    drawn: bool = False


# five layers with four histories of 128 columns are what the paper's memory of GAS amounts to
LAYERED: dict[str, Any] = {"hidden_channels": 128, "num_layers": 5, "dropout": 0.3}
PINNED: dict[str, Any] = {"history": "pinned"}
# a batch holds most of the graph; its time is scaled up
FEW = 1
# sampling takes most of the time of a batch; so it is measured
SAGE = {"hidden_channels": 256, "num_neighbors": [5, 10, 15], "batch_size": 8192}
OTHERS = {
    "GCN (GAS)": System("gcn-gas", LAYERED),
    "GCNII (GAS)": System("gcnii-gas", LAYERED),
    "APPNP (GAS)": System("appnp-gas", {"num_layers": 10}),
}
LAZY = System("lazygnn-paper", {"num_layers": 2, "keep_batches": False}, FEW)
OURS = System("lazygnn", {"num_layers": 2})
HELD = OTHERS | {"LazyGNN": LAZY, "ours": OURS}
SYSTEMS: dict[str, System] = {
    **{f"{name}, host": each._replace(values=each.values | PINNED) for name, each in HELD.items()},
    "GraphSAGE": System("graphsage", SAGE, num_batches=3, drawn=True),
    **HELD,
    "LazyGNN, L=1": LAZY._replace(values=LAZY.values | {"num_layers": 1}),
    "LazyGNN, L=3": LAZY._replace(values=LAZY.values | {"num_layers": 3}),
    "ours, L=1": OURS._replace(values={"num_layers": 1}),
    "ours, L=4": OURS._replace(values={"num_layers": 4}),
}
DEPTHS = {"LazyGNN": ("LazyGNN, L=1", "LazyGNN, L=3"), "ours": ("ours, L=1", "ours, L=4")}


def configure(system: System, shape: Shape, device: str) -> Config:
    """Returns the configuration of a system on a shape, the same MLP for all systems with one."""
    values = epochs(REPEATS) | {"lr": 0.001} | system.values
    if system.method != "graphsage":
        values |= {"num_parts": shape.num_parts, "parts_per_batch": shape.parts_per_batch, "partition": "contiguous"}
    if system.method in ("appnp-gas", "lazygnn", "lazygnn-paper"):
        mlp = {
            "hidden_channels": shape.hidden_channels,
            "mlp_layers": shape.mlp_layers,
            "norm": "batch",
            "dropout": 0.3,
        }
        values |= mlp | {"alpha": 0.1}
    # derived, since the values are meant to be the same for every graph
    return derive(resolve(system.method, f"{shape.name}-shape", device=device), values)


def run(plan: Plan) -> Summary:
    """Measures what is missing, one system at a time, and returns the table."""
    names, sources = plan.chosen(SYSTEMS), Sources()
    rows: dict[str, list[Cell | None]] = {name: [] for name in names}
    columns = []
    for dataset in plan.datasets:
        shape, graphs = find_shape(dataset), list[Graph]()
        columns += [Column(title=f"{dataset}: {title}", format=form) for title, form in UNITS.items()]
        columns += [Column(title=f"paper: {title}", format=PUBLISHED) for title in UNITS if dataset == "products"]
        for name in names:
            config = configure(SYSTEMS[name], shape, plan.place.device)
            line = plan.place.measure("table2", config, partial(_drawn, config, shape, SYSTEMS[name], graphs))
            rows[name] += _cells(line, sources)
            rows[name] += [published_cell(TABLE2.get(name, {}).get(title)) for title in UNITS if dataset == "products"]
    made = [Row(label=name, cells=cells, bold=name.startswith("ours")) for name, cells in rows.items()]
    return Summary(origin="", label="system", columns=columns, rows=made, sources=sources.found)


def _drawn(config: Config, shape: Shape, system: System, graphs: list[Graph]) -> Result:
    """Measures a system on the graph of a shape, which is drawn once."""
    device = choose_device(config.device)
    if not graphs:
        graphs.append(draw_graph(shape, device).to("cpu"))
    settle(device)
    return measure(config, graphs[0], system.num_batches, drawn=system.drawn)


def _cells(line: Result | None, sources: Sources) -> list[Cell | None]:
    if line is None or line["status"] != "ok":
        return [None] * len(UNITS)
    numbers = {"seeds": 1, "sources": sources.of([line])}
    return [None if line[title] is None else {"value": round(line[title], 5)} | numbers for title in UNITS]


def judge_table(summary: Summary) -> list[Verdict]:
    """Returns the verdicts on the paper's system, then on ours."""
    shapes = [
        column.title.removesuffix(f": {TIME}") for column in summary.columns if column.title.endswith(f": {TIME}")
    ]
    ours = [shape for shape in shapes if shape != "paper"]

    def values(shape: str, unit: str) -> dict[str, float]:
        return {name: cell["value"] for name, cell in cells_of(summary, f"{shape}: {unit}").items()}

    def least(system: str, unit: str, others: tuple[str, ...]) -> list[Check]:
        found = []
        for shape in ours:
            known = values(shape, unit)
            rivals = {name: known[name] for name in others if name in known}
            if system in known and rivals:
                best = min(rivals, key=lambda name: rivals[name])
                text = f"{shown(known[system], unit)} against {shown(rivals[best], unit)} of {best}"
                found.append(Check(shape, rivals[best] - known[system], text))
        return found

    def flat(system: str) -> list[Check]:
        found = []
        for shape in ours:
            known, (few, many) = values(shape, GPU), DEPTHS[system]
            if few in known and many in known:
                text = f"{known[few]:,.0f} and {known[many]:,.0f} MiB"
                found.append(Check(shape, SAME - known[many] / known[few], text))
        return found

    gas, verdicts = tuple(OTHERS), list[Verdict]()
    for system, name in (("LazyGNN", "LazyGNN"), ("ours", "Ours")):
        slow = _HALO if system == "LazyGNN" else _STEPS
        verdicts += [
            judge(f"{name} has the shortest epoch on the GPU", least(system, TIME, (*gas, "GraphSAGE")), slow),
            judge(f"The GPU memory of {name} does not depend on the number of layers", flat(system), slow),
            judge(f"{name} takes less GPU memory than GAS", least(system, GPU, gas), slow),
            judge(
                f"{name} with histories in host memory is faster than APPNP (GAS)",
                least(f"{system}, host", TIME, ("APPNP (GAS), host",)),
                slow,
            ),
        ]
    return verdicts


_HALO = "batches carry a halo of as many hops as there are layers, on all of which the MLP runs with its gradients"
_STEPS = "the MLP takes most of the time, and it is the same in all these systems"


def draw(summary: Summary, path: Path) -> None:
    """Draws time and memory of every system, a column of panels for each shape."""
    shapes = [
        column.title.removesuffix(f": {TIME}") for column in summary.columns if column.title.endswith(f": {TIME}")
    ]
    shapes = [shape for shape in shapes if shape != "paper"]
    labels = {TIME: "seconds of an epoch", GPU: "peak of GPU memory (MiB)"}
    panels = [
        [Panel(f"{shape}: {unit}", f"shape of {shape}", label) for unit, label in labels.items()] for shape in shapes
    ]
    log_dots(summary, path, panels)


EXPERIMENT = Experiment(
    title="Table 2: memory and time",
    about=(
        "Median time of an epoch, peak of GPU memory with graph and features (MiB), and histories in page-locked host "
        "memory (MiB), on random graphs of the shapes of the paper's data sets. All systems run on the kernels of "
        "this library, in float32, without evaluation, alone on the machine. LazyGNN is the released recipe with a "
        "halo of as many hops as layers: one batch of an epoch is measured and its time scaled up. Of GraphSAGE, three "
        "batches of an epoch are measured with their sampling and scaled up."
    ),
    time="two minutes of one H200",
    datasets=("products",),
    seeds=1,
    systems=tuple(SYSTEMS),
    run=run,
    judge=judge_table,
    draw=draw,
    quick=("tiny",),
    on_shapes=True,
)
