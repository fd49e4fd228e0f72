"""`TableOptions`: which columns of two tables become what."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from lazygnn.config import Options
from lazygnn.errors import ConfigError, GraphError
from lazygnn.task import TaskKind

Columns = tuple[str, ...]
_FLAG = re.compile(r"`--([a-z-]+)(?: ([^`]+))?`")


class TableOptions(Options):
    """What to make of a table of nodes and a table of edges; names of columns that are empty are guessed."""

    id: str | None = Field(None, description="column of node ids")
    label: Columns = Field((), description="column of labels; several columns for several targets")
    source: str | None = Field(None, description="column with the first node of an edge")
    target: str | None = Field(None, description="column with the second node of an edge")
    weight: str | None = Field(None, description="column of edge weights")
    features: Columns = Field((), description="columns of features; empty means all others")
    ignore: Columns = Field((), description="columns to leave out")
    categorical: Columns = Field((), description="columns whose values are categories, even if they look like numbers")
    numeric: Columns = Field((), description="columns whose values are numbers, even if they look like codes")
    task: Literal["auto"] | TaskKind = Field("auto", description="what the labels are")
    split: Literal["stratified", "random"] = Field("stratified", description="how the splits are drawn")
    ratio: tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]] = Field(
        (60, 20, 20), description="shares of training, validation and test nodes"
    )
    split_column: str | None = Field(None, description="column with train, val or test")
    split_time: str | None = Field(None, description="column of times: train on the oldest, test on the newest")
    seed: int = Field(0, ge=0, description="seed of the splits")
    structural: bool = Field(False, description="add features that describe the place of a node in the graph")
    drop_unknown: bool = Field(False, description="drop edges of nodes that are not in the table of nodes")
    max_categories: int = Field(100, ge=2, description="most values of a column of categories, or classes of a label")

    @field_validator("label", "features", "ignore", "categorical", "numeric", mode="before")
    @classmethod
    def _wrap(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("ratio")
    @classmethod
    def _check_ratio(cls, ratio: tuple[float, float, float]) -> tuple[float, float, float]:
        if ratio[0] == 0 or not any(abs(sum(ratio) - whole) < 1e-6 * whole for whole in (1, 100)):
            raise ValueError("give three shares with a sum of 1 or 100, and some for training, such as 60/20/20")
        return ratio


def read_table_options(values: Mapping[str, Any]) -> TableOptions:
    """Checks options by name; an unknown name is an error with the most similar one."""
    return TableOptions(**values)


def as_arguments(message: str) -> str:
    """Returns a message with flags of the command line replaced by the arguments of `Graph.from_tables`."""

    def argument(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        if name not in TableOptions.model_fields:
            return match[0]
        value = True if TableOptions.model_fields[name].annotation is bool else match[2]
        return f"`{name}`" if value is None else f"`{name}={value!r}`"

    return _FLAG.sub(argument, message)


@contextmanager
def naming_arguments() -> Iterator[None]:
    """Makes errors of the block name arguments where they name flags of the command line."""
    try:
        yield
    except (ConfigError, GraphError) as error:
        raise type(error)(as_arguments(str(error))) from error
