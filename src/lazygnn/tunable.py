"""The values that `tune` tries for an option, stated beside it: `Annotated[float, Range(1e-4, 0.1, log=True)]`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, which belong to the range.

    Attributes:
        low: The smallest number.
        high: The largest number.
        log: Whether factors count instead of differences.
        step: The distance of two numbers; whole numbers have a step of 1 without it.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None


@dataclass(frozen=True)
class Choices:
    """A few values; without any, all that the type of the option has."""

    values: tuple[bool | int | float | str | None, ...] = ()
