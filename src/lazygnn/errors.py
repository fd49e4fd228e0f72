"""The errors that users see; the command line catches these and no others."""

from numbers import Integral, Real


class GraphError(ValueError):
    """A graph, or a file of one, cannot be used."""


class ConfigError(ValueError):
    """An option has an unknown name or an impossible value."""


class DivergenceError(ConfigError, FloatingPointError):
    """The loss, the weights or the outputs of a training are not finite, or its loss has exploded."""


class LockedError(ConfigError):
    """A folder is in use by another process."""


class CheckpointError(RuntimeError):
    """A run folder or checkpoint is missing, corrupt or incompatible."""


class RankError(RuntimeError):
    """A process of a distributed training has failed, or another one does not answer.

    Attributes:
        shown: Whether this process tells the user, so that an error of several processes is told once.
    """

    def __init__(self, message: str, *, shown: bool = True) -> None:
        super().__init__(message)
        self.shown = shown


def reason(error: OSError) -> str:
    """Returns what the operating system says of an error, without the file."""
    return error.strerror or str(error)


def wrong_type(name: str, value: object, remedy: str) -> str:
    """Returns the message for an argument of a wrong type: the value, its type and the remedy."""
    kind, text = type(value).__name__, repr(value)
    if hasattr(value, "shape"):
        found = f"of type {kind} and shape {tuple(value.shape)}"
    else:
        found = f"of type {kind}" if len(text) > 40 else f"{text}, of type {kind}"
    return f"`{name}` is {found}; {remedy}"


def check_number(name: str, value: object, *, whole: bool = False) -> None:
    """Refuses a value that is not a number, or not a whole number; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise ConfigError(wrong_type(name, value, f"give a {'whole ' if whole else ''}number"))
