"""Arithmetic of ranks, by hand."""

import pytest

from common.summary import TABLES, load_summary
from experiments import scale_out
from experiments.scale_out import Constants, Shape


@pytest.fixture(scope="module")
def constants() -> Constants:
    return scale_out.measure_constants()


def test_constants_are_those_of_the_library(constants: Constants) -> None:
    # int32 columns and float32 values; row pointer, degree, label and three masks
    assert (constants.entry, constants.node, constants.feature) == (8, 4 + 4 + 8 + 3, 4)
    # one row of values and one of inputs; the halo has values alone
    assert constants.history == pytest.approx(4, abs=0.05)
    assert constants.halo == 2
    # 384 MiB for 48,981 nodes, four layers of 512; 78 ms for 2.4 million nodes
    assert constants.step == pytest.approx(4.0, abs=0.1)
    assert constants.seconds == pytest.approx(3.2e-8, rel=0.05)


def test_memory_by_hand() -> None:
    shape, one = Shape(nodes=100, entries=1000, features=10, outputs=5), Constants(8, 19, 4, 4, 2, 4, 0)
    found = scale_out.memory_of_a_rank(shape, one, ranks=4, halo=0.5)
    assert found == {
        "edges and labels": 250 * 8 + 25 * 19,
        "features": 25 * 40,
        "histories": 25 * 5 * (4 + 0.5 * 2),
        "a step": 25 * 256 * 3 * 4,
    }


def test_bytes_and_seconds_by_hand() -> None:
    found = scale_out.bytes_of_an_epoch(Shape(nodes=1000, entries=0, features=0, outputs=47), halo=0.5)
    assert found["lazygnn"] == 500 * 47 * 4
    assert found["APPNP, 10 steps"] == 500 * 3760
    assert found["PipeGCN, 3 x 128"] == 500 * 2048
    # 8 Gbit/s are 1 GB/s, of which each of four ranks sends a quarter
    assert scale_out.seconds_on_a_network(4e9, ranks=4, gigabits=8) == 1


def test_published_tables_follow_from_published_halos() -> None:
    for name, made in (
        ("scale-out-memory", scale_out.memory_table()),
        ("scale-out-bytes", scale_out.bytes_table()),
    ):
        assert load_summary(name).markdown() == made.markdown(), f"run `{made.origin} --save`"
    halos = [scale_out.halo_per_node("arxiv", ranks, TABLES) for ranks in scale_out.RANKS]
    assert halos == sorted(halos)
