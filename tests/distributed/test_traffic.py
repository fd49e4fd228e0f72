import pytest

from lazygnn.distributed.traffic import Traffic, summarize


def test_bytes_of_all_ranks_are_added_and_divided_by_epochs() -> None:
    counted = [Traffic(halo=100, evaluated=7, exposed=1.0, epochs=4), Traffic(halo=300, exposed=3.0, epochs=4)]
    for each in counted:
        each.add_sum(80, num_ranks=2)
    assert summarize(counted) == {
        "ranks": 2,
        "halo_bytes_per_epoch": 100,
        # each of two ranks sends its half and receives the sum of the other
        "allreduce_bytes_per_epoch": 40,
        "evaluation_bytes": 7,
        "exposed_seconds_per_epoch": pytest.approx(0.75),
    }


def test_one_rank_sends_nothing() -> None:
    alone = Traffic()
    alone.add_sum(80, num_ranks=1)
    assert summarize([alone])["allreduce_bytes_per_epoch"] == 0
