import re
from typing import Any

import pytest

from lazygnn.reports import Entry, sections


def many_classes(number: int) -> dict[str, Any]:
    classes = [
        {"name": f"class {index}", "precision": 0.5, "recall": 0.5, "f1": 0.5, "support": index, "predicted": index}
        for index in range(number)
    ]
    return {"task": "single-label", "classes": classes, "confusion": [[1] * number for _ in range(number)]}


def test_classes_are_sorted_by_frequency_and_the_rest_is_folded() -> None:
    html = sections.classes(many_classes(35))
    names = [int(name) for name in re.findall(r"class (\d+)</th>", html)]
    assert names == list(range(34, -1, -1))
    assert "<summary>5 more</summary>" in html
    assert html.index("class 4<") > html.index("<details>") > html.index("class 5<")
    assert "<details>" not in sections.classes(many_classes(30))


def test_a_large_confusion_matrix_shows_the_frequent_classes() -> None:
    html = sections.confusion(many_classes(25))
    assert html.count("<td") == 20 * 20
    assert "5 less frequent classes are left out here." in html
    assert "left out" not in sections.confusion(many_classes(20))


def test_a_cell_is_darker_the_larger_its_share_of_the_row() -> None:
    report = many_classes(2) | {"confusion": [[9, 1], [0, 0]]}
    html = sections.confusion(report)
    # the second class is more frequent
    assert re.findall(r'--share:([0-9.]+)"[^>]*>(\d)', html) == [
        ("0.000", "0"),
        ("0.000", "0"),
        ("0.042", "1"),
        ("0.378", "9"),
    ]


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [
        ("multi-label", ["A confusion matrix is left out", "Agreement with neighbors is left out"]),
        (
            "regression",
            ["A confusion matrix is left out", "Agreement with neighbors is left out", "Calibration is left out"],
        ),
        ("single-label", []),
    ],
)
def test_what_does_not_apply_is_left_out_with_a_sentence(
    entries: dict[str, Entry], kind: str, left_out: list[str]
) -> None:
    report = entries[kind].report
    html = sections.confusion(report) + sections.calibration(report) + sections.errs(report, 3)
    assert [text for text in left_out if text not in html] == []
    assert html.count("left out") == len(left_out)


def test_curves_show_every_split_of_one_run_and_validation_of_several(entries: dict[str, Entry]) -> None:
    log = entries["single-label"].log
    html = sections.curves({"first": log}, "accuracy")
    assert re.findall(r"<figcaption>([^<]+)", html) == ["Training loss", "Accuracy over epochs", "Accuracy over time"]
    assert html.count("<polyline") == 1 + 3 + 3
    html = sections.curves({"first": log, "second": log}, "accuracy")
    assert html.count("<polyline") == 2 + 2 + 2
    assert "Accuracy on validation nodes over time" in html
    assert (
        sections.curves({"first": []}, "accuracy")
        == '<p class="soft">The run has no epochs, so there are no curves.</p>'
    )


def test_a_run_without_mistakes_says_so(entries: dict[str, Entry]) -> None:
    report = {**entries["single-label"].report, "mistakes": []}
    assert sections.mistakes(report) == "<p>There are no mistakes on these nodes.</p>"
    html = sections.mistakes(entries["single-label"].report)
    assert html.count('<th scope="row">&lt;node ') == 20
    assert "<node" not in html
