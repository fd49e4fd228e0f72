from typing import Any

import pytest

from lazygnn.errors import ConfigError
from lazygnn.tables.options import read_table_options
from lazygnn.tables.reading import FrameSource
from lazygnn.tables.roles import edge_roles, node_roles


def table(*columns: str) -> FrameSource:
    return FrameSource({column: ["1"] for column in columns}, "nodes")


def test_columns_are_guessed_and_said() -> None:
    roles = node_roles(table("Node_ID", "age", "Class"), read_table_options({}))
    assert (roles.id, roles.label, roles.features, roles.ignored) == ("Node_ID", ("Class",), ("age",), ())
    assert roles.guessed == ("`--id Node_ID`", "`--label Class`")
    ends = edge_roles(table("src", "dst", "weight", "kind"), read_table_options({}))
    assert (ends.source, ends.target, ends.weight, ends.ignored) == ("src", "dst", "weight", ("kind",))
    assert ends.guessed == ("`--source src`", "`--target dst`", "`--weight weight`")


def test_given_columns_are_not_guessed() -> None:
    options = read_table_options({"id": "name", "label": ["p", "q"], "ignore": "y", "split_column": "part"})
    roles = node_roles(table("id", "name", "p", "q", "y", "part"), options)
    assert (roles.id, roles.label, roles.features, roles.ignored) == ("name", ("p", "q"), ("id",), ("y",))
    assert roles.guessed == ()


def test_features_leave_out_all_others() -> None:
    roles = node_roles(table("id", "a", "b", "c"), read_table_options({"features": ["c", "a"]}))
    assert (roles.features, roles.ignored) == (("c", "a"), ("b",))


def test_two_columns_of_edges_need_no_name() -> None:
    ends = edge_roles(table("buyer", "seller"), read_table_options({}))
    assert (ends.source, ends.target) == ("buyer", "seller")
    assert ends.guessed == ("`--source buyer` and `--target seller`",)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (("a", "b"), {}, r"which column of `nodes` has the ids of the nodes\? give it with `--id`; columns: a, b"),
        (("id", "node"), {}, r"has the columns `id` and `node`; choose one with `--id`"),
        (("id", "y", "label"), {}, r"`y` and `label`; choose one with `--label`, and `--ignore` the other"),
        (("id", "a"), {"label": "b"}, r"`--label` names `b`, but `nodes` has the columns: id, a; choose one of them"),
        (("id", "a"), {"label": "a", "ignore": "a"}, r"`--label` and `--ignore` both name the column `a`; remove one"),
        (("id", "a"), {"categorical": "a", "numeric": "a"}, r"`--categorical` and `--numeric` both name the column"),
        (("id", "y"), {"label": "y", "numeric": "y"}, r"`--numeric` names `y`, which is not a feature"),
    ],
)
def test_unclear_columns_of_nodes_are_refused(columns: tuple[str, ...], options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        node_roles(table(*columns), read_table_options(options))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (("a", "b", "c"), {}, r"name the two nodes of an edge\? give `--source`; columns: a, b, c"),
        (("from", "b", "c"), {}, r"give `--target`; columns: from, b, c"),
        (("a", "b"), {"source": "a", "target": "a"}, r"`--source` and `--target` both name the column `a`"),
        (("source", "src", "to"), {}, r"`source` and `src`; choose one with `--source`"),
    ],
)
def test_unclear_columns_of_edges_are_refused(columns: tuple[str, ...], options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        edge_roles(table(*columns), read_table_options(options))
