"""Changes of the rule for defaults, judged by validation scores alone."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.summary import markdown_table
from experiments.best import Case, Place, Variant, load_checked, run_stored, validation_gain
from lazygnn.config import parse_assignments


class _Key(NamedTuple):
    case: str
    change: str
    dataset: str
    seed: int


# what the rule sets, without a change
_RULE = ""


def main(cases: Mapping[str, Case], changes: Sequence[str], datasets: Sequence[str], seeds: int, place: Place) -> str:
    """Trains the missing runs and returns a table in points of the validation score.

    For each case, the first row has the score with the rule, and one row for each change has its mean gain over the
    same seeds, with the standard error. Test scores are not in the table, so that no value is chosen by them.

    Args:
        cases: A method and what it sets, by name.
        changes: What a row sets in place of the rule, such as `lr=0.01 dropout=0.3`.
        datasets: Names or files of graphs.
        seeds: Number of seeds: 0, 1, ...
        place: Where and how runs are made.
    """
    values: dict[str, dict[str, Any]] = {_RULE: {}} | {change: parse_assignments(change.split()) for change in changes}
    graphs = load_checked(datasets, place)
    keys = [
        _Key(case, change, dataset, seed)
        for dataset in datasets
        for case in cases
        for change in values
        for seed in range(seeds)
    ]
    found = run_stored(
        {
            key: place.configure(
                cases[key.case], key.dataset, key.seed, graphs[key.dataset], _variant(values[key.change])
            )
            for key in keys
        },
        graphs,
        place,
    )
    scores = {key: 100 * validation_gain(line) for key, line in found.items() if line is not None}
    rows = [_row(scores, case, change, datasets, seeds) for case in cases for change in values]
    return markdown_table(["validation", *(Path(dataset).stem for dataset in datasets), "mean"], rows)


def _variant(values: Mapping[str, Any]) -> Variant:
    return Variant(changes=tuple(values.items()))


def _row(scores: Mapping[_Key, float], case: str, change: str, datasets: Sequence[str], seeds: int) -> list[str]:
    label, cells, means = f"{case}, {change}" if change else case, [], []
    for dataset in datasets:
        keys = [_Key(case, change, dataset, seed) for seed in range(seeds)]
        before = [key._replace(change=_RULE) for key in keys]
        if not all(key in scores for key in (*keys, *before)):
            cells.append("")
            continue
        numbers = [scores[key] - (scores[old] if change else 0) for key, old in zip(keys, before, strict=True)]
        means.append(statistics.fmean(numbers))
        cells.append(_cell(numbers, signed=bool(change)))
    mean = f"{statistics.fmean(means):{'+' if change else ''}.2f}" if len(means) == len(datasets) else ""
    return [label, *cells, mean]


def _cell(numbers: Sequence[float], *, signed: bool) -> str:
    mean = f"{statistics.fmean(numbers):{'+' if signed else ''}.2f}"
    return mean if len(numbers) == 1 else f"{mean} ± {statistics.stdev(numbers) / len(numbers) ** 0.5:.2f}"
