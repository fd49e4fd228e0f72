from xml.etree import ElementTree

from lazygnn.reports.markup import facts, folded, heading, number, paragraph, ratio, scrolled, sentences, table

HOSTILE = "<b>&\"'"
ESCAPED = "&lt;b&gt;&amp;&quot;&#x27;"


def test_text_is_escaped() -> None:
    for html in (
        heading(2, HOSTILE),
        paragraph(HOSTILE),
        sentences([HOSTILE]),
        facts({HOSTILE: HOSTILE}),
        scrolled("", HOSTILE),
        folded(HOSTILE, ""),
        table(HOSTILE, [HOSTILE], [["x"]]),
    ):
        assert ESCAPED in html
        assert HOSTILE not in html


def test_headers_of_a_table_say_what_they_head() -> None:
    root = ElementTree.fromstring(table("Errors", ["name", "count"], [["a", "1"], ["b", "2"]], numbers=(1,)))
    assert [(one.attrib["scope"], one.text) for one in root.iter("th")] == [
        ("col", "name"),
        ("col", "count"),
        ("row", "a"),
        ("row", "b"),
    ]
    assert [one.attrib["class"] for one in root.iter("td")] == ["number"] * 2
    assert root.findtext(".//caption") == "Errors"
    # a keyboard can scroll what has the focus
    assert (root.attrib["tabindex"], root.attrib["aria-label"]) == ("0", "Errors")


def test_numbers_are_legible() -> None:
    assert [number(value) for value in (None, 12345, 0.12345, 12345.6, 1e12, 999.94)] == [
        "-",
        "12,345",
        "0.1235",
        "12,346",
        "1e+12",
        "999.9",
    ]
    assert [ratio(value) for value in (None, 0.5, 0.12345)] == ["-", "0.500", "0.123"]


def test_a_soft_paragraph_has_a_class() -> None:
    assert paragraph("x", soft=True) == '<p class="soft">x</p>'
    assert paragraph("x") == "<p>x</p>"
