"""The order of rows and the pieces of long rows, on any device."""

import pytest
import torch

from lazygnn.ops.triton import plans
from tests.ops.triton.helpers import LONG_ROWS, matrix

CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
)
pytestmark = pytest.mark.parametrize("place", ["cpu", CUDA])


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "piece_size", lambda _: 8)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("window", "order"), [(4, [3, 1, 0, 2, 5, 6, 4, 7, 9, 8]), (4096, [3, 9, 5, 6, 1, 4, 7, 0, 8, 2])]
)
def test_rows_are_sorted_by_length_within_windows(
    place: str, window: int, order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "WINDOW", window)
    # Of the 43 entries of the fifth row, 2 are before its whole pieces and 1 is after them.
    adj = matrix([1, 5, 0, 8, 43, 6, 6, 2, 1, 7], 12, place)
    assert plans.plan_of(adj).order.tolist() == order


def test_rows_of_equal_length_keep_their_order(place: str) -> None:
    plan = plans.plan_of(matrix([1] * 40, 40, place))
    assert plan.order.tolist() == list(range(40))
    assert plan.order.dtype == torch.int32
    # There are too few entries for a piece.
    assert plan.whole is None


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("counts", LONG_ROWS, ids=str)
def test_pieces_within_a_single_row_come_first(place: str, counts: list[int]) -> None:
    adj = matrix(counts, 15, place)
    plan = plans.plan_of(adj)
    assert (plan.whole is None) == (sum(counts) < 8)
    if plan.whole is not None:
        row = adj.row_index()[: sum(counts) // 8 * 8].view(-1, 8)
        whole = (row[:, 0] == row[:, 7]).nonzero()[:, 0]
        assert plan.num_whole == len(whole)
        assert plan.whole[: len(whole)].tolist() == whole.tolist()
        assert sorted(plan.whole.tolist()) == list(range(sum(counts) // 8))


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_a_long_row_has_whole_pieces(place: str, index: torch.dtype) -> None:
    assert plans.plan_of(matrix([5, 3 * 64, 0, 30], 40, place, index)).num_whole == 2


@pytest.mark.usefixtures("small_pieces")
def test_a_plan_belongs_to_a_pattern(place: str) -> None:
    adj = matrix([3, 20, 9, 30], 6, place)
    plan = plans.plan_of(adj)
    assert plans.plan_of(adj) is plan
    assert plans.plan_of(adj.with_value(2 * adj.value)) is plan
    assert plans.plan_of(adj.with_value(2 * adj.value).T) is plans.plan_of(adj.T)
    for other in (adj.rows(2), adj.T, adj.select(torch.tensor([3, 0], device=place)), adj.to(torch.float16)):
        assert plans.plan_of(other) is not plan
        assert sorted(plans.plan_of(other).order.tolist()) == list(range(other.num_rows))
