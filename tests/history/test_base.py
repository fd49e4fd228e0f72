"""What a history gives and takes, whatever keeps its rows."""

import pytest
import torch

from lazygnn.history import NoHistory, open_history, pad_rows
from lazygnn.warmstart import Drift, Mix


def rows(*values: float) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(1)


def test_a_row_never_written_is_a_cold_start() -> None:
    history = open_history(4, 1, Mix(0.5))
    history.push(torch.tensor([1]), rows(10.0), rows(0.0))
    start = history.start(torch.tensor([0, 1, 2]), 3, rows(2.0, 4.0, 6.0))
    assert start[:, 0].tolist() == [2.0, 7.0, 6.0]


def test_rows_without_a_fresh_value_stand_at_what_is_stored() -> None:
    history = open_history(3, 1, Mix(0.5))
    history.push(torch.arange(3), rows(1.0, 2.0, 3.0), rows(0.0, 0.0, 0.0))
    start = history.start(torch.tensor([2, 0, 1]), 1, rows(5.0))
    assert start[:, 0].tolist() == [4.0, 1.0, 2.0]


def test_halo_rows_with_a_fresh_value_do_not_drift() -> None:
    history = open_history(2, 1, Drift())
    history.push(torch.arange(2), rows(1.0, 2.0), rows(10.0, 20.0))
    start = history.start(torch.tensor([0, 1]), 1, rows(11.0, 50.0))
    assert start[:, 0].tolist() == [2.0, 2.0]


def test_only_targets_are_written() -> None:
    history = open_history(3, 1, Drift())
    history.push(torch.tensor([2]), rows(1.0, 9.0, 9.0), rows(4.0, 9.0, 9.0))
    assert history.values.read(torch.arange(3))[:, 0].tolist() == [0.0, 0.0, 1.0]
    assert history.inputs is not None
    assert history.inputs.read(torch.arange(3))[:, 0].tolist() == [0.0, 0.0, 4.0]


def test_age_counts_pushes_since_a_row_was_written() -> None:
    history = open_history(3, 1, Mix(0.5))
    history.push(torch.tensor([0]), rows(1.0), rows(1.0))
    history.push(torch.tensor([1]), rows(1.0), rows(1.0))
    assert history.age.tolist() == [1, 0, 2]


def test_no_history_gives_the_fresh_value_back() -> None:
    history = NoHistory()
    fresh = rows(1.0, 2.0)
    history.push(torch.arange(2), fresh, fresh)
    assert history.start(torch.arange(2), 2, fresh) is fresh
    assert history.start(torch.arange(3), 2, fresh)[:, 0].tolist() == [1.0, 2.0, 0.0]
    assert history.num_bytes == 0


@pytest.mark.parametrize(("start", "tensors"), [(Mix(0.5), 1), (Drift(0.1), 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_are_rows_times_width(start: Mix | Drift, tensors: int, dtype: torch.dtype) -> None:
    history = open_history(100, 7, start, dtype=dtype)
    assert history.num_bytes == tensors * 100 * 7 * dtype.itemsize
    history.push(torch.arange(100), torch.ones(100, 7), torch.ones(100, 7))
    assert history.start(torch.arange(100), 100, torch.ones(100, 7)).dtype == torch.float32


def test_pad_rows() -> None:
    assert pad_rows(torch.ones(1, 2), 3).tolist() == [[1, 1], [0, 0], [0, 0]]
