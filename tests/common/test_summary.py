"""Summaries of tables."""

from pathlib import Path

import pytest

from common.summary import Column, Row, Sources, Summary, load_summary, markdown_table, score


def test_a_score_is_a_mean_with_the_unbiased_deviation_in_percent() -> None:
    found = score([0.8, 0.82], [0])
    assert found == {
        "mean": pytest.approx(81),
        "deviation": pytest.approx(2**0.5),
        "seeds": 2,
        "sources": [0],
    }
    assert score([0.8], [])["deviation"] == 0


def test_sources_are_numbered_once() -> None:
    sources = Sources()
    first, second = {"commit": "a", "date": "d", "val": 0.5}, {"commit": "b", "date": "d"}
    assert sources.of([first, first]) == [0]
    assert sources.of([second, first]) == [0, 1]
    assert sources.found == [{"commit": "a", "date": "d"}, {"commit": "b", "date": "d"}]


def test_a_summary_survives_its_file_with_one_line_per_row(tmp_path: Path) -> None:
    rows = [Row(label="a", cells=[score([0.5, 0.25], [0]), None], bold=True), Row(label="b", cells=[None, {"n": 3}])]
    table = Summary(
        origin="a command",
        label="case",
        columns=[Column(title="score"), Column(title="n", format="{n}")],
        rows=rows,
        sources=[{"commit": "a"}],
    )
    path = table.save("some", tmp_path)
    assert load_summary("some", tmp_path) == table
    assert sum('"label": "' in line and '"cells"' in line for line in path.read_text().splitlines()) == 2
    assert table.markdown().splitlines()[2:] == ["| **a** | 37.50 ± 17.68 |  |", "| b |  | 3 |"]


def _table(origin: str, columns: list[str], rows: dict[str, list[float | None]], commit: str) -> Summary:
    return Summary(
        origin=origin,
        label="system",
        columns=[Column(title=title) for title in columns],
        rows=[
            Row(label=label, cells=[None if value is None else score([value], [0]) for value in values])
            for label, values in rows.items()
        ],
        sources=[{"commit": commit}],
    )


def test_an_older_table_fills_what_a_newer_one_lacks() -> None:
    older = _table("first", ["a", "b"], {"x": [0.1, 0.2], "y": [0.3, None], "old": [0.4, 0.4]}, "one")
    newer = _table("second", ["b", "c"], {"y": [0.5, 0.6], "x": [None, 0.7], "z": [0.8, 0.9]}, "two")
    found = newer.filled(older, ["z", "x", "y"])
    assert [column.title for column in found.columns] == ["a", "b", "c"]
    means = {row.label: [cell and cell["mean"] for cell in row.cells] for row in found.rows}
    assert means == {
        "z": [None, pytest.approx(80), pytest.approx(90)],
        "x": [pytest.approx(10), pytest.approx(20), pytest.approx(70)],
        "y": [pytest.approx(30), pytest.approx(50), pytest.approx(60)],
        "old": [pytest.approx(40), pytest.approx(40), None],
    }
    commits = {
        row.label: [cell and found.sources[cell["sources"][0]]["commit"] for cell in row.cells] for row in found.rows
    }
    assert commits["x"] == ["one", "one", "two"]
    assert commits["y"] == ["one", "two", "two"]
    assert found.origin == "first; second"
    assert found.filled(older).origin == "first; second"


def test_a_table_that_replaces_all_has_no_source_of_the_older_one() -> None:
    older = _table("first", ["a"], {"x": [0.1]}, "one")
    found = _table("first", ["a"], {"x": [0.2]}, "two").filled(older)
    assert found.sources == [{"commit": "two"}]
    assert found.origin == "first"


def test_a_table_of_something_else_is_not_mixed_in() -> None:
    newer = _table("second", ["a"], {"x": [0.2]}, "two")
    older = _table("first", ["a"], {"y": [0.1]}, "one").model_copy(update={"label": "case"})
    assert newer.filled(older) == newer


def test_markdown_table() -> None:
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_a_single_seed_is_shown_without_a_deviation() -> None:
    rows = [Row(label="a", cells=[score([0.5], []), score([0.5, 0.5], []), {"mean": 1.0, "seeds": 1}])]
    columns = [Column(title="one"), Column(title="two"), Column(title="plain", format="{mean:.1f}")]
    table = Summary(origin="a command", label="case", columns=columns, rows=rows, sources=[])
    assert table.markdown().splitlines()[-1] == "| a | 50.00 | 50.00 ± 0.00 | 1.0 |"
