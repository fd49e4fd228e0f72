"""Small graphs, and what stands beside the package, that many tests share."""

import gc
import os
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lazygnn.graph import Graph
from lazygnn.run import environment

Arrays = dict[str, Any]
# where files are in memory, and how much of it must be free
MEMORY, ROOM = Path("/dev/shm"), 4 << 30


@pytest.fixture(scope="session", autouse=True)
def known_commit() -> Iterator[None]:
    """Asks git for the commit of the library once, not for every run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "find_commit", cache(environment.find_commit))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_data_folder() -> Iterator[None]:
    """Forgets the folder of data files that the user has set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LAZYGNN_DATA", raising=False)
        yield


@pytest.fixture
def path_graph() -> Graph:
    """0 - 1 - 2 - 3, two classes, one node of each split and one more to learn from."""
    return Graph.from_edges(
        np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]),
        np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]),
        np.array([0, 0, 1, 1]),
        train_mask=np.array([True, False, True, False]),
        val_mask=np.array([False, True, False, False]),
        test_mask=np.array([False, False, False, True]),
        name="path",
    )


@pytest.fixture
def block_arrays() -> Arrays:
    """Sixty nodes in three blocks, as an .npz file would hold them; features alone do not tell the block."""
    return _block_arrays()


@pytest.fixture
def block_graph(block_arrays: Arrays) -> Graph:
    arrays = dict(block_arrays)
    return Graph.from_edges(arrays.pop("edge_index"), arrays.pop("x"), arrays.pop("y"), **arrays, name="block")


@pytest.fixture(scope="module")
def module_arrays() -> Arrays:
    """The same arrays, for what a module trains once."""
    return _block_arrays()


class NoStream:
    """Stands in for a stream, and for an event: all is done in order."""

    def wait_stream(self, other: object) -> None:
        """Has nothing to wait for."""

    wait_event = wait_stream

    def record_event(self) -> "NoStream":
        return self


@pytest.fixture
def no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets what uses streams run on a CPU."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: NoStream())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: NoStream())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())


def _block_arrays() -> Arrays:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    likely = np.where(y[:, None] == y[None, :], 0.35, 0.02)
    upper = np.triu(rng.random((60, 60)) < likely, k=1)
    edges = np.stack((upper | upper.T).nonzero())
    order = rng.permutation(60)
    return {
        "edge_index": edges,
        "x": (np.eye(3)[y] + 0.8 * rng.normal(size=(60, 3))).astype(np.float32),
        "y": y,
        "train_mask": order < 20,
        "val_mask": (order >= 20) & (order < 40),
        "test_mask": order >= 40,
    }


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the files of tests in memory where there is room: the library waits for a disk after every file."""
    # the others write files of gigabytes
    if "not soak" not in config.getoption("markexpr") or not os.access(MEMORY, os.W_OK):
        return
    # a test may write a program and run it
    if shutil.disk_usage(MEMORY).free >= ROOM and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starts with the longest tests, so that no worker is left with one of them at the end."""
    items.sort(key=lambda item: "test_interpreter" not in item.nodeid)


def pytest_collection_finish() -> None:
    """Lets the garbage collector leave out what was imported, which stays to the end."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Lets the interpreter clean up what it has imported when it ends."""
    gc.unfreeze()
