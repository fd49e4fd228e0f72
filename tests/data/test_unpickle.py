"""The restricted unpickler by itself; tests/data/test_planetoid.py attacks it through whole data sets."""

import os
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from lazygnn.data.unpickle import MatrixRecord, to_array, unpickle
from lazygnn.errors import GraphError


def write(folder: Path, content: object, protocol: int = 2) -> Path:
    path = folder / "pickle"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "array",
    [np.arange(6).reshape(2, 3), np.asfortranarray(np.eye(3, 2)), np.array([1, 2], dtype=">f4")],
    ids=["integers", "fortran order", "big endian"],
)
def test_arrays_are_read(tmp_path: Path, array: np.ndarray, protocol: int) -> None:
    found = to_array(unpickle(write(tmp_path, array, protocol)))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")


def test_a_matrix_is_a_record_of_its_arrays(tmp_path: Path) -> None:
    matrix = scipy.sparse.csr_matrix(np.diag([1.0, 2.0]))
    record = unpickle(write(tmp_path, matrix))
    assert isinstance(record, MatrixRecord)
    assert isinstance(record.state, dict)
    np.testing.assert_array_equal(to_array(record.state["data"]), [1, 2])


def test_a_dictionary_loses_its_factory(tmp_path: Path) -> None:
    found: Any = unpickle(write(tmp_path, defaultdict(list, {0: [1], 1: []})))
    assert found == {0: [1], 1: []}
    with pytest.raises(KeyError):
        found[2]


def test_another_name_is_refused_and_not_run(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    path = write(tmp_path, Runs())
    with pytest.raises(GraphError, match=r"pickle` refers to `posix\.mkdir`, which data files do not use; nothing was"):
        unpickle(path)
    assert not (tmp_path / "ran").exists()
    # the standard unpickler runs it
    pickle.loads(path.read_bytes())
    assert (tmp_path / "ran").exists()


def test_a_value_that_is_not_an_array_is_refused() -> None:
    with pytest.raises(ValueError, match="`list` in place of an array"):
        to_array([1, 2])


def test_a_huge_object_number_is_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "pickle"
    path.write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")
    assert unpickle(path) == []


HOSTILE: list[tuple[bytes, str]] = [
    # doubles a tuple, then a list, thirty times: printing or hashing it would take a billion steps
    (b"(t" + b"q\x00h\x00\x86" * 30 + b".", "a tuple in several places"),
    (b")\x85\x85\x85.", "a tuple of tuples of tuples"),
    (b"(K\x01K\x02e.", "no list to add to"),
    (b"]q\x00]q\x01(h\x00h\x00e.", "a list in several places"),
    (b"}(]K\x01u.", "a key of type list"),
    (b"}(K\x01u.", "a key without a value"),
    (b"}(\x88K\x01u.", "a key of type bool"),
    (b"a.", "a value is missing"),
    (b"]2.", "operation DUP, which data files do not use"),
    (b"c__builtin__\nlist\n)R.", "a call of something else than a name"),
    (b"c__builtin__\nlist\n}b.", "state for a _Name"),
    (b"]" * 1000 + b".", "takes more than 108008 bytes of memory in 1001 bytes"),
    # encodes a text of 1 MB a thousand times
    (
        b"X" + (1_000_000).to_bytes(4, "little") + b"a" * 1_000_000 + b"q\x00X\x06\x00\x00\x00latin1q\x01"
        b"c_codecs\nencode\nq\x02" + b"h\x02h\x00h\x01\x86R" * 1000 + b".",
        "takes more than 8\\d{6} bytes of memory",
    ),
]


@pytest.mark.parametrize(("content", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_pickle_takes_neither_time_nor_memory(
    tmp_path: Path, content: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lazygnn.data.unpickle.budget", lambda size: 8 * size + 100_000)
    path = tmp_path / "pickle"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        unpickle(path)
