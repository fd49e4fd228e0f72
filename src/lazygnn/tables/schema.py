"""`Schema`: what `import` did to the columns of a table, stored with the graph, so that new rows are encoded alike."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lazygnn.errors import GraphError
from lazygnn.task import TaskKind
from lazygnn.untrusted.text import check_json


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NumberColumn(_Stored):
    """A column of numbers, which becomes `(value - mean) / scale`.

    Attributes:
        name: The column.
        mean: Mean of the known values, which replaces missing ones.
        scale: Their standard deviation, or 1 if they are all equal.
        indicator: Whether a second feature marks missing values.
    """

    kind: Literal["number"] = "number"
    name: str
    mean: float
    scale: float = Field(gt=0)
    indicator: bool = False

    @property
    def width(self) -> int:
        """Returns the number of features."""
        return 1 + self.indicator


class CategoryColumn(_Stored):
    """A column of categories, which becomes a 0 or 1 for every value; an unknown value becomes zeros.

    Attributes:
        name: The column.
        values: The values in the order of the features.
        indicator: Whether one more feature marks missing values.
    """

    kind: Literal["category"] = "category"
    name: str
    values: tuple[str, ...] = Field(min_length=1)
    indicator: bool = False

    @property
    def width(self) -> int:
        """Returns the number of features."""
        return len(self.values) + self.indicator


Column = Annotated[NumberColumn | CategoryColumn, Field(discriminator="kind")]


class Target(_Stored):
    """The labels.

    Attributes:
        columns: The columns they come from.
        task: One label, several labels or regression.
        classes: The names of the classes; empty for regression.
    """

    columns: tuple[str, ...] = Field(min_length=1)
    task: TaskKind
    classes: tuple[str, ...] = ()


class Structural(_Stored):
    """Features of a node's place in the graph: the logarithm of its degree, and propagated random signs.

    Attributes:
        signs: Number of random signs of a node, which follow from its id.
        hops: Steps of propagation.
        mean: Mean of the logarithms of the degrees.
        scale: Their standard deviation.
    """

    signs: int = Field(32, ge=1, le=512)
    hops: int = Field(3, ge=1)
    mean: float = 0.0
    scale: float = Field(1.0, gt=0)

    @property
    def width(self) -> int:
        """Returns the number of features."""
        return 1 + self.signs


class Schema(_Stored):
    """The columns of two tables, and how they were encoded.

    Attributes:
        version: Version of this format.
        id: Column of node ids.
        columns: Columns of features, in their order.
        target: The labels, if there are any.
        source: Column with the first node of an edge.
        destination: Column with the second node of an edge.
        weight: Column of edge weights.
        structural: Structural features, which follow those of the columns.
        ignored: Columns that were left out.
        split: How the splits were made, in words.
    """

    version: Literal[1] = 1
    id: str
    columns: tuple[Column, ...] = ()
    target: Target | None = None
    source: str
    destination: str
    weight: str | None = None
    structural: Structural | None = None
    ignored: tuple[str, ...] = ()
    split: str | None = None

    @property
    def width(self) -> int:
        """Returns the number of features."""
        return sum(column.width for column in self.columns) + (self.structural.width if self.structural else 0)

    def feature_names(self) -> list[str]:
        """Returns a name for every feature, such as `age`, `age is missing` and `plan=basic`."""
        names: list[str] = []
        for column in self.columns:
            values = getattr(column, "values", None)
            names += [column.name] if values is None else [f"{column.name}={value}" for value in values]
            names += [f"{column.name} is missing"] if column.indicator else []
        if self.structural is not None:
            names += ["log degree", *(f"random sign {number}" for number in range(self.structural.signs))]
        return names

    def check_width(self, in_channels: int, where: str) -> None:
        """Refuses a schema that does not describe the features of its graph."""
        if self.width != in_channels:
            raise GraphError(
                f"{where}: the schema describes {self.width} features, but there are {in_channels}; "
                "import the tables again"
            )


def parse_schema(text: str, where: str) -> Schema:
    """Reads a schema from JSON; `where` begins the message of an error."""
    try:
        check_json(text)
        return Schema.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(key) for key in first["loc"]) or "content"
        raise GraphError(
            f"{where}: `{field}` of the schema is {str(first['input'])[:80]!r}: {first['msg']}; import the tables again"
        ) from error
    except ValueError as error:
        raise GraphError(f"{where}: the schema cannot be read: {error}; import the tables again") from error
