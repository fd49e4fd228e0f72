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


def test_markdown_table() -> None:
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
