"""Paths as arguments of the commands: text or `Path`."""

from collections.abc import Sequence
from pathlib import Path

from lazygnn.errors import ConfigError, wrong_type


def as_path(value: Path | str, name: str) -> Path:
    """Returns an argument as a path; refuses other types.

    Args:
        value: The argument.
        name: What an error calls it.
    """
    if not isinstance(value, str | Path):
        raise ConfigError(wrong_type(name, value, "give a path"))
    return Path(value)


def as_optional_path(value: Path | str | None, name: str) -> Path | None:
    """Returns an argument as a path, and `None` as it is."""
    return None if value is None else as_path(value, name)


def as_paths(values: Sequence[Path | str] | Path | str, name: str) -> list[Path]:
    """Returns one or several paths as a list."""
    if isinstance(values, str | Path):
        return [Path(values)]
    if not isinstance(values, Sequence):
        raise ConfigError(wrong_type(name, values, "give a list of paths"))
    return [as_path(value, name) for value in values]
