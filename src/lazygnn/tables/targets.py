"""Labels: one class per node, several, or numbers. A missing label is unknown.

`N` rows, `C` classes or numbers.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lazygnn.errors import ConfigError, GraphError
from lazygnn.tables.columns import Values, positions, read_values, without_point
from lazygnn.tables.options import TableOptions
from lazygnn.tables.reading import TEXT, Source
from lazygnn.tables.schema import Target
from lazygnn.tables.summary import Summary

logger = logging.getLogger(__name__)

SEPARATOR = ";"
# more different whole numbers are numbers rather than names of classes
_MOST_NUMBERED_CLASSES = 20
# pandas writes whole numbers as 1.0 and 0.0 where the column has missing values
_YES = ("1", "1.0", "true", "yes")
_NO = ("0", "0.0", "false", "no")


def fit_target(source: Source, table: pa.Table, columns: Sequence[str], options: TableOptions) -> Target:
    """Decides what the labels are.

    Text is one class, or several classes with `;` between them. Whole numbers are classes if they are few, and other
    numbers are a regression. Several columns are classes if they hold 0 and 1, and a regression otherwise.
    """
    read = [read_values(source, table, column) for column in columns]
    if len(read) > 1:
        return _fit_several(read, options)
    (values,) = read
    task = options.task
    if task == "auto":
        task = _guess_task(values)
    if task == "regression":
        values.numbers()
        return Target(columns=(values.name,), task=task)
    summary, texts = Summary.of(values), values.texts()
    summary.refuse_dates()
    # of numbers, 1 and 1.0 are the same class
    texts = without_point(texts) if summary.looks_numeric else texts
    found = _split(texts) if task == "multi-label" else texts
    classes = _sorted_classes(pc.unique(found.drop_null()).to_pylist())
    if len(classes) > options.max_categories:
        row = int(pc.index(pc.is_valid(values.array), value=True).as_py())
        raise values.error(
            row,
            f"is one of {len(classes):,} different labels, at most {options.max_categories} become classes; choose "
            "another `--label`, raise `--max-categories`, or predict numbers with `--task regression`",
        )
    summary.refuse_long("the name of a class")
    if task == "single-label" and len(classes) < 2:
        raise GraphError(
            f"{source.name}, column `{values.name}`: all labels are {classes[0]!r}; give at least two classes"
        )
    _warn_of_minus_one(values, found, classes)
    return Target(columns=(values.name,), task=task, classes=classes)


def encode_target(source: Source, table: pa.Table, target: Target) -> np.ndarray:
    """Returns the labels, as `Graph` takes them: [N] integers, or [N, C] numbers."""
    read = [read_values(source, table, column) for column in target.columns]
    if target.task == "regression":
        return np.stack([values.numbers() for values in read], axis=1)
    if len(read) > 1:
        y = np.stack([_flags(values) for values in read], axis=1)
        y[(y < 0).any(axis=1)] = -1
        return y
    texts = read[0].texts()
    if target.task == "single-label":
        single = positions(texts, target.classes).astype(np.int64)
        _refuse_unknown(read[0], (single < 0) & pc.is_valid(texts).to_numpy())
        return single
    y = np.zeros((len(table), len(target.classes)), dtype=np.int64)
    lists = pc.split_pattern(texts, SEPARATOR).combine_chunks()
    names = pc.utf8_trim_whitespace(pc.list_flatten(lists))
    position = positions(names, target.classes)
    rows = pc.list_parent_indices(lists).to_numpy()
    unknown = np.zeros(len(table), dtype=bool)
    unknown[rows[(position < 0) & pc.not_equal(names, "").to_numpy(zero_copy_only=False)]] = True
    _refuse_unknown(read[0], unknown)
    y[rows[position >= 0], position[position >= 0]] = 1
    y[pc.is_null(texts).to_numpy()] = -1
    return y


def _guess_task(values: Values) -> Any:
    if Summary.of(values).looks_numeric:
        known = values.numbers()
        known = np.unique(known[~np.isnan(known)])
        classes = np.array_equal(known, known.round()) and len(known) <= _MOST_NUMBERED_CLASSES
        return "single-label" if classes else "regression"
    several = values.is_text and pc.any(pc.match_substring(values.array, SEPARATOR)).as_py()
    return "multi-label" if several else "single-label"


def _fit_several(read: Sequence[Values], options: TableOptions) -> Target:
    names = tuple(values.name for values in read)
    binary = all(_are_flags(values) for values in read)
    task = ("multi-label" if binary else "regression") if options.task == "auto" else options.task
    if task == "single-label":
        raise ConfigError(f"`--task single-label` takes one column of labels, not {len(read)}; give `--label` once")
    if task == "multi-label":
        for values in read:
            _flags(values)
        return Target(columns=names, task=task, classes=names)
    for values in read:
        if not Summary.of(values).looks_numeric:
            raise ConfigError(
                f"column `{values.name}` of {values.source.name} holds text; several label columns hold 0 and 1, or "
                f"numbers; join several labels in one column with `{SEPARATOR}`"
            )
        values.numbers()
    return Target(columns=names, task=task)


def _are_flags(values: Values) -> bool:
    lower = pc.utf8_lower(values.texts().drop_null())
    return bool(pc.all(pc.is_in(lower, value_set=pa.array(_YES + _NO, TEXT))).as_py())


def _flags(values: Values) -> np.ndarray:
    """Returns 1 for yes, 0 for no and -1 for a missing value, [N]."""
    lower = pc.utf8_lower(values.texts())
    position = pc.fill_null(pc.index_in(lower, value_set=pa.array(_NO + _YES, TEXT)), -1).to_numpy()
    wrong = (position < 0) & pc.is_valid(values.array).to_numpy()
    if wrong.any():
        raise values.error(int(wrong.argmax()), "is neither 0 nor 1; correct it, or leave it empty")
    flags: np.ndarray = np.where(position < 0, -1, position >= len(_NO)).astype(np.int64)
    return flags


def _refuse_unknown(values: Values, unknown: np.ndarray) -> None:
    """Refuses labels of another table that are not classes of this one."""
    if unknown.any():
        raise values.error(int(unknown.argmax()), "is not a class of the graph; correct it, or leave it empty")


def _warn_of_minus_one(values: Values, labels: Any, classes: Sequence[str]) -> None:
    """Warns of a class -1 beside numbered classes, which often stands for no label."""
    others = [name for name in classes if name != "-1"]
    # -1 and 1 are two classes
    if "-1" in classes and len(others) > 1 and all(name.isdecimal() for name in others):
        logger.warning(
            f"{values.source.name}, column `{values.name}`: -1 is a class of its own, with "
            f"{pc.sum(pc.equal(labels, '-1')).as_py():,} nodes; if it stands for no label, leave these values empty"
        )


def _split(texts: Any) -> Any:
    parts = pc.utf8_trim_whitespace(pc.list_flatten(pc.split_pattern(texts, SEPARATOR)))
    return parts.filter(pc.not_equal(parts, ""))


def _sorted_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """Sorts numbers by value and text by letters."""
    try:
        return tuple(sorted(classes, key=float))
    except ValueError:
        return tuple(sorted(classes))
