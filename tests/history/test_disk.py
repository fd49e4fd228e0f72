"""Rows in mapped files."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch

from lazygnn.history import HistoryFileError, StoredHistory, on_disk, open_history
from lazygnn.propagation import Drift, Mix


def open_disk(folder: Path, num_nodes: int = 1000, dtype: torch.dtype = torch.float32) -> StoredHistory:
    return open_history(num_nodes, 16, Drift(), tier="disk", dtype=dtype, folder=folder, name="features")


def test_files_are_as_long_as_the_rows_and_have_their_space_before_they_are_written(tmp_path: Path) -> None:
    history = open_disk(tmp_path / "new" / "folder", 1_000_000, torch.int8)
    files = {path.name: path.stat() for path in (tmp_path / "new" / "folder").iterdir()}
    assert {name: stat.st_size for name, stat in files.items()} == {
        "features.values.rows": 16_000_000,
        "features.values.scale": 4_000_000,
        "features.inputs.rows": 16_000_000,
        "features.inputs.scale": 4_000_000,
    }
    assert history.num_bytes == 40_000_000
    assert sum(512 * stat.st_blocks for stat in files.values()) >= 40_000_000


def test_rows_are_in_the_file(tmp_path: Path) -> None:
    history = open_disk(tmp_path)
    history.push(torch.tensor([2]), torch.full((1, 16), 3.0), torch.full((1, 16), 4.0))
    history.state_dict()
    kept = torch.frombuffer(bytearray((tmp_path / "features.values.rows").read_bytes()), dtype=torch.float32)
    assert kept.view(1000, 16)[1:4].sum(1).tolist() == [0, 48, 0]


def test_a_new_history_starts_empty_and_leaves_the_old_one_alone(tmp_path: Path) -> None:
    rows = torch.arange(1000)
    old = open_disk(tmp_path)
    old.push(rows, torch.ones(1000, 16), torch.ones(1000, 16))
    new = open_disk(tmp_path)
    assert float(new.values.read(rows).abs().max()) == 0
    new.push(rows, 2 * torch.ones(1000, 16), torch.ones(1000, 16))
    assert float(old.values.read(rows).max()) == 1


def free_bytes(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, free))


def test_a_full_disk_is_reported_before_anything_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free_bytes(monkeypatch, 1000)
    message = (
        rf"{tmp_path}/features\.values\.rows` needs 64000 bytes, but 1000 are free; choose another folder, or fewer"
    )
    with pytest.raises(HistoryFileError, match=message) as caught:
        open_disk(tmp_path)
    assert isinstance(caught.value, OSError)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_between_two_files_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the space of a file, a write to it would kill the process."""
    reserve, left = os.posix_fallocate, 100_000

    def fill(file: int, offset: int, length: int) -> None:
        nonlocal left
        left -= length
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reserve(file, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", fill)
    message = r"cannot create `.*features\.inputs\.rows` of 64000 bytes: No space left on device; choose another"
    with pytest.raises(HistoryFileError, match=message):
        open_disk(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["features.values.rows"]
    left = 100_000
    open_history(1000, 16, Mix(0.5), tier="disk", folder=tmp_path, name="features")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "features.values.rows").symlink_to(tmp_path / "kept")
    open_disk(tmp_path).push(torch.tensor([2]), torch.ones(1, 16), torch.ones(1, 16))
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        HistoryFileError, match=r"cannot create `.*features\.values\.rows` of 64000 bytes: .*; choose another"
    ):
        open_disk(tmp_path / "file" / "folder")


def test_rows_are_allocated_in_a_file_that_has_no_name_any_more(tmp_path: Path) -> None:
    assert on_disk(None, "rows") is None
    allocate = on_disk(tmp_path, "scratch")
    assert allocate is not None
    assert list(tmp_path.iterdir()) == []
    rows = allocate((3, 2), torch.float64)
    assert (rows.shape, rows.dtype, float(rows.abs().max())) == ((3, 2), torch.float64, 0)
    rows[1] = 7
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if f"{tmp_path}/scratch-" in line]
    assert len(mapped) == 1
    assert mapped[0].endswith(".rows (deleted)")
    # allocated again, the rows are new ones
    allocate((3, 2), torch.float64)[0] = 1
    assert rows.tolist() == [[0, 0], [7, 7], [0, 0]]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_made_for_rows_is_removed(tmp_path: Path) -> None:
    allocate = on_disk(tmp_path / "deep" / "folder", "scratch")
    assert allocate is not None
    allocate((3, 2), torch.float32)[0] = 1
    assert list((tmp_path / "deep").iterdir()) == []
