"""The typed `triton.jit`; the kernels themselves are tested by the functions that launch them."""

from typing import Any

import pytest

from lazygnn.ops.triton.jit import jit
from tests.ops.triton.helpers import INTERPRETED


def scale(x: Any, num_rows: Any, num_cols: Any) -> None:
    """Has the arguments of a kernel."""


@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
def test_only_the_integers_that_are_named_do_not_cause_variants() -> None:
    kernel: Any = jit(scale, unspecialized=("num_rows",))
    assert [parameter.do_not_specialize for parameter in kernel.params] == [False, True, False]
    kernel = jit(scale)
    assert not any(parameter.do_not_specialize for parameter in kernel.params)
