"""Tables of the docs agree with their summaries."""

from pathlib import Path

from common.summary import TABLES, Column, Row, Summary, load_summary
from common.tables import ROOT, filled, outdated, pages, table_names


def test_tables_of_the_docs_agree_with_their_summaries() -> None:
    assert not outdated(), "run `python -m experiments tables --write`"


def test_every_summary_is_shown_and_every_table_has_a_summary() -> None:
    shown = {name for page in pages() for name in table_names(page.read_text())}
    assert shown == {path.stem for path in TABLES.glob("*.json")}


def test_every_cell_refers_to_known_sources() -> None:
    for path in TABLES.glob("*.json"):
        summary = load_summary(path.stem)
        used = {number for row in summary.rows for cell in row.cells if cell for number in cell.get("sources", [])}
        assert used <= set(range(len(summary.sources))), path.name


def test_a_changed_number_is_noticed(tmp_path: Path) -> None:
    table = Summary(
        origin="", label="method", columns=[Column(title="a", format="{value:.1f}")], rows=[_row(1.25), _row(None)]
    )
    table.save("some", tmp_path)
    page = "text\n<!-- table: some -->\nold\n<!-- end -->\nmore\n"
    first = filled(page, tmp_path)
    rendered = "| method | a |\n| --- | --- |\n| mlp | 1.2 |\n| mlp | - |"
    assert first == f"text\n<!-- table: some -->\n{rendered}\n<!-- end -->\nmore\n"
    assert filled(first, tmp_path) == first
    table.model_copy(update={"rows": [_row(1.5)]}).save("some", tmp_path)
    assert filled(first, tmp_path) != first


def test_a_page_may_show_the_means_of_some_rows_side_by_side(tmp_path: Path) -> None:
    rows = [
        Row(label="a", cells=[{"mean": 10.26, "deviation": 1.0}, None]),
        Row(label="b", cells=[{"mean": 20.0, "deviation": 1.0}, {"mean": 8.0, "deviation": 1.0}]),
        Row(label="c-d", cells=[{"mean": 9.96, "deviation": 0.5}, {"mean": 7.0, "deviation": 0.5}], bold=True),
    ]
    Summary(origin="", label="method", columns=[Column(title="x"), Column(title="y")], rows=rows).save("some", tmp_path)
    page = filled("<!-- table: some, graph: c-d a -->\n<!-- end -->\n", tmp_path)
    table = "| graph | c-d | a |\n| --- | --- | --- |\n| x | 10.0 | **10.3** |\n| y | **7.0** |  |"
    assert page == f"<!-- table: some, graph: c-d a -->\n{table}\n<!-- end -->\n"
    assert filled(page, tmp_path) == page
    assert table_names(page) == ["some"]


def test_benchmarks_and_experiments_do_not_import_each_other() -> None:
    for folder, other in (("benchmarks", "experiments"), ("experiments", "benchmarks"), ("common", "experiments")):
        for file in (ROOT / folder).glob("*.py"):
            assert f"from {other}" not in file.read_text(), file.name
            assert f"import {other}" not in file.read_text(), file.name


def _row(value: float | None) -> Row:
    return Row(label="mlp", cells=[{"value": value}])
