"""Reports of runs: tables on a terminal, and one HTML page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lazygnn.commands.paths import as_path, as_paths
from lazygnn.commands.restoring import open_run
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.errors import ConfigError, reason
from lazygnn.files import write_file
from lazygnn.reports import Entry, make_page, make_report
from lazygnn.reports.words import summarize
from lazygnn.run.folder import Run
from lazygnn.training import infer

# more rows do not fit a terminal; the file has all of them
_MOST_ROWS = 30
_GROUPS = {"degree": "neighbors", "distance": "steps to a training node", "agreement": "neighbors of the same label"}


def write_page(
    paths: Sequence[Path | str] | Path | str,
    out: Path | str,
    *,
    device: str = "auto",
    root: str | None = None,
    verify: bool = True,
) -> None:
    """Writes the page of one or several runs, from fresh predictions of their best weights.

    Args:
        paths: The run folders.
        out: The HTML file.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        verify: Whether files of the runs, or their graphs, that have changed since they were written are refused.
    """
    runs, out = as_paths(paths, "paths"), as_path(out, "out")
    if out.suffix not in (".html", ".htm"):
        raise ConfigError(f"cannot write `{out}`; choose a name that ends in .html")
    if not out.parent.is_dir():
        raise ConfigError(f"cannot write `{out}`: the folder `{out.parent}` does not exist; create it first")
    page = make_page([_entry(path, device, root, verify=verify) for path in runs])
    try:
        write_file(out, page.encode())
    except OSError as error:
        raise ConfigError(f"cannot write `{out}`: {reason(error)}; choose another `--out`") from error


def read_temperature(run: Run, correct_and_smooth: CorrectAndSmooth | None) -> float:
    """Returns the temperature that the report of a run was fitted with.

    Args:
        run: The run.
        correct_and_smooth: What changes the predictions; it must be that of the report.
    """
    report = run.report()
    if report.get("task") == "regression":
        raise ConfigError("a regression predicts no probabilities; leave out `--calibrated`")
    changed = None if correct_and_smooth is None else asdict(correct_and_smooth)
    if report.get("correct_and_smooth") != changed:
        raise ConfigError(
            f"the report of `{run.path}` was written with other options of `--correct-and-smooth`; "
            f"write it again with the same: `lazygnn evaluate {run.path} --report`"
        )
    temperature = report.get("calibration", {}).get("temperature")
    if not isinstance(temperature, float) or temperature <= 0:
        raise ConfigError(
            f"the report of `{run.path}` has no temperature, since its graph has no validation nodes, or all of "
            "them are predicted right; leave out `--calibrated`"
        )
    return temperature


def show_report(path: Path | str, console: Console, *, verify: bool = True) -> None:
    """Prints the report of a run: sentences, then tables.

    Args:
        path: The run folder.
        console: Where to print.
        verify: Whether a report that has changed since it was written is refused.
    """
    path = as_path(path, "path")
    report = Run.open(path, verify=verify).report()
    for sentence in summarize(report):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if report["task"] == "regression":
        console.print(_table("outputs", report["numbers"]))
    else:
        console.print(_table("labels" if report["task"] == "multi-label" else "classes", report["classes"]))
    if "confusion" in report and len(report["classes"]) <= _MOST_ROWS:
        console.print(_confusion_table(report))
    if "calibration" in report:
        console.print(_calibration_table(report["calibration"]))
    for key, name in _GROUPS.items():
        if key in report["errs"]:
            rows = [
                {name: row["group"], "nodes": row["nodes"], report["errs"]["measure"]: row["mean"]}
                for row in report["errs"][key]
            ]
            console.print(_table(f"by {key}", rows))


def _entry(path: Path, device: str, root: str | None, *, verify: bool) -> Entry:
    instead = f"score it with `lazygnn evaluate {path} --graph`"
    opened = open_run(path, device, root, verify=verify, instead=instead)
    model, graph = opened.restore(opened.graph)
    report = make_report(infer(model, graph), replace(opened.graph, task=graph.task))
    run = opened.run
    settings = json.loads(opened.config.record(run.chosen()))
    return Entry(path.name or str(path), settings, run.log.read(), run.result(), report)


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    names = list(rows[0]) if rows else []
    left = len(rows) - _MOST_ROWS
    table = Table(
        *map(escape, names), title=title, caption=f"{left} more rows are in report.json" if left > 0 else None
    )
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    return table


def _confusion_table(report: Mapping[str, Any]) -> Table:
    names = [escape(row["name"]) for row in report["classes"]]
    table = Table("true", *names, title="confusion", caption="columns are the predicted classes")
    for name, counts in zip(names, report["confusion"], strict=True):
        table.add_row(name, *map(str, counts))
    return table


def _calibration_table(calibration: Mapping[str, Any]) -> Table:
    table = Table("probabilities", "expected calibration error", "log loss", title="calibration")
    for name, found in (("as predicted", calibration["before"]), ("with temperature", calibration["after"])):
        if found is not None:
            shown = name if name == "as predicted" else f"temperature {calibration['temperature']:.3f}"
            table.add_row(shown, _cell(found["error"]), _cell(found["log_loss"]))
    return table


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
