"""What the tests of the reproductions share."""

from collections.abc import Mapping

from common.summary import Column, Row, Summary
from experiments.paper.verdict import Verdict


def scores(columns: Mapping[str, Mapping[str, float | str]]) -> Summary:
    """Returns a table of scores, given by column and row; a text is an empty cell."""
    labels = dict.fromkeys(label for rows in columns.values() for label in rows)
    rows = [
        Row(
            label=label,
            cells=[
                {"mean": value, "deviation": 0.0, "seeds": 1} if isinstance(value := found.get(label), float) else None
                for found in columns.values()
            ],
        )
        for label in labels
    ]
    return Summary(origin="", label="system", columns=[Column(title=title) for title in columns], rows=rows)


def published(table: Mapping[str, Mapping[str, float | str]]) -> Summary:
    """Returns a table of published numbers as if they were ours."""
    columns = dict.fromkeys(column for row in table.values() for column in row)
    return scores(
        {column: {row: found[column] for row, found in table.items() if column in found} for column in columns}
    )


def outcomes(verdicts: list[Verdict]) -> list[str]:
    """Returns what became of the claims."""
    return [verdict.outcome for verdict in verdicts]
