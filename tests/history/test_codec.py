"""What is lost between a row and what is kept of it."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from lazygnn.history.codec import DTYPES, Codec
from tests.helpers import random_rows

INT8 = Codec(torch.int8, torch.float32)
finite = st.floats(-(2.0**127), 2.0**127, width=32)


def round_trip(codec: Codec, values: Tensor) -> Tensor:
    return codec.decode(codec.encode(values))


@given(st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_int8_is_off_by_half_a_level_at_most(entries: list[list[float]]) -> None:
    values = torch.tensor(entries, dtype=torch.float64)
    largest = values.abs().amax(1, keepdim=True)
    error = (round_trip(INT8, values).double() - values).abs()
    # the last term is for rows whose largest entry is a denormal number
    assert bool((error <= largest / 254 * (1 + 1e-5) + 2e-43).all())


def test_int8_rounds_to_the_nearest_level() -> None:
    kept = INT8.encode(torch.tensor([[127.0, 1.6, -1.4, -127.0], [0.0, 0.0, 0.0, 0.0]]))
    assert kept["rows"].tolist() == [[127, 2, -1, -127], [0, 0, 0, 0]]
    assert kept["scale"].tolist() == [1, 0]
    assert kept["scale"].dtype == torch.float32


def test_int8_keeps_rows_of_zeros_and_of_the_tiniest_numbers() -> None:
    values = torch.tensor([[0.0, -0.0], [1e-45, -1e-45], [2.6e-43, 1e-43]])
    assert float((round_trip(INT8, values) - values).abs().max()) <= 2e-43


@pytest.mark.parametrize("compute_dtype", [torch.float64, torch.bfloat16])
def test_int8_serves_other_compute_types(compute_dtype: torch.dtype) -> None:
    values = torch.tensor([[1.0, -0.5, 0.25]], dtype=compute_dtype)
    decoded = round_trip(Codec(torch.int8, compute_dtype), values)
    assert decoded.dtype == compute_dtype
    torch.testing.assert_close(decoded, values, rtol=0, atol=1 / 254 + 1 / 256)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_int8_does_not_hide_a_row_that_has_gone_wrong(bad: float) -> None:
    decoded = round_trip(INT8, torch.tensor([[bad, 1.0], [2.0, 1.0]]))
    assert not bool(decoded[0].isfinite().any())
    assert bool(decoded[1].isfinite().all())


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.is_floating_point], ids=str)
def test_floats_are_cast(dtype: torch.dtype) -> None:
    values = random_rows(5, 3, 0, torch.float32)
    assert torch.equal(round_trip(Codec(dtype, torch.float32), values), values.to(dtype).float())


def test_the_same_type_needs_no_copy() -> None:
    values = torch.ones(2, 2)
    assert Codec(torch.float32, torch.float32).encode(values)["rows"].data_ptr() == values.data_ptr()
