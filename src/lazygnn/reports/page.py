"""`make_page`: the report of one or several runs as one HTML file that needs no network and no script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from lazygnn.errors import ConfigError
from lazygnn.reports import sections
from lazygnn.reports.markup import facts, folded, heading, number, paragraph, sentences, table
from lazygnn.reports.style import STYLE
from lazygnn.reports.words import split_name, summarize


@dataclass(frozen=True)
class Entry:
    """What a page shows of a run.

    Attributes:
        name: Of the run, such as its folder.
        config: The configuration, as `config.json` holds it.
        log: A line for every epoch.
        result: The result of the training.
        report: From `make_report`.
    """

    name: str
    config: Mapping[str, Any]
    log: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any]
    report: Mapping[str, Any]


def make_page(entries: Sequence[Entry]) -> str:
    """Returns the page; several runs are compared first, then shown one after the other."""
    if not entries:
        raise ConfigError("a page needs at least one run; give the folder of a run")
    if len(entries) == 1:
        title = f"{entries[0].config['method']} on {_dataset(entries[0])}"
        body = heading(1, title) + _run(entries[0], 2)
    else:
        title = f"{len(entries)} runs"
        body = heading(1, title) + _overview(entries)
        for entry in entries:
            body += heading(2, entry.name) + _run(entry, 3)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        # a browser then refuses any request and any script, whatever the names of classes and nodes hold
        """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"""
        f"<title>{escape(title)} - lazygnn report</title><style>{STYLE}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _run(entry: Entry, level: int) -> str:
    report, metric = entry.report, str(entry.result.get("metric") or "score")
    judged = split_name(report["split"])
    numbers = report["task"] == "regression"
    parts = [
        paragraph(f"Run {entry.name}, judged on {report['nodes']:,} {judged} nodes.", soft=True),
        facts(_facts(entry)),
        heading(level, "In words"),
        sentences(summarize(report)),
        heading(level, "Training"),
        sections.curves({entry.name: entry.log}, metric),
        heading(level, "Outputs" if numbers else "Classes" if report["task"] == "single-label" else "Labels"),
        sections.classes(report),
        heading(level, "Confusion"),
        sections.confusion(report),
        heading(level, "Predictions and targets" if numbers else "Calibration"),
        sections.calibration(report),
        heading(level, "Where it errs"),
        sections.errs(report, level + 1),
        heading(level, "Largest errors" if numbers else "Most confident mistakes"),
        sections.mistakes(report),
        heading(level, "Time and memory"),
        _costs(entry),
        heading(level, "Settings"),
        folded("Show all settings", _settings(entry)),
    ]
    return "".join(parts)


def _overview(entries: Sequence[Entry]) -> str:
    rows, names = [], _unique_names(entries)
    for name, entry in zip(names, entries, strict=True):
        result = entry.result
        cells = [escape(str(entry.config["method"])), escape(_dataset(entry)), escape(str(result.get("metric", "")))]
        cells += [number(result.get(key)) for key in ("val", "test", "epochs", "seconds_per_epoch", "peak_memory_mib")]
        rows.append([escape(name), *cells])
    columns = ["run", "method", "data set", "metric", "val", "test", "epochs", "seconds per epoch", "peak MiB"]
    metrics = {str(entry.result.get("metric") or "score") for entry in entries}
    metric = metrics.pop() if len(metrics) == 1 else "score"
    return (
        heading(2, "All runs")
        + table("Results", columns, rows, numbers=range(4, 9))
        + sections.curves(dict(zip(names, (entry.log for entry in entries), strict=True)), metric)
    )


def _unique_names(entries: Sequence[Entry]) -> list[str]:
    names = [entry.name for entry in entries]
    return [name if names.count(name) == 1 else f"{name} ({index})" for index, name in enumerate(names, 1)]


def _facts(entry: Entry) -> dict[str, str]:
    report, split = entry.report, entry.report["split"]
    shown = {
        f"{name}, {split_name(split)}": number(scores[split])
        for name, scores in report["scores"].items()
        if split in scores and name != ("micro-f1" if report["task"] == "single-label" else "")
    }
    return shown | {"best epoch": f"{entry.result.get('best_epoch', '-')} of {entry.result.get('epochs', '-')}"}


def _costs(entry: Entry) -> str:
    total = sum(line["seconds"] for line in entry.log)
    rows = [
        ["epochs", number(len(entry.log))],
        ["seconds of training, without evaluation", number(total)],
        ["seconds per epoch, median", number(entry.result.get("seconds_per_epoch"))],
        ["peak memory, MiB", number(entry.result.get("peak_memory_mib"))],
        ["device", escape(str(entry.config.get("device", "-")))],
    ]
    return table("What the training took", ["measure", "value"], rows, numbers=(1,))


def _settings(entry: Entry) -> str:
    flat: dict[str, Any] = {}
    for key, value in entry.config.items():
        flat |= value if isinstance(value, Mapping) else {key: value}
    flat["dataset"] = _dataset(entry)
    flat.pop("root", None)
    rows = [[escape(str(key)), escape("" if value is None else str(value))] for key, value in flat.items()]
    return table("Every option of the run; an empty one was left open", ["option", "value"], rows)


def _dataset(entry: Entry) -> str:
    # without the folders of the machine that trained
    return str(entry.config["dataset"]).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
