import logging
import os
from pathlib import Path

import numpy as np
import pytest

from lazygnn.graph import Graph
from lazygnn.partitioning import default_cache, partition
from tests.partitioning.helpers import check, same


def corrupt(kind: str, file: Path) -> None:
    with np.load(file) as arrays:
        order, ptr = arrays["order"], arrays["ptr"]
    if kind == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "array":
        with file.open("wb") as stream:
            np.save(stream, order)
    elif kind == "pickle":
        np.savez(file, order=np.array([{}], dtype=object), ptr=ptr)
    elif kind == "names":
        np.savez(file, order=order)
    elif kind == "type":
        np.savez(file, order=order.astype(np.int32), ptr=ptr)
    elif kind == "shape":
        np.savez(file, order=order[1:], ptr=ptr)
    elif kind == "twice":
        np.savez(file, order=np.zeros_like(order), ptr=ptr)
    else:
        np.savez(file, order=order, ptr=np.array([0, 0, 5, 5, 600]))


@pytest.mark.parametrize("kind", ["cut", "empty", "array", "pickle", "names", "type", "shape", "twice", "ptr"])
def test_a_corrupt_file_is_ignored_and_written_again(
    kind: str, blocks: Graph, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = partition(blocks, 4, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    corrupt(kind, file)
    with caplog.at_level(logging.WARNING):
        assert same(first, partition(blocks, 4, cache=tmp_path))
    assert f"the cached partition `{file}` is corrupt" in caplog.text
    caplog.clear()
    assert same(first, partition(blocks, 4, cache=tmp_path))
    assert not caplog.text


def test_a_cache_that_cannot_be_written_is_a_warning(
    blocks: Graph, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    found = partition(blocks, 4, cache=tmp_path / "file")
    check(found, 600, 4)
    assert "the partition cannot be cached in" in caplog.text


def test_the_default_cache_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAZYGNN_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("LAZYGNN_CACHE")
    monkeypatch.setenv("HOME", os.sep + "home-of-nobody")
    assert default_cache() == Path("/home-of-nobody/.cache/lazygnn")
