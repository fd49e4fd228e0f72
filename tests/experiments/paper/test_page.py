"""The page of the reproduction is made of the summaries."""

from pathlib import Path

import pytest

from common.summary import Summary
from common.tables import filled
from experiments.paper.commands import EXPERIMENTS
from experiments.paper.page import anchor, outdated, page
from tests.experiments.paper.helpers import scores


def summary(clusters: float) -> Summary:
    table = scores({"arxiv": {"LazyGNN, 50 clusters": 71.0, "LazyGNN, 200 clusters": clusters}})
    source = {"commit": "abc", "machine": "a laptop", "torch": "2"}
    return table.model_copy(update={"origin": "the command", "sources": [source]})


def test_the_page_of_the_docs_is_current() -> None:
    assert outdated() == {}, "run `python -m experiments tables --write`"


def test_a_page_has_the_table_the_verdicts_and_the_picture_of_what_was_run(tmp_path: Path) -> None:
    summary(70.5).save("table5", tmp_path)
    found = page(tmp_path)
    assert found.count("Not run yet.") == len(EXPERIMENTS) - 1
    assert "| LazyGNN, 50 clusters | 71.00 |" in found
    assert "- **reproduced**: LazyGNN loses at most 2 points" in found
    assert "(images/table5.png)" in found
    assert "(images/table4.png)" not in found
    assert "Made by `the command` at commit abc, on a laptop, torch 2." in found
    # tables are marked as on every page
    assert filled(found, tmp_path) == found


def test_a_changed_number_changes_the_page_and_its_verdicts(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    summary(70.5).save("table5", tmp_path)
    file.write_text(page(tmp_path))
    assert outdated(file, tmp_path) == {}
    summary(60.5).save("table5", tmp_path)
    (content,) = outdated(file, tmp_path).values()
    assert "- **not reproduced**: LazyGNN loses at most 2 points" in content
    assert outdated(tmp_path / "missing.md", tmp_path)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_table_has_a_section_that_the_overview_can_link_to(name: str) -> None:
    title = EXPERIMENTS[name].title
    assert f"## {title}" in page()
    assert set(anchor(title)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
