from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazygnn.errors import GraphError
from lazygnn.tables.splitting import split_by_column, split_by_shares, split_by_time
from tests.tables.helpers import frame

LABELED = np.array([True] * 6 + [False])


def sizes(masks: dict[str, np.ndarray]) -> list[int]:
    return [int(mask.sum()) for mask in masks.values()]


@pytest.mark.parametrize("stratified", [False, True])
def test_shares_of_the_labeled_nodes_are_drawn(stratified: bool) -> None:
    labeled = np.arange(200) % 2 == 0
    classes = np.repeat([0, 1, 2, 3], [140, 40, 14, 6])
    masks = split_by_shares(labeled, (60, 20, 20), 0, classes if stratified else None)
    assert list(masks) == ["train", "val", "test"]
    assert sizes(masks) == [60, 20, 20]
    assert ((masks["train"].astype(int) + masks["val"] + masks["test"]) == labeled).all()
    if stratified:
        found = [np.bincount(classes[mask], minlength=4).tolist() for mask in masks.values()]
        assert found == [[42, 12, 4, 2], [14, 4, 2, 0], [14, 4, 1, 1]]


def test_the_seed_decides_the_draw() -> None:
    labeled = np.ones(50, dtype=bool)
    first, again, other = (split_by_shares(labeled, (60, 20, 20), seed)["train"] for seed in (1, 1, 2))
    assert (first == again).all()
    assert not (first == other).all()


def test_the_first_of_a_rare_class_is_for_training() -> None:
    classes = np.array([0, 1, 1])
    masks = split_by_shares(np.ones(3, dtype=bool), (0.01, 0.495, 0.495), 0, classes)
    assert np.bincount(classes[masks["train"]]).tolist() == [1, 1]


def test_the_shares_hold_over_many_small_classes() -> None:
    classes = np.repeat(np.arange(60), 9)
    masks = split_by_shares(np.ones(540, dtype=bool), (90, 5, 5), 0, classes)
    assert sizes(masks) == [486, 27, 27]
    assert set(np.bincount(classes[masks["train"]])) == {8, 9}


@given(
    groups=st.lists(st.integers(1, 40), max_size=30),
    rest=st.tuples(st.integers(0, 499), st.integers(0, 499)),
    stratified=st.booleans(),
    seed=st.integers(0, 3),
)
def test_every_split_is_within_a_node_of_its_share(
    groups: list[int], rest: tuple[int, int], stratified: bool, seed: int
) -> None:
    ratio = np.array([1000 - sum(rest), *rest]) / 1000
    drawn = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(groups)), groups))
    labeled = np.arange(2 * len(drawn)) % 2 == 0
    classes = np.repeat(drawn, 2)
    masks = split_by_shares(labeled, tuple(ratio.tolist()), seed, classes if stratified else None)
    assert (sum(mask.astype(int) for mask in masks.values()) == labeled).all()
    again = split_by_shares(labeled, tuple(ratio.tolist()), seed, classes if stratified else None)
    assert all((masks[split] == again[split]).all() for split in masks)
    divided = groups if stratified else [len(drawn)] if groups else []
    # the first node of a rare class is for training
    wanted = np.array(
        [n * ratio if n * ratio[0] >= 1 else [1, *((n - 1) * ratio[1:] / (1 - ratio[0]))] for n in divided]
    ).reshape(-1, 3)
    found = np.zeros((len(divided), 3))
    for column, mask in enumerate(masks.values()):
        found[:, column] = np.bincount(classes[mask] * stratified, minlength=len(divided))[: len(divided)]
    assert (abs(found - wanted) < 1 + 1e-6).all()
    assert (abs(found.sum(axis=0) - wanted.sum(axis=0)) < 1 + 1e-6).all()
    assert (found[:, 0] >= 1).all()


def test_a_column_may_name_the_splits() -> None:
    source, table = frame(part=["train", "Training", "dev", " VAL ", "test", "", "train"])
    masks = split_by_column(source, table, "part", LABELED)
    assert {split: mask.nonzero()[0].tolist() for split, mask in masks.items()} == {
        "train": [0, 1],
        "val": [2, 3],
        "test": [4],
    }
    source, table = frame(part=["train", "holdout"])
    with pytest.raises(GraphError, match=r"`nodes`, row 1, column `part`: 'holdout' is not a split; write train, val"):
        split_by_column(source, table, "part", LABELED[:2])


@pytest.mark.parametrize(
    "times",
    [
        ["6", "1", "2", "3", "4", "5", "0"],
        [6.5, 1, 2, 3, 4, 5, None],
        [f"2026-0{month}-01" for month in (6, 1, 2, 3, 4, 5, 9)],
        [f"2026-01-01 0{hour}:00:00" for hour in (6, 1, 2, 3, 4, 5, 9)],
        pa.array([6, 1, 2, 3, 4, 5, 9], pa.timestamp("s")),
        pa.array([6, 1, 2, 3, 4, 5, 9], pa.timestamp("ns")),
        pa.array([6, 1, 2, 3, 4, 5, 9], pa.date32()),
    ],
)
def test_the_newest_nodes_are_for_the_test(times: Any) -> None:
    source, table = frame(time=times)
    masks = split_by_time(source, table, "time", LABELED, (50, 25, 25))
    assert {split: mask.nonzero()[0].tolist() for split, mask in masks.items()} == {
        "train": [1, 2, 3],
        "val": [4],
        "test": [0, 5],
    }


def test_nodes_of_the_same_time_stay_together() -> None:
    source, table = frame(time=["1", "1", "1", "1", "2", "2", "3"])
    masks = split_by_time(source, table, "time", np.ones(7, dtype=bool), (20, 40, 40))
    assert sizes(masks) == [4, 0, 3]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["1", ""], r"row 1, column `time`: the time is missing, but the node has a label; give it a time"),
        (["2026-01-01", "soon"], r"row 1, column `time`: 'soon' is not a time; write numbers, or dates such as"),
    ],
)
def test_a_wrong_time_is_refused(times: list[str], message: str) -> None:
    source, table = frame(time=times)
    with pytest.raises(GraphError, match=message):
        split_by_time(source, table, "time", LABELED[:2], (60, 20, 20))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (pa.array([1, 2], pa.time32("s")), r"time32\[s\]"),
        (pa.array([1, 2], pa.duration("us")), r"duration\[us\]"),
        (pa.array([[1], [2]], pa.list_(pa.int64())), "list<item: int64>"),
        (pa.array([b"\xff", b"a"]), "binary"),
    ],
)
def test_a_column_of_another_type_is_refused(values: pa.Array, name: str) -> None:
    source, table = frame(column=values)
    with pytest.raises(GraphError, match=rf"^`nodes`, column `column` has the type {name}; write numbers, or dates"):
        split_by_time(source, table, "column", LABELED[:2], (60, 20, 20))
    if not pa.types.is_temporal(values.type):
        with pytest.raises(GraphError, match=rf"^`nodes`, column `column` has the type {name}; write train, val or"):
            split_by_column(source, table, "column", LABELED[:2])
