from typing import Any

import pytest

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.tables.options import as_arguments, read_table_options


def test_one_column_may_stand_for_several() -> None:
    options = read_table_options({"label": "y", "ignore": ["a", "b"]})
    assert (options.label, options.ignore) == (("y",), ("a", "b"))


@pytest.mark.parametrize("ratio", [(60, 20, 20), (0.5, 0.25, 0.25), (100, 0, 0)])
def test_shares_have_a_sum_of_one_or_a_hundred(ratio: tuple[float, ...]) -> None:
    assert read_table_options({"ratio": ratio}).ratio == ratio


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ratio": (60, 20, 10)}, r"give three shares with a sum of 1 or 100"),
        ({"ratio": (0, 50, 50)}, r"give three shares with a sum of 1 or 100, and some for training"),
        ({"ratio": (120, -10, -10)}, r"option `ratio.1` is -10"),
        ({"lable": "y"}, r"unknown option `lable`; did you mean `label`\?"),
        ({"task": "ranking"}, r"option `task` is 'ranking': input should be 'auto', or input should be"),
        ({"max_categories": 1}, r"option `max_categories` is 1"),
    ],
)
def test_a_wrong_option_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_table_options(values)


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("give `--label` once", "give `label` once"),
        ("name it with `--split-column`", "name it with `split_column`"),
        ("`--task single-label` takes one", "`task='single-label'` takes one"),
        ("drop such edges with `--drop-unknown`", "drop such edges with `drop_unknown=True`"),
        # not arguments
        ("with `--graph`, `lazygnn import` or --label", "with `--graph`, `lazygnn import` or --label"),
    ],
)
def test_flags_become_arguments(flags: str, arguments: str) -> None:
    assert as_arguments(flags) == arguments


def test_an_error_in_python_names_arguments() -> None:
    nodes = {"id": [1, 2], "x": [1.0, 2.0]}
    with pytest.raises(ConfigError, match=r"`categorical` and `numeric` both name the column `x`; remove one"):
        Graph.from_tables(nodes, {"source": [1], "target": [2]}, categorical="x", numeric="x")
