"""Refuses a model that does not fit into memory before it is allocated, and says how much it would take."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from lazygnn.config import Options
from lazygnn.errors import ConfigError
from lazygnn.untrusted.budget import free_memory, in_words

_FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)
_MOST_TENSORS = 100_000
# options at or above this are named in the error, unless they are defaults
_LARGE = 1024


@contextmanager
def within_memory(options: Options) -> Iterator[None]:
    """Makes a `ConfigError` of any tensor in the block for which there is no memory.

    Args:
        options: The large ones among them are named in the error.
    """
    try:
        with _Counting(options):
            yield
    except (RuntimeError, MemoryError, OverflowError) as error:
        message = str(error)
        if not isinstance(error, RuntimeError) or any(word in message for word in ("allocate", "overflow")):
            raise ConfigError(f"{_model_with(options)} does not fit into memory: {message[:200]}") from error
        raise


class _Counting(TorchFunctionMode):
    """Adds up the tensors that are made in host memory."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._options, self._free = options, free_memory()
        self._bytes = self._tensors = 0

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            self._add(_num_bytes(args, kwargs))
        return func(*args, **kwargs)

    def _add(self, num_bytes: int) -> None:
        self._bytes += num_bytes
        self._tensors += 1
        if self._bytes > self._free:
            raise ConfigError(
                f"{_model_with(self._options)} takes at least {in_words(self._bytes)} of memory, but "
                f"{in_words(self._free)} are free; choose smaller values"
            )
        if self._tensors > _MOST_TENSORS:
            raise ConfigError(
                f"{_model_with(self._options)} has more than {_MOST_TENSORS} tensors; choose fewer layers"
            )


def _num_bytes(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    shape = kwargs.get("size", args[0] if args and isinstance(args[0], Sequence) else args)
    width = (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
    return math.prod(size for size in shape if isinstance(size, int)) * width


def _model_with(options: Options) -> str:
    defaults = {name: field.default for name, field in type(options).model_fields.items()}
    large = [
        f"`{name}={value}`"
        for name, value in options
        if type(value) is int and value >= _LARGE and value != defaults[name]
    ]
    return f"a model with {' and '.join(large)}" if large else "the model"
