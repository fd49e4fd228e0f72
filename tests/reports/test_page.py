from html.parser import HTMLParser
from itertools import pairwise

import pytest

from lazygnn.errors import ConfigError
from lazygnn.reports import Entry, make_page

VOID = {"meta", "line", "rect", "polyline", "circle", "br"}


class Outline(HTMLParser):
    """Reads a page: its elements, that each is closed in order, headings, text, and what would be requested."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[int, str]] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2", "h3", "h4", "h5"):
            self.headings.append((int(self.open[-1][1]), data))
        if self.open and self.open[-1] != "style":
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(params=["single-label", "multi-label", "regression", "all"])
def page(request: pytest.FixtureRequest, entries: dict[str, Entry]) -> str:
    return make_page(list(entries.values()) if request.param == "all" else [entries[request.param]])


def test_a_page_needs_nothing_else(page: str) -> None:
    outline = Outline(page)
    for tag, attrs in outline.tags:
        assert tag not in ("script", "link", "img", "iframe", "object", "form")
        assert not attrs.keys() & {"src", "href", "srcset", "onload", "onclick"}
    assert "http:" not in page
    assert "https:" not in page
    policies = [attrs["content"] for attrs in outline.named("meta") if "http-equiv" in attrs]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_a_page_is_accessible_as_far_as_its_elements_tell(page: str) -> None:
    outline = Outline(page)
    assert outline.named("html") == [{"lang": "en"}]
    assert page.count("<title>") == 1
    assert len(outline.named("main")) == 1
    levels = [level for level, _ in outline.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(attrs.get("scope") in ("row", "col") for attrs in outline.named("th"))
    assert len(outline.named("caption")) == len(outline.named("table"))
    drawings = outline.named("svg")
    assert len(drawings) == len(outline.named("figure")) >= 4
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in drawings)


def test_names_are_text_and_not_markup(page: str) -> None:
    assert "<script" not in page
    assert "<script>alert(1)</script>" in Outline(page).text
    assert "/home/me" not in page


def test_the_sections_of_a_page(entries: dict[str, Entry]) -> None:
    found = [text for level, text in Outline(make_page([entries["single-label"]])).headings if level == 2]
    assert found == [
        "In words",
        "Training",
        "Classes",
        "Confusion",
        "Calibration",
        "Where it errs",
        "Most confident mistakes",
        "Time and memory",
        "Settings",
    ]
    text = Outline(make_page([entries["single-label"]])).text
    for wanted in ("11 of 11", "512.5", "seconds per epoch, median", "decay_layers", "65.0 % of 100 test nodes"):
        assert wanted in text
    found = [text for level, text in Outline(make_page([entries["regression"]])).headings if level == 2]
    assert found[2:5] == ["Outputs", "Confusion", "Predictions and targets"]


def test_several_runs_are_compared_first(entries: dict[str, Entry]) -> None:
    one = entries["single-label"]
    outline = Outline(make_page([one, one, entries["regression"]]))
    top = [text for level, text in outline.headings if level < 3]
    assert top == ["3 runs", "All runs", one.name, one.name, entries["regression"].name]
    # runs of the same name differ in the legend
    assert f"{one.name} (1)" in outline.text
    assert f"{one.name} (2)" in outline.text


def test_a_page_needs_a_run() -> None:
    with pytest.raises(ConfigError, match="a page needs at least one run; give the folder of a run"):
        make_page([])
