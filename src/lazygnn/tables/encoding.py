"""Columns as features: numbers are scaled, categories become zeros and ones, missing values get an indicator.

Means, deviations and categories come from all rows, since a model sees the features of all nodes, but not their labels.

`N` rows, `D` features.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lazygnn.errors import GraphError
from lazygnn.tables.columns import Values, find_kind, read_values
from lazygnn.tables.options import TableOptions
from lazygnn.tables.reading import TEXT, Source
from lazygnn.tables.schema import CategoryColumn, Column, NumberColumn

_BOOLEANS = {"true", "false"}


def fit_columns(source: Source, table: pa.Table, names: Sequence[str], options: TableOptions) -> tuple[Column, ...]:
    """Decides how every column is encoded."""
    return tuple(_fit(read_values(source, table, name), options) for name in names)


def encode_columns(
    source: Source, table: pa.Table, columns: Sequence[Column]
) -> tuple[np.ndarray, dict[str, int], dict[str, int]]:
    """Encodes the columns of a table as they were fitted.

    Returns:
        The features, [N, D] float32; the number of missing values of every column that has some; and the number of
        values that are in no category.
    """
    x = np.zeros((len(table), sum(column.width for column in columns)), dtype=np.float32)
    missing: dict[str, int] = {}
    unknown: dict[str, int] = {}
    start = 0
    for column in columns:
        values = read_values(source, table, column.name, or_empty=True)
        part = x[:, start : start + column.width]
        start += column.width
        if isinstance(column, NumberColumn):
            numbers = values.numbers()
            absent = np.isnan(numbers)
            # what overflows is refused below
            with np.errstate(over="ignore"):
                part[:, 0] = np.where(absent, 0, (numbers - column.mean) / column.scale)
        else:
            texts = pc.utf8_lower(values.texts()) if set(column.values) <= _BOOLEANS else values.texts()
            index = pc.index_in(texts, value_set=pa.array(column.values, TEXT))
            position = pc.fill_null(index, -1).to_numpy()
            absent = pc.is_null(values.array).to_numpy()
            rows = (position >= 0).nonzero()[0]
            part[rows, position[rows]] = 1
            if (count := int(((position < 0) & ~absent).sum())) > 0:
                unknown[column.name] = count
        if column.indicator:
            part[:, -1] = absent
        if absent.any():
            missing[column.name] = int(absent.sum())
    if not np.isfinite(x).all():
        row, feature = (int(index[0]) for index in (~np.isfinite(x)).nonzero())
        raise GraphError(f"{source.place(row)}: feature {feature} is too large for float32; correct the row")
    return x, missing, unknown


def _fit(values: Values, options: TableOptions) -> Column:
    kind = find_kind(
        values,
        categorical=values.name in options.categorical,
        numeric=values.name in options.numeric,
        max_categories=options.max_categories,
    )
    indicator = values.array.null_count > 0
    if kind == "category":
        categories = pc.unique(values.texts().drop_null()).to_pylist()
        # `True` of one table is `true` of another
        folded = {category.lower() for category in categories}
        categories = sorted(folded if folded <= _BOOLEANS else categories)
        return CategoryColumn(name=values.name, values=tuple(categories), indicator=indicator)
    numbers = values.numbers()
    known = numbers[~np.isnan(numbers)]
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = float(known.mean()), float(known.std())
    if not np.isfinite((mean, scale)).all():
        row = int(np.nanargmax(np.abs(numbers)))
        raise values.error(row, "is too large for a feature; correct it, or take its logarithm")
    # equal numbers can deviate from their mean by rounding
    return NumberColumn(
        name=values.name, mean=mean, scale=scale if scale > 1e-12 * abs(mean) else 1.0, indicator=indicator
    )
