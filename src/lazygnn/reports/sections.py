"""The sections of a page about one run; a section that does not apply to a task says so in a sentence."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lazygnn.reports.markup import folded, heading, number, paragraph, ratio, scrolled, table
from lazygnn.reports.svg import Line, bar, line_figure, reliability_figure

# a larger matrix is not legible
_MOST_CLASSES = 20
_ROWS = 30
# of the color of the largest cell, so that its number stays legible
_OPACITY = 0.42
_GROUPS = {
    "degree": ("neighbors", "By number of neighbors"),
    "distance": ("steps", "By steps to the nearest training node"),
    "agreement": ("same label", "By share of labeled neighbors with the same label"),
}
_LEFT_OUT = {
    "distance": "The distance to training nodes is left out, since the graph has none.",
    "agreement": "Agreement with neighbors is left out: it needs one class per node.",
}


def curves(logs: Mapping[str, Sequence[Mapping[str, Any]]], metric: str) -> str:
    """Returns figures of loss and validation score over the epochs and over time, a line for each log."""
    if not any(logs.values()):
        return paragraph("The run has no epochs, so there are no curves.", soft=True)
    several = len(logs) > 1
    losses, scores, timed = [], [], []
    for name, log in logs.items():
        scored = [line for line in log if line["scores"]]
        times = _times(log)
        losses.append(Line(name, [line["epoch"] for line in log], [line["loss"] for line in log]))
        for split in ("val",) if several else ("train", "val", "test"):
            found = [line for line in scored if split in line["scores"]]
            values = [line["scores"][split] for line in found]
            label = name if several else split
            scores.append(Line(label, [line["epoch"] for line in found], values))
            timed.append(Line(label, [times[line["epoch"]] for line in found], values))
    title = f"{metric} on validation nodes" if several else metric
    figures = (
        line_figure(losses, title="Training loss", x_label="epoch", y_label="loss"),
        line_figure(scores, title=f"{title} over epochs".capitalize(), x_label="epoch", y_label=metric),
        line_figure(timed, title=f"{title} over time".capitalize(), x_label="seconds of training", y_label=metric),
    )
    return f'<div class="figures">{"".join(figures)}</div>'


def classes(report: Mapping[str, Any]) -> str:
    """Returns the table of classes, the largest first; of numbers, the table of outputs."""
    if report["task"] == "regression":
        keys = ("mae", "rmse", "r2", "bias", "mean", "deviation")
        rows = [[escape(row["name"]), *(number(row[key]) for key in keys)] for row in report["numbers"]]
        names = ["output", "MAE", "RMSE", "R2", "bias", "mean of targets", "deviation of targets"]
        return table("Errors of every output, in its own units", names, rows, numbers=range(1, 7))
    kind = "class" if report["task"] == "single-label" else "label"
    ordered = sorted(report["classes"], key=lambda row: -row["support"])
    rows = [
        [
            escape(row["name"]),
            *(ratio(row[key]) for key in ("precision", "recall")),
            f"{ratio(row['f1'])} {bar(row['f1'] or 0.0)}",
            *(number(row[key]) for key in ("support", "predicted")),
        ]
        for row in ordered
    ]
    names = [kind, "precision", "recall", "F1", "support", "predicted"]
    caption = f"Every {kind}, the most frequent first"
    if len(rows) <= _ROWS:
        return table(caption, names, rows, numbers=(1, 2, 4, 5))
    first = table(f"The {_ROWS} most frequent of {len(rows)}", names, rows[:_ROWS], numbers=(1, 2, 4, 5))
    rest = table("The others", names, rows[_ROWS:], numbers=(1, 2, 4, 5))
    return first + folded(f"{len(rows) - _ROWS} more", rest)


def confusion(report: Mapping[str, Any]) -> str:
    """Returns the confusion matrix of the most frequent classes, or why there is none."""
    if "confusion" not in report:
        return paragraph("A confusion matrix is left out: it needs one class per node.", soft=True)
    order = sorted(range(len(report["classes"])), key=lambda index: -report["classes"][index]["support"])
    shown = order[:_MOST_CLASSES]
    names = [escape(report["classes"][index]["name"]) for index in shown]
    head = "".join(f'<th scope="col" class="number">{name}</th>' for name in names)
    body = ""
    for name, row in zip(names, shown, strict=True):
        total = max(sum(report["confusion"][row]), 1)
        cells = "".join(_cell(report["confusion"][row][column], total) for column in shown)
        body += f'<tr><th scope="row">{name}</th>{cells}</tr>'
    caption = "Rows are the true classes, columns the predicted ones; a stronger color is a larger share of its row"
    content = (
        f'<table class="matrix"><caption>{caption}</caption>'
        f'<thead><tr><th scope="col">true class</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )
    left = len(order) - len(shown)
    note = paragraph(f"{left} less frequent classes are left out here.", soft=True) if left else ""
    return scrolled(content, "Confusion matrix") + note


def calibration(report: Mapping[str, Any]) -> str:
    """Returns reliability plots before and after the temperature; of numbers, predictions beside targets."""
    if report["task"] == "regression":
        return paragraph("Calibration is left out: a regression predicts no probabilities.", soft=True) + _by_target(
            report
        )
    found = report["calibration"]
    before, after = found["before"], found["after"]
    figures = reliability_figure(before["bins"], title="As predicted")
    rows = [["as predicted", ratio(before["error"]), number(before["log_loss"])]]
    if after is not None:
        figures += reliability_figure(after["bins"], title=f"At a temperature of {found['temperature']:.2f}")
        rows.append(
            [f"at a temperature of {found['temperature']:.2f}", ratio(after["error"]), number(after["log_loss"])]
        )
    told = paragraph("Bars on the dashed line are right as often as their probability says.", soft=True)
    errors = table("Errors", ["probabilities", "expected calibration error", "log loss"], rows, numbers=(1, 2))
    return f'{told}<div class="figures">{figures}</div>{errors}'


def errs(report: Mapping[str, Any], level: int) -> str:
    """Returns the tables of groups of nodes."""
    parts = []
    for key, (name, title) in _GROUPS.items():
        parts.append(heading(level, title))
        if key not in report["errs"]:
            parts.append(paragraph(_LEFT_OUT[key], soft=True))
            continue
        rows = report["errs"][key]
        largest = max((row["mean"] for row in rows), default=0.0) or 1.0
        scale, shown = (largest, number) if report["task"] == "regression" else (1.0, ratio)
        cells = [
            [escape(row["group"]), number(row["nodes"]), f"{shown(row['mean'])} {bar(row['mean'] / scale)}"]
            for row in rows
        ]
        measure = report["errs"]["measure"]
        parts.append(table(f"{measure} of each group".capitalize(), [name, "nodes", measure], cells, numbers=(1,)))
    return "".join(parts)


def mistakes(report: Mapping[str, Any]) -> str:
    """Returns the most confident mistakes, or that there are none."""
    rows = report["mistakes"]
    if not rows:
        return paragraph("There are no mistakes on these nodes.")
    keys = list(rows[0])
    numeric = [index for index, key in enumerate(keys) if key != "node" and isinstance(rows[0][key], float)]
    cells = [[escape(_shown(key, row[key])) for key in keys] for row in rows]
    told = "Largest errors first" if report["task"] == "regression" else "Most confident first"
    return table(told, keys, cells, numbers=numeric)


def _times(log: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Returns the seconds of training at the end of every epoch."""
    total, times = 0.0, {}
    for line in log:
        total += line["seconds"]
        times[line["epoch"]] = total
    return times


def _shown(key: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return ratio(value) if key == "probability" else number(value)


def _cell(count: int, total: int) -> str:
    share = f'style="--share:{_OPACITY * count / total:.3f}"'
    return f"<td {share}>{count:,}</td>" if count else f'<td {share} class="zero">0</td>'


def _by_target(report: Mapping[str, Any]) -> str:
    figures = ""
    for row in report["numbers"]:
        groups = [group for group in report["by_target"] if group["name"] == row["name"]]
        targets = [group["target"] for group in groups]
        predictions = Line("predicted", targets, [group["prediction"] for group in groups])
        lines = [predictions, Line("perfect", targets, targets)]
        title = f"Mean prediction of nodes with similar targets, output {row['name']}"
        figures += line_figure(lines, title=title, x_label="target", y_label="prediction")
    return f'<div class="figures">{figures}</div>'
