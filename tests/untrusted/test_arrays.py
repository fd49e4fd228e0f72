"""Archives with a damaged directory; tests/data/test_npz.py reads whole graphs."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn.errors import GraphError
from lazygnn.untrusted.arrays import open_archive, read_array

ARRAYS: dict[str, Any] = {"a": np.arange(6).reshape(2, 3), "b": np.asfortranarray(np.eye(3)), "c": np.array("text")}


def read(path: Path) -> dict[str, np.ndarray]:
    with open_archive(path) as archive:
        return {name: archive.read(name) for name in archive.names}


def assert_same(found: dict[str, np.ndarray]) -> None:
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_wrote_is_read(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "a.npz", **ARRAYS)
    assert_same(read(tmp_path / "a.npz"))


class Pipe(io.BytesIO):
    """A stream without a way back, to which sizes are written after the members."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError("not seekable")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_was_written_to_a_pipe_is_read(tmp_path: Path, save: Any) -> None:
    pipe = Pipe()
    save(pipe, **ARRAYS)
    (tmp_path / "a.npz").write_bytes(pipe.getvalue())
    assert_same(read(tmp_path / "a.npz"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", **ARRAYS)
    return tmp_path / "a.npz"


def directory(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return archive.start_dir


def test_a_member_that_the_directory_lost_is_found(path: Path) -> None:
    content, start = path.read_bytes(), directory(path)
    # the entry of the last member, and the length of the directory without it
    last = content.rindex(b"PK\x01\x02")
    end = content.index(b"PK\x05\x06")
    tail = bytearray(content[end:])
    tail[8:12] = struct.pack("<2H", 2, 2)
    tail[12:16] = struct.pack("<L", last - start)
    path.write_bytes(content[:last] + tail)
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["a.npy", "b.npy"]
    with pytest.raises(
        GraphError, match=r"what is at byte \d+ is not in its directory, so a member was lost; write the"
    ):
        read(path)


def test_a_name_that_differs_in_the_directory_is_found(path: Path) -> None:
    content, start = path.read_bytes(), directory(path)
    path.write_bytes(content[:start] + content[start:].replace(b"b.npy", b"d.npy"))
    with pytest.raises(GraphError, match=r"its directory and its member `d.npy` differ; write the file again"):
        read(path)


def test_bytes_between_members_are_found(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: directory(path)] + b"hidden" + content[directory(path) :])
    with pytest.raises(GraphError, match=r"not in its directory"):
        read(path)


def test_a_member_twice_is_refused(path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.npy", b"")
    with pytest.raises(GraphError, match="a member is there twice"):
        read(path)


def test_content_that_changed_is_found(path: Path) -> None:
    content = bytearray(path.read_bytes())
    # a number of the first array
    content[content.index(b"PK\x03\x04") + 200] ^= 1
    path.write_bytes(content)
    with pytest.raises(GraphError, match=r"Bad CRC-32"):
        read(path)


def test_a_missing_file_stays_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing.npz")


def stream(shape: tuple[int, ...], descr: str, content: bytes) -> io.BytesIO:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return io.BytesIO(file.getvalue() + content)


@pytest.mark.parametrize(
    ("shape", "descr", "content", "message"),
    [
        ((3,), "<i4", bytes(8), "field claims 12 bytes and has 8 bytes; write it again"),
        ((3,), "<i4", bytes(16), "field claims 12 bytes and has 16 bytes"),
        ((10**9,), "<U0", b"", "field holds 1,000,000,000 values without any width"),
        ((1,), "|V4", bytes(4), "field holds 'V' of shape"),
        ((-1,), "<i4", b"", "field holds 'i' of shape"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(
    shape: tuple[int, ...], descr: str, content: bytes, message: str
) -> None:
    file = stream(shape, descr, content)
    with pytest.raises(GraphError, match=message):
        read_array(file, len(file.getvalue()), "field", 10**6)


def test_the_width_in_memory_counts() -> None:
    file = stream((10**7,), "|b1", bytes(10**7))
    with pytest.raises(GraphError, match=r"field takes 240 MB of memory, but the file has 1 kB; write it with"):
        read_array(file, len(file.getvalue()), "field", 1000, width=24)


def test_a_stream_that_ends_early_is_refused() -> None:
    file = stream((4,), "<i4", bytes(8))
    with pytest.raises(GraphError, match=r"field ends after 8 bytes of 16 bytes"):
        read_array(file, len(file.getvalue()) + 8, "field", 1000)
