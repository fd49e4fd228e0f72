from typing import Any

import numpy as np
import pytest

from lazygnn.errors import ConfigError, GraphError
from lazygnn.tables.options import read_table_options
from lazygnn.tables.schema import Target
from lazygnn.tables.targets import encode_target, fit_target
from tests.tables.helpers import frame

NAN = float("nan")


def fit(columns: dict[str, Any], **options: Any) -> tuple[Target, np.ndarray]:
    source, table = frame(**columns)
    target = fit_target(source, table, list(columns), read_table_options(options))
    return target, encode_target(source, table, target)


@pytest.mark.parametrize(
    ("columns", "task", "classes", "y"),
    [
        ({"y": ["red", "blue", "", "red"]}, "single-label", ("blue", "red"), [1, 0, -1, 1]),
        ({"y": ["10", "9", "NA", "10"]}, "single-label", ("9", "10"), [1, 0, -1, 1]),
        ({"y": [10, 9, None, 10]}, "single-label", ("9", "10"), [1, 0, -1, 1]),
        ({"y": [True, False, None, True]}, "single-label", ("false", "true"), [1, 0, -1, 1]),
        ({"y": ["0.5", "2", "", "1"]}, "regression", (), [[0.5], [2], [NAN], [1]]),
        (
            {"y": ["a;b", " b ", "", "c; a;"]},
            "multi-label",
            ("a", "b", "c"),
            [[1, 1, 0], [0, 1, 0], [-1] * 3, [1, 0, 1]],
        ),
        ({"p": ["1", "0", ""], "q": ["yes", "no", "no"]}, "multi-label", ("p", "q"), [[1, 1], [0, 0], [-1, -1]]),
        ({"p": ["1.0", "0.0", ""], "q": ["0", "1", "1"]}, "multi-label", ("p", "q"), [[1, 0], [0, 1], [-1, -1]]),
        ({"p": [0.5, 1.5, None], "q": [1, 2, 3]}, "regression", (), [[0.5, 1], [1.5, 2], [NAN, 3]]),
    ],
)
def test_the_task_follows_from_the_labels(columns: Any, task: str, classes: tuple[str, ...], y: Any) -> None:
    target, found = fit(columns)
    assert (target.task, target.classes, target.columns) == (task, classes, tuple(columns))
    np.testing.assert_array_equal(found, y)


@pytest.mark.parametrize("labels", [["0", "-1", "1", "-1"], [0, -1, 1, -1], ["0.0", "-1.0", "1.0", "-1.0"]])
def test_a_class_of_minus_one_beside_numbered_ones_is_a_warning(labels: Any, caplog: pytest.LogCaptureFixture) -> None:
    target, _ = fit({"y": labels})
    assert target.classes == ("-1", "0", "1")
    (record,) = caplog.records
    assert record.message == (
        "`nodes`, column `y`: -1 is a class of its own, with 2 nodes; if it stands for no label, leave these values "
        "empty"
    )


@pytest.mark.parametrize("labels", [["-1", "1"], ["-1", "-2", "0"], ["-1", "a", "b"], ["0", "1"], ["-1", "0.5", "2"]])
def test_minus_one_beside_other_classes_is_one_of_them(labels: Any, caplog: pytest.LogCaptureFixture) -> None:
    fit({"y": labels})
    assert not caplog.records


def test_a_class_in_another_spelling_is_the_same_class() -> None:
    """Pandas writes 1 as 1.0 where the column has missing values, and True where Arrow writes true."""
    target, found = fit({"y": ["1", "0", "1.0", "", "10"]})
    assert target.classes == ("0", "1", "10")
    assert found.tolist() == [1, 0, 1, -1, 2]
    for known, column in ((["0", "1"], ["1.0", "0.0", "", "1"]), (["0.0", "1.0"], [1, 0, None, 1])):
        first, _ = fit({"y": known})
        assert first.classes == ("0", "1")
        source, table = frame(y=column)
        assert encode_target(source, table, first).tolist() == [1, 0, -1, 1]
    earlier = Target(columns=("y",), task="single-label", classes=("0.0", "1.0"))
    assert encode_target(*frame(y=["1", "0.0"]), earlier).tolist() == [1, 0]
    truths, _ = fit({"y": [True, False]})
    assert encode_target(*frame(y=["True", "FALSE", "true"]), truths).tolist() == [1, 0, 1]
    # neither versions nor codes are numbers
    assert fit({"y": ["1.0", "1", "beta"]})[0].classes == ("1", "1.0", "beta")
    assert fit({"y": ["01", "1", "2"]})[0].classes == ("01", "1", "2")


def test_many_whole_numbers_are_a_regression() -> None:
    assert fit({"y": list(range(20))})[0].task == "single-label"
    assert fit({"y": list(range(21))})[0].task == "regression"
    assert fit({"y": list(range(21))}, task="single-label")[0].classes[20] == "20"
    assert fit({"y": [1, 2]}, task="regression")[0].task == "regression"
    assert fit({"y": ["a;b", "a"]}, task="single-label")[0].classes == ("a", "a;b")
    assert fit({"y": ["a", "b"]}, task="multi-label")[1].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"y": ["red", "red", ""]}, {}, r"`nodes`, column `y`: all labels are 'red'; give at least two classes"),
        ({"y": ["", None]}, {}, r"`nodes`, column `y`: every value is missing"),
        ({"y": ["2026-01-01", "2026-01-02"]}, {}, r"row 0, column `y`: '2026-01-01' is a date"),
        (
            {"y": ["a", "b", "c"]},
            {"max_categories": 2},
            r"row 0, column `y`: 'a' is one of 3 different labels, at",
        ),
        ({"y": ["1", "x"]}, {"task": "regression"}, r"row 1, column `y`: 'x' is not a number"),
        ({"y": ["x" * 300, "b"]}, {}, r"is too long for the name of a class"),
        ({"p": ["1", "2"], "q": [0, 1]}, {"task": "multi-label"}, r"row 1, column `p`: '2' is neither 0 nor 1"),
    ],
)
def test_wrong_labels_are_refused(columns: Any, options: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        fit(columns, **options)


def test_several_columns_are_flags_or_numbers() -> None:
    with pytest.raises(ConfigError, match=r"column `p` of `nodes` holds text; several label columns hold 0 and 1, or"):
        fit({"p": ["a", "b"], "q": ["1", "0"]})
    with pytest.raises(ConfigError, match=r"`--task single-label` takes one column of labels, not 2"):
        fit({"p": ["1", "0"], "q": ["1", "0"]}, task="single-label")


@pytest.mark.parametrize(("task", "label"), [("single-label", "green"), ("multi-label", "red;green")])
def test_a_class_of_another_table_must_be_known(task: Any, label: str) -> None:
    source, table = frame(y=["red", label])
    with pytest.raises(GraphError, match=rf"row 1, column `y`: '{label}' is not a class of the graph; correct it"):
        encode_target(source, table, Target(columns=("y",), task=task, classes=("blue", "red")))
