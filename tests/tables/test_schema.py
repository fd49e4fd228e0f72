import pytest

from lazygnn.errors import GraphError
from lazygnn.tables.schema import CategoryColumn, NumberColumn, Schema, Structural, Target, parse_schema

SCHEMA = Schema(
    id="id",
    columns=(
        NumberColumn(name="age", mean=40, scale=10, indicator=True),
        CategoryColumn(name="plan", values=("basic", "pro")),
    ),
    target=Target(columns=("label",), task="single-label", classes=("blue", "red")),
    source="from",
    destination="to",
    structural=Structural(signs=2),
)


def test_a_schema_survives_json() -> None:
    assert parse_schema(SCHEMA.model_dump_json(), "here") == SCHEMA


def test_every_feature_has_a_name() -> None:
    names = ["age", "age is missing", "plan=basic", "plan=pro", "log degree", "random sign 0", "random sign 1"]
    assert SCHEMA.feature_names() == names
    assert len(names) == SCHEMA.width


def test_the_width_must_be_that_of_the_graph() -> None:
    SCHEMA.check_width(7, "here")
    with pytest.raises(GraphError, match=r"here: the schema describes 7 features, but there are 8; import the tables"):
        SCHEMA.check_width(8, "here")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"here: `content` of the schema is"),
        (SCHEMA.model_dump_json().replace('"version":1', '"version":2'), r"here: `version` of the schema is '2'"),
        (SCHEMA.model_dump_json().replace('"scale":10.0', '"scale":0'), r"`columns.0.number.scale` of the schema is"),
        (SCHEMA.model_dump_json().replace('"source"', '"sauce"'), r"of the schema is .*; import the tables again"),
    ],
)
def test_a_corrupt_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_schema(text, "here")
