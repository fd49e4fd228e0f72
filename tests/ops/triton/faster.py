"""Makes Triton's interpreter faster, with the same results and the same checks.

Nearly all of its time is not arithmetic: it replaces the functions of the language again in every call of a function,
builds a table of types for every value, checks every shape anew, and checks sums of integers with the operations of the
language.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

# the version whose internal functions are replaced
VERSION = "3.9."


def speed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does once what the interpreter repeats; another version of Triton than the locked one stays as it is."""
    import triton
    import triton.language as tl
    from triton.runtime import interpreter

    if not triton.__version__.startswith(VERSION):
        return

    replace, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    replaced: set[int] = set()

    def replace_once(function: Callable[..., Any]) -> Any:
        # Functions with the same globals use the language by the same names.
        module = id(function.__globals__)
        if module in replaced:
            return None
        replaced.add(module)
        return replace(function)

    def launch_anew(self: Any, *args: Any, **options: Any) -> None:
        # The end of a launch restores the language, so that the next one replaces it again.
        replaced.clear()
        launch(self, *args, **options)

    def check_overflow(self: Any, left: Any, right: Any, operation: Callable[..., Any]) -> None:
        kind = left.type.scalar
        if kind.int_bitwidth >= 64 or not self.builder.options.sanitize_overflow:
            return
        wide = [side.handle.data.astype(np.int64) for side in (left, right)]
        result = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[operation.__name__](*wide)
        fits = (kind.get_int_min_value() <= result) & (result <= kind.get_int_max_value())
        assert fits.all(), f"{kind} overflow in {operation.__name__}"

    find_type, find_pointer_type = cache(interpreter._get_np_dtype), interpreter._get_np_dtype

    def find_scalar_type(kind: Any) -> Any:
        # Only the types of numbers can be hashed.
        return (find_pointer_type if kind.scalar.is_ptr() else find_type)(kind.scalar)

    monkeypatch.setattr(interpreter, "_patch_lang", replace_once)
    _share_shapes(monkeypatch)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launch_anew)
    monkeypatch.setattr(interpreter, "_get_np_dtype", find_scalar_type)
    monkeypatch.setattr(tl.semantic.TritonSemantic, "binary_op_sanitize_overflow_impl", check_overflow)


def _share_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks and wraps every shape once; blocks of equal shape have the same object."""
    from triton.language import core, semantic

    make_type, unwrap = core.block_type.__init__, core._unwrap_if_constexpr
    broadcast = semantic.TritonSemantic.broadcast_impl_value
    # shape and number of entries of a type, and both of a tensor
    known: dict[tuple[int, ...], tuple[Any, int, Any, Any]] = {}
    scalar = (core.tuple([]), core.constexpr(1))

    def make_type_once(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple([size.value if type(size) is core.constexpr else size for size in shape])
        # a wrong shape is not known
        if sizes not in known or any(type(size) is not int for size in sizes):
            make_type(self, element_ty, shape)
            wrapped = core.tuple([core.constexpr(size) for size in sizes])
            known[sizes] = (self.shape, self.numel, wrapped, core.constexpr(self.numel))
        self.element_ty = element_ty
        self.shape, self.numel, *self.of_tensor = known[sizes]

    def make_tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = type.of_tensor if type.is_block() else scalar

    def unwrap_number(value: Any) -> Any:
        kind = type(value)
        return value if kind is int else value.value if kind is core.constexpr else unwrap(value)

    def broadcast_others(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        alike = left.shape is right.shape if left.is_block() and right.is_block() else False
        return (lhs, rhs) if alike else broadcast(self, lhs, rhs)

    def name(self: Any) -> str:
        return f"<{self.shape}, {self.element_ty}>"

    monkeypatch.setattr(core.block_type, "__init__", make_type_once)
    monkeypatch.setattr(core.block_type, "name", property(name, lambda *_: None), raising=False)
    monkeypatch.setattr(core.tensor, "__init__", make_tensor)
    monkeypatch.setattr(core, "_unwrap_if_constexpr", unwrap_number)
    monkeypatch.setattr(semantic.TritonSemantic, "broadcast_impl_value", broadcast_others)
