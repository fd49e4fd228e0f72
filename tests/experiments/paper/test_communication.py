"""Bytes between parts, and verdicts on them."""

import torch

from common.summary import Column, Row, Summary
from experiments.paper.communication import EXACT, FROZEN, LAZY, SYSTEMS, halo_rows, judge_table
from lazygnn.graph import Graph
from lazygnn.partitioning import Partition
from tests.experiments.paper.helpers import outcomes


def test_a_row_is_sent_once_to_every_part_next_to_it(path_graph: Graph) -> None:
    # 0 - 1 | 2 - 3: either side needs one row of the other
    assert halo_rows(path_graph, Partition(torch.arange(4), torch.tensor([0, 2, 4]))) == 2
    # 1 and 2 are next to both other parts, 0 and 3 to one
    assert halo_rows(path_graph, Partition(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 3, 4]))) == 4
    # 0, 2 | 1, 3: every node is next to the other part
    assert halo_rows(path_graph, Partition(torch.tensor([0, 2, 1, 3]), torch.tensor([0, 2, 4]))) == 4


def test_bytes_of_a_row_follow_from_the_exchanges() -> None:
    # 47 classes, in float32: the figures of the design for ogbn-products
    found = {name: system.bytes_per_row(47) for name, system in SYSTEMS.items()}
    assert list(found.values()) == [3760, 1692, 2048, 752, 376, 188]


def test_verdicts_follow_the_numbers() -> None:
    def found(exact: float, gas: float, lazy: float, ours: float) -> list[str]:
        names = ("rows sent", EXACT, "APPNP (GAS), 10 layers", LAZY, FROZEN)
        cells = [{"value": value} for value in (100, exact, gas, lazy, ours)]
        columns = [Column(title=name) for name in names]
        table = Summary(origin="", label="", columns=columns, rows=[Row(label="a, 2 parts", cells=cells)])
        return outcomes(judge_table(table))

    assert found(20.0, 9.0, 4.0, 1.0) == ["reproduced"] * 3
    assert found(3.0, 2.0, 4.0, 5.0) == ["not reproduced"] * 3
