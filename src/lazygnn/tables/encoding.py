"""Columns as features: numbers are scaled, categories become zeros and ones, missing values get an indicator.

Means, deviations and categories come from all rows, since a model sees the features of all nodes, but not their labels.

A table is read twice, in batches, so that neither its text nor its numbers are in memory as a whole.

`N` rows, `D` features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lazygnn.errors import GraphError
from lazygnn.tables.columns import BOOLEANS, Values, positions, read_values
from lazygnn.tables.options import TableOptions
from lazygnn.tables.reading import Source, Tell, ignore_progress
from lazygnn.tables.schema import CategoryColumn, Column, NumberColumn
from lazygnn.tables.summary import Summary


@dataclass(frozen=True, eq=False)
class Features:
    """Encoded columns.

    Attributes:
        x: The features, [N, D] float32.
        missing: The number of missing values of every column that has some.
        unknown: The number of values that are in no category, of every column that has some.
    """

    x: np.ndarray
    missing: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)


def read_nodes(
    source: Source, kept: Sequence[str], summarized: Sequence[Summary] = (), tell: Tell = ignore_progress
) -> pa.Table:
    """Reads a table once: some columns into memory, and others for their summaries alone.

    Args:
        source: The table; one without rows is refused.
        kept: Columns to return.
        summarized: Summaries of other columns, which take all rows.
        tell: Takes the progress.
    """
    batches, rows = [], 0
    for batch in source.batches([*kept, *(one.name for one in summarized)], tell):
        table = pa.Table.from_batches([batch])
        for summary in summarized:
            summary.add(read_values(source, table, summary.name, start=rows, or_empty=True))
        batches.append(batch.select(list(kept)))
        rows += len(batch)
    if rows == 0:
        raise GraphError(f"{source.name} has no rows; give at least one")
    return pa.Table.from_batches(batches)


def summaries(source: Source, names: Sequence[str], options: TableOptions) -> list[Summary]:
    """Returns an empty summary for every column of features."""
    return [
        Summary(
            source,
            name,
            categorical=name in options.categorical,
            numeric=name in options.numeric,
            max_categories=options.max_categories,
        )
        for name in names
    ]


def fit_columns(summarized: Sequence[Summary]) -> tuple[Column, ...]:
    """Decides how every column is encoded."""
    return tuple(_fit(summary) for summary in summarized)


def encode_columns(source: Source, columns: Sequence[Column], num_rows: int, tell: Tell = ignore_progress) -> Features:
    """Encodes the columns of a table as they were fitted.

    Args:
        source: The table.
        columns: How its columns are encoded.
        num_rows: Its number of rows.
        tell: Takes the progress.
    """
    found = Features(np.zeros((num_rows, sum(column.width for column in columns)), dtype=np.float32))
    if not columns:
        return found
    rows = 0
    for batch in source.batches([column.name for column in columns], tell):
        table, start = pa.Table.from_batches([batch]), rows
        rows += len(batch)
        if rows > num_rows:
            break
        _encode(
            found,
            found.x[start:rows],
            [read_values(source, table, column.name, start=start, or_empty=True) for column in columns],
            columns,
        )
    if rows != num_rows:
        raise GraphError(f"{source.name} has changed while it was read; import it again")
    return found


def _encode(found: Features, x: np.ndarray, batch: Sequence[Values], columns: Sequence[Column]) -> None:
    """Encodes some rows into `x`, and counts what is missing or unknown in them."""
    first = 0
    for values, column in zip(batch, columns, strict=True):
        part = x[:, first : first + column.width]
        first += column.width
        if isinstance(column, NumberColumn):
            numbers = values.numbers()
            absent = np.isnan(numbers)
            # what overflows is refused below
            with np.errstate(over="ignore"):
                part[:, 0] = np.where(absent, 0, (numbers - column.mean) / column.scale)
        else:
            position = positions(values.texts(), column.values)
            absent = pc.is_null(values.array).to_numpy()
            rows = (position >= 0).nonzero()[0]
            part[rows, position[rows]] = 1
            if (count := int(((position < 0) & ~absent).sum())) > 0:
                found.unknown[column.name] = found.unknown.get(column.name, 0) + count
        if column.indicator:
            part[:, -1] = absent
        if absent.any():
            found.missing[column.name] = found.missing.get(column.name, 0) + int(absent.sum())
    if not np.isfinite(x).all():
        row, feature = (int(index[0]) for index in (~np.isfinite(x)).nonzero())
        place = batch[0].source.place(batch[0].start + row)
        raise GraphError(f"{place}: feature {feature} is too large for float32; correct the row")


def _fit(summary: Summary) -> Column:
    indicator = summary.num_missing > 0
    if summary.kind() == "category":
        # `True` of one table is `true` of another
        folded = {category.lower() for category in summary.texts}
        categories = sorted(folded if folded <= set(BOOLEANS) else summary.texts)
        return CategoryColumn(name=summary.name, values=tuple(categories), indicator=indicator)
    mean, scale = summary.moments()
    # equal numbers can deviate from their mean by rounding
    return NumberColumn(
        name=summary.name, mean=mean, scale=scale if scale > 1e-12 * abs(mean) else 1.0, indicator=indicator
    )
