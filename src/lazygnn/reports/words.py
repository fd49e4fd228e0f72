"""The summary of a report in plain sentences."""

from collections.abc import Mapping
from typing import Any

from lazygnn.reports.markup import number

# a group of nodes needs so many to be worth a sentence
_FEW = 20
_SPLITS = {"test": "test", "val": "validation", "train": "training"}
_GROUPS = {
    "degree": "number of neighbors",
    "distance": "steps to the nearest training node",
    "agreement": "share of neighbors with the same label",
}


def split_name(split: str) -> str:
    """Returns the word for the nodes of a split."""
    return _SPLITS.get(split, split)


def summarize(report: Mapping[str, Any]) -> list[str]:
    """Returns sentences about the scores, the classes, the calibration and the places where a model errs."""
    found = [_score_sentence(report)]
    if report["task"] == "regression":
        found += _bias_sentences(report)
    else:
        found += _class_sentences(report) + _calibration_sentences(report["calibration"])
    return found + _group_sentences(report)


def _score_sentence(report: Mapping[str, Any]) -> str:
    split, nodes = report["split"], f"{report['nodes']:,} {split_name(report['split'])} nodes"
    scores = {name: values.get(split) for name, values in report["scores"].items()}
    if report["task"] == "single-label":
        support = max(row["support"] for row in report["classes"]) / max(report["nodes"], 1)
        return (
            f"{_percent(scores['accuracy'])} of {nodes} are predicted right; "
            f"the most frequent class alone would be right for {_percent(support)}."
        )
    if report["task"] == "multi-label":
        said = f"Micro F1 is {number(scores['micro-f1'])} and macro F1 {number(scores['macro-f1'])} on {nodes}"
        # a report of an earlier version has no threshold
        threshold = report.get("threshold", 0.5)
        return f"{said}. Labels with a probability above {threshold:g} are predicted."
    return (
        f"On {nodes} the mean absolute error is {number(scores['mae'])}, and predictions explain "
        f"{_percent(scores['r2'])} of the variance (R2)."
    )


def _class_sentences(report: Mapping[str, Any]) -> list[str]:
    kind = "class" if report["task"] == "single-label" else "label"
    rows = [row for row in report["classes"] if row["support"] and row["f1"] is not None]
    never = [row["name"] for row in rows if not row["predicted"]]
    found = []
    if len(rows) > 1:
        worst, best = min(rows, key=lambda row: row["f1"]), max(rows, key=lambda row: row["f1"])
        found.append(
            f"The weakest {kind} is {worst['name']} (F1 {worst['f1']:.3f}, {worst['support']:,} nodes), "
            f"the strongest is {best['name']} (F1 {best['f1']:.3f}, {best['support']:,} nodes)."
        )
    if never:
        shown = ", ".join(never[:5]) + (", and others" if len(never) > 5 else "")
        found.append(f"Never predicted: {shown}. The option class_weight=balanced may help.")
    return found


def _calibration_sentences(calibration: Mapping[str, Any]) -> list[str]:
    before, after = calibration["before"], calibration["after"]
    found = f"Probabilities are off by {100 * before['error']:.1f} points on average"
    if after is None:
        return [f"{found}. No temperature is fitted: validation has no nodes, or all are predicted right."]
    sure = "too sure" if calibration["temperature"] > 1 else "not sure enough"
    if abs(calibration["temperature"] - 1) < 0.02:
        return [f"{found}, and a temperature fitted on validation nodes would hardly change them."]
    return [
        f"{found}. On validation nodes the model is {sure}: a temperature of {calibration['temperature']:.2f} "
        f"makes that {100 * after['error']:.1f} points."
    ]


def _bias_sentences(report: Mapping[str, Any]) -> list[str]:
    found = []
    for row in report["numbers"][:3]:
        direction = "high" if row["bias"] > 0 else "low"
        which = f"of output {row['name']} " if len(report["numbers"]) > 1 else ""
        found.append(
            f"Predictions {which}are too {direction} by {number(abs(row['bias']))} on average; "
            f"the targets have a deviation of {number(row['deviation'])}."
        )
    return found


def _group_sentences(report: Mapping[str, Any]) -> list[str]:
    errs, found = report["errs"], []
    sign = -1 if report["task"] == "regression" else 1
    for name, phrase in _GROUPS.items():
        rows = [row for row in errs.get(name, []) if row["nodes"] >= _FEW]
        if len(rows) > 1:
            worst = min(rows, key=lambda row: sign * row["mean"])
            found.append(
                f"By {phrase}, the hardest group is '{worst['group']}': {errs['measure']} {number(worst['mean'])} "
                f"over {worst['nodes']:,} nodes, against {number(errs['overall'])} overall."
            )
    return found


def _percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.1f} %"
