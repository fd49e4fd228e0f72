"""Shows a run: its configuration, its training log and its result."""

import json
import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lazygnn.commands.paths import as_path
from lazygnn.methods import read_config
from lazygnn.run.folder import Run

# with fewer lines, a table shows lines of other epochs as well
_ENOUGH = 5


def show_run(path: Path | str, console: Console, *, verify: bool = True) -> None:
    """Prints the resolved configuration, tables of the training log, and the result.

    Args:
        path: The run folder.
        console: Where to print.
        verify: Whether files of the run that have changed since they were written are refused.
    """
    path = as_path(path, "path")
    run = Run.open(path, verify=verify)
    console.print_json(run.config(read_config).record(run.chosen()))
    if environment := run.environment():
        known = "  ".join(f"{name} {value}" for name, value in environment.items() if value is not None)
        console.print(f"trained with  {known}", soft_wrap=True, highlight=False, markup=False)
    log = run.log.read()
    shown = _select(log)
    result = run.result()
    # an older run does not have the file of chosen values
    metric = run.chosen().get("metric") or result.get("metric")
    console.print(_log_table(shown, metric))
    # a separate table: beside the scores, the numbers would be too wide for a terminal
    if diagnosed := _select_diagnosed(log, shown):
        console.print(_laziness_table(diagnosed))
    console.print_json(json.dumps(result) if result else '{"result": "training has not ended"}')


def _select(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Selects about twenty epochs, preferably with scores and laziness; the last scored and the last are included."""
    scored = [line for line in log if line["scores"]]
    both = [line for line in scored if line.get("laziness")]
    preferred = next((lines for lines in (both, scored) if len(lines) >= _ENOUGH), log)
    kept = _about_twenty(preferred) + (scored if len(scored) < _ENOUGH else scored[-1:]) + log[-1:]
    epochs = {line["epoch"] for line in kept}
    return [line for line in log if line["epoch"] in epochs]


def _select_diagnosed(log: list[dict[str, Any]], shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Selects epochs with laziness: those that are `shown`, or if they are few, any."""
    diagnosed = [line for line in shown if line.get("laziness")]
    return diagnosed if len(diagnosed) >= _ENOUGH else _about_twenty([line for line in log if line.get("laziness")])


def _about_twenty(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Selects at most twenty lines, evenly spaced, with the last one."""
    return lines[:: -max(math.ceil(len(lines) / 20), 1)][::-1]


def _log_table(lines: list[dict[str, Any]], metric: str | None) -> Table:
    caption = None if metric is None else f"train, val and test are {metric}"
    table = Table("epoch", "loss", "train", "val", "test", "seconds", title="training log", caption=caption)
    for line in lines:
        scores = line["scores"] or {}
        cells = [f"{scores[split]:.4f}" if split in scores else "" for split in ("train", "val", "test")]
        table.add_row(str(line["epoch"]), f"{line['loss']:.4f}", *cells, f"{line['seconds']:.3f}")
    return table


def _laziness_table(lines: list[dict[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for line in lines for name in line["laziness"]))
    # names in two lines fit the width of a terminal
    table = Table("epoch", *("_\n".join(name.rsplit("_", 1)) for name in names), title="laziness")
    for line in lines:
        values = line["laziness"]
        table.add_row(str(line["epoch"]), *(f"{values[name]:.3f}" if name in values else "" for name in names))
    return table
