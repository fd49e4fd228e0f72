"""The tables of docs/results.md: which results of the benchmarks they show."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import OK
from common.summary import Cell, Column, Row, Sources, Summary
from lazygnn.errors import ConfigError

NUMBER, RATIO = "{value:.3g}", "{value:.2g}"
EPOCH_LABELS = {
    "ours-bf16": "LazyGNN, 50 batches with a frozen halo, bfloat16",
    "ours-tf32": "the same, tf32",
    "ours": "the same, float32",
    "ours-host-bf16": "bfloat16, histories and features in host memory",
    "ours-gradients-bf16": "bfloat16, gradients stored for the halo",
    "ours-host-gradients-bf16": "the same, histories and features in host memory",
    "ours-host-all-bf16": "bfloat16, histories, features and edges in host memory",
    "ours-full-bf16": "LazyGNN, full batch, bfloat16",
    "gas": "GAS with APPNP, 10 layers, 50 batches, float32, cuSPARSE",
    "gas-our-kernels": "the same on our kernels, bfloat16",
    "appnp-pyg-csr": "APPNP, 10 exact steps, full batch, PyG, torch CSR, float32",
    "appnp-our-kernels": "the same, ours, bfloat16",
    "cluster-gcn": "Cluster-GCN, ours, 50 batches, float32",
    "graphsage": "GraphSAGE, ours, 24 batches, float32",
    "paper": "the paper's recipe as released, 2 of 50 batches measured",
}
CPU_LABELS = {
    "ours-full": "LazyGNN, full batch, 2 steps and one on labeled rows",
    "ours": "LazyGNN, 10 batches with a frozen halo, 2 steps",
    "appnp": "APPNP, 10 steps, ours",
    "appnp-pyg-csr": "APPNP, 10 steps, PyG, torch CSR",
    "appnp-pyg-edge_index": "APPNP, 10 steps, PyG, edge_index",
}
DEEP_LABELS = {
    "deep": "lazygnn-deep, 4 blocks and the models beside them",
    "deep-host-narrow": "the same with `view_channels=64`, histories and features in host memory",
    "gcnii-gas-our-kernels": "GCNII (GAS), 8 layers",
    "gcn-gas-our-kernels": "GCN (GAS), 4 layers",
}
PROPAGATION_LABELS = {
    "exact": "ten exact steps",
    "ours": "two steps and one on labeled rows (8 % of them): the default",
    "ours-no-labels": "two steps",
    "ours-plain": "two plain steps",
    "paper": "the paper's two steps, gradients stored",
    "ours-one-step": "one step and one on labeled rows",
    "ours-one-no-labels": "one step",
}

SAMPLING_LABELS = {
    "fastgcn": "FastGCN",
    "ladies": "LADIES",
    "vr-gcn": "VR-GCN",
    "mvs-gnn": "MVS-GNN, with its measurements",
    "graphsaint-node": "GraphSAINT, nodes",
    "graphsaint-edge": "GraphSAINT, edges",
    "graphsaint-walk": "GraphSAINT, walks",
    "graphsage": "GraphSAGE",
    "lazygnn-neighbor": "LazyGNN, sampled neighbors",
    "lazygnn-saint": "LazyGNN, GraphSAINT's walks",
}

Result = dict[str, Any]


class Results:
    """Result files of one benchmark; if several have a row, the first file counts."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.contents: list[Result] = [json.loads(file.read_text()) for file in files]
        self.sources = Sources()

    def find(self, key: Mapping[str, Any]) -> tuple[Result, Result]:
        """Returns the row with these fields, and the content of its file."""
        (row,), content = self._together(key)
        return row, content

    def cell(self, field: str, key: Mapping[str, Any], factor: float = 1) -> Cell:
        """Returns a measured value; `None` if the result is wrong or missing."""
        row, content = self.find(key)
        value = None if row["status"] != OK or row[field] is None else factor * row[field]
        cell: Cell = {"value": value, "sources": self.sources.of([content])}
        if field in ("seconds", "milliseconds") and value is not None:
            scale = value / row["seconds"]
            times = [scale * second for second in row["all_seconds"]]
            cell |= {"lowest": min(times), "highest": max(times), "repeats": len(times)}
        return cell

    def ratio(self, field: str, key: Mapping[str, Any], to: Mapping[str, Any]) -> Cell:
        """Returns the ratio of two rows of the same file."""
        (row, other), content = self._together(key, to)
        return {"value": row[field] / other[field], "sources": self.sources.of([content])}

    def _together(self, *keys: Mapping[str, Any]) -> tuple[list[Result], Result]:
        """Returns the rows with these fields, from the first file that has all of them, and its content."""
        for content in self.contents:
            found = [
                next((row for row in content["rows"] if all(row.get(name) == key[name] for name in key)), None)
                for key in keys
            ]
            if None not in found:
                return [row for row in found if row is not None], content
        wanted = " and one with ".join(str(dict(key)) for key in keys)
        raise ConfigError(f"no result with {wanted}; give a file that has them, from `runs/benchmarks`")


def step(results: Results) -> Summary:
    """Returns the table of one step: milliseconds of three libraries, and errors."""
    rows = []
    for dtype in ("float32", "bfloat16"):
        for width in (16, 47, 48, 128):
            key: dict[str, Any] = {"columns": width, "dtype": dtype}
            ours, torch_csr = {"contender": "ours", **key}, {"contender": "torch-csr", **key}
            cells: list[Cell | None] = [
                results.cell("milliseconds", ours),
                results.cell("milliseconds", torch_csr),
                results.cell("milliseconds", {"contender": "pyg-messages", **key}),
                results.ratio("milliseconds", torch_csr, ours),
                results.cell("error", ours),
                results.cell("error", torch_csr),
            ]
            rows.append(Row(label=f"{width}, {dtype}", cells=cells))
    columns = [
        *(Column(title=title, format=NUMBER) for title in ("ours, ms", "cuSPARSE through torch, ms", "PyG, ms")),
        *(Column(title=title, format=RATIO) for title in ("cuSPARSE / ours", "error, ours", "error, cuSPARSE")),
    ]
    return _summary("step", "columns, type", columns, rows, results)


def propagation(results: Results) -> Summary:
    """Returns the table of the propagation of a full batch: milliseconds, and the ratio to exact steps."""
    rows = []
    for name, label in PROPAGATION_LABELS.items():
        cells: list[Cell | None] = []
        for dtype in ("float32", "bfloat16"):
            key, exact = {"contender": name, "dtype": dtype}, {"contender": "exact", "dtype": dtype}
            cells += [results.cell("milliseconds", key), results.ratio("milliseconds", key, exact)]
        rows.append(Row(label=label, cells=cells, bold=name == "ours"))
    columns = [
        Column(title=title, format=form)
        for dtype in ("float32", "bfloat16")
        for title, form in ((f"{dtype}, ms", "{value:.1f}"), ("of exact", "{value:.3f}"))
    ]
    return _summary("propagation", "propagation", columns, rows, results)


def epoch(results: Results) -> Summary:
    """Returns the table of an epoch at the shape of ogbn-products; ratios are to our epoch in the same file."""
    rows = []
    for name, label in EPOCH_LABELS.items():
        key = {"contender": name}
        cells: list[Cell | None] = [
            results.cell("seconds", key),
            results.ratio("seconds", key, {"contender": "ours-bf16"}),
            results.cell("step peak MiB", key),
            results.cell("resident MiB", key),
        ]
        commit = results.find(key)[1]["commit"]
        other = "" if commit == results.contents[0]["commit"] else f" ({commit})"
        rows.append(Row(label=label + other, cells=cells, bold=name == "ours-bf16"))
    formats = {
        "seconds": "{value:.3f}",
        "times ours": "{value:.1f}",
        "memory of a step, MiB": "{value:,.0f}",
        "resident, MiB": "{value:,.0f}",
    }
    columns = [Column(title=title, format=form) for title, form in formats.items()]
    return _summary("epoch", "contender", columns, rows, results)


def epoch_deep(results: Results) -> Summary:
    """Returns the table of an epoch of the deep model beside layered ones; ratios are those of the first to the row."""
    rows = []
    for name, label in DEEP_LABELS.items():
        key = {"contender": name}
        cells: list[Cell | None] = [
            results.cell("seconds", key),
            results.ratio("seconds", {"contender": "deep"}, key),
            results.cell("step peak MiB", key),
            results.cell("resident MiB", key),
        ]
        rows.append(Row(label=label, cells=cells, bold=name == "deep"))
    formats = {
        "seconds": "{value:.3f}",
        "lazygnn-deep / row": "{value:.2f}",
        "memory of a step, MiB": "{value:,.0f}",
        "resident, MiB": "{value:,.0f}",
    }
    columns = [Column(title=title, format=form) for title, form in formats.items()]
    return _summary(f"epoch --only {','.join(DEEP_LABELS)}", "contender, 256 wide, bfloat16", columns, rows, results)


def epoch_profile(results: Results) -> Summary:
    """Returns the table of the kernels of an epoch, in groups: milliseconds of the deep model and of others."""
    found = {name: results.find({"contender": name}) for name in DEEP_LABELS}
    groups = dict.fromkeys(group for row, _ in found.values() for group in row["profile"])
    rows = [
        Row(
            label=group,
            cells=[
                {"value": row["profile"][group], "sources": results.sources.of([content])}
                if group in row["profile"]
                else None
                for row, content in found.values()
            ],
        )
        for group in groups
    ]
    columns = [Column(title=name, format="{value:.0f}") for name in DEEP_LABELS]
    command = f"epoch --profile --only {','.join(DEEP_LABELS)}"
    return _summary(command, "kernels, ms of an epoch", columns, rows, results)


def epoch_cpu(results: Results) -> Summary:
    """Returns the table of an epoch on CPU cores, and the ratio to PyG."""
    rows = []
    for name, label in CPU_LABELS.items():
        key = {"contender": name}
        cells: list[Cell | None] = [results.cell("seconds", key)]
        cells += [results.ratio("seconds", key, {"contender": f"appnp-pyg-{form}"}) for form in ("csr", "edge_index")]
        rows.append(Row(label=label, cells=cells))
    columns = [
        Column(title=title, format="{value:.2f}")
        for title in ("seconds per epoch", "of PyG, CSR", "of PyG, edge_index")
    ]
    return _summary("epoch --shape arxiv --device cpu", "contender", columns, rows, results)


def history(results: Results) -> Summary:
    """Returns the table of the rates of reading and writing, by tier and type."""
    dtypes, verbs = ("float32", "bfloat16", "int8"), {"pull": "read", "push": "written"}
    tiers = {"device": "GPU", "pinned": "page-locked host memory", "host": "host memory", "disk": "disk (page cache)"}
    rows = [
        Row(
            label=label,
            cells=[results.cell(f"{verb} GB/s", {"tier": tier, "dtype": dtype}) for dtype in dtypes for verb in verbs],
        )
        for tier, label in tiers.items()
    ]
    columns = [Column(title=f"{dtype}, {verb}", format=NUMBER) for dtype in dtypes for verb in verbs.values()]
    return _summary("history", "tier, GB/s", columns, rows, results)


def scaling(results: Results) -> Summary:
    """Returns the table of time and memory of an epoch by steps and stored entries."""
    rows = []
    for row in results.contents[0]["rows"]:
        key = {name: row[name] for name in ("axis", "nodes", "entries", "steps", "parts")}
        label = (
            f"steps: {row['steps']}"
            if row["axis"] == "steps"
            else f"stored entries: {row['entries'] / 1e6:.0f} million"
        )
        cells: list[Cell | None] = [
            results.cell("seconds", key, 1000),
            results.cell("step peak MiB", key),
            results.cell("resident MiB", key),
        ]
        rows.append(Row(label=label, cells=cells))
    titles = ("epoch, ms", "memory of a step, MiB", "resident, MiB")
    columns = [Column(title=title, format="{value:,.0f}") for title in titles]
    return _summary("scaling --contender ours-bf16", "changed", columns, rows, results)


def fit(results: Results) -> Summary:
    """Returns the table of whole trainings: seconds, the part that was evaluation, and scores."""
    rows = []
    for dataset in ("wordnet-small", "coauthor_cs"):
        for method in ("appnp", "lazygnn"):
            key = {"dataset": dataset, "method": method}
            fields = [("seconds", 1.0), ("eval seconds", 1.0), ("ratio", 1.0), ("val", 100.0), ("test", 100.0)]
            cells: list[Cell | None] = [results.cell(name, key, factor) for name, factor in fields]
            rows.append(Row(label=f"{dataset}, {method}", cells=cells))
    columns = [
        *(Column(title=title, format="{value:.1f}") for title in ("seconds", "of them evaluation")),
        Column(title="of APPNP", format="{value:.2f}"),
        *(Column(title=title, format="{value:.1f}") for title in ("validation", "test")),
    ]
    return _summary("fit", "data set, method", columns, rows, results)


def sampling(results: Results) -> Summary:
    """Returns the table of draws beside training steps, and the sizes of a batch."""
    rows = []
    for name, label in SAMPLING_LABELS.items():
        fields = ("draw ms", "step ms", "draw / step", "targets", "nodes", "entries")
        cells: list[Cell | None] = [results.cell(field, {"sampler": name}) for field in fields]
        rows.append(Row(label=label, cells=cells))
    formats = {
        "draw, ms": "{value:,.0f}",
        "step, ms": "{value:,.0f}",
        "draw / step": "{value:.2f}",
        "targets": "{value:,.0f}",
        "nodes": "{value:,.0f}",
        "entries": "{value:,.0f}",
    }
    columns = [Column(title=title, format=form) for title, form in formats.items()]
    return _summary("sampling", "sampler", columns, rows, results)


TABLES: dict[str, Callable[[Results], Summary]] = {
    "step": step,
    "propagation": propagation,
    "epoch": epoch,
    "epoch-deep": epoch_deep,
    "epoch-profile": epoch_profile,
    "epoch-cpu": epoch_cpu,
    "history": history,
    "scaling": scaling,
    "fit": fit,
    "sampling": sampling,
}


def _summary(command: str, label: str, columns: list[Column], rows: list[Row], results: Results) -> Summary:
    origin = f"python -m benchmarks {command}"
    return Summary(origin=origin, label=label, columns=columns, rows=rows, sources=results.sources.found)
