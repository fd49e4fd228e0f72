import torch

from lazygnn.distributed.group import Ranks
from lazygnn.distributed.plan import Plan, make_plan
from tests.distributed.workers import in_threads

BOUNDS = [0, 3, 5, 9]
# nodes around the parts of each rank; rank 2 has two parts that need each other's nodes 5 and 8
HALOS = [[3, 7], [0, 2, 5], [4, 5, 8]]


def plan_of(ranks: Ranks) -> Plan:
    halo = torch.tensor(HALOS[ranks.rank])
    return make_plan(ranks, BOUNDS, halo, torch.arange(len(halo)))


def test_every_rank_learns_which_of_its_rows_the_others_need() -> None:
    plans = in_threads(3, plan_of)
    # own rows, counted from the first of the rank
    assert [plan.rows.tolist() for plan in plans] == [[0, 2], [0, 1], [2, 0, 0, 3]]
    assert [list(plan.sent) for plan in plans] == [[0, 2, 0], [1, 0, 1], [1, 1, 2]]
    assert [list(plan.received) for plan in plans] == [[0, 1, 1], [2, 0, 1], [0, 1, 2]]
    assert [plan.sent_to_others(rank) for rank, plan in enumerate(plans)] == [2, 2, 2]
    assert not plans[0].is_empty
    # several of them are kept for each node, so that they are small
    assert {index.dtype for plan in plans for index in (plan.rows, plan.slots)} == {torch.int32}


def test_some_of_the_nodes_can_be_left_out() -> None:
    def first_slot(ranks: Ranks) -> Plan:
        return make_plan(ranks, BOUNDS, torch.tensor(HALOS[ranks.rank]), torch.arange(1))

    assert [plan.rows.tolist() for plan in in_threads(3, first_slot)] == [[0], [0, 1], []]


def test_a_plan_without_rows_is_known_to_all() -> None:
    def none(ranks: Ranks) -> Plan:
        return make_plan(ranks, BOUNDS, torch.tensor(HALOS[ranks.rank]), torch.arange(0))

    assert all(plan.is_empty for plan in in_threads(3, none))
