"""The errors users meet; the command line catches these and no others."""

from numbers import Integral, Real


class GraphError(ValueError):
    """A graph, or a file that should hold one, cannot be used as it is."""


class ConfigError(ValueError):
    """An option has an unknown name or an impossible value."""


class CheckpointError(RuntimeError):
    """A run folder or checkpoint is missing, broken, or of another kind."""


def wrong_type(name: str, value: object, remedy: str) -> str:
    """The message for an argument of a type that cannot be right: what it is, and what to give instead."""
    kind, text = type(value).__name__, repr(value)
    if hasattr(value, "shape"):
        found = f"of type {kind} and shape {tuple(value.shape)}"
    else:
        found = f"of type {kind}" if len(text) > 40 else f"{text}, of type {kind}"
    return f"`{name}` is {found}; {remedy}"


def check_number(name: str, value: object, *, whole: bool = False) -> None:
    """Refuses what is no number, or no whole one; truth values are none."""
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise ConfigError(wrong_type(name, value, f"give a {'whole ' if whole else ''}number"))
