"""Files that claim far more than they hold: each is refused, in time and memory that follow from its size."""

import gzip
import io
import json
import resource
import struct
import zipfile
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn import build, resolve
from lazygnn.config import read_options
from lazygnn.data.graphsaint import read_saint
from lazygnn.data.npz import read_npz
from lazygnn.data.ogb import read_ogb
from lazygnn.data.planetoid import read_planetoid
from lazygnn.data.synthetic import block_graph
from lazygnn.errors import CheckpointError, ConfigError, GraphError
from lazygnn.run.folder import read_json
from tests.processes import context

MEGABYTE = 2**20
# of the 512 MB that a file of any size may take, the library itself takes half
OTHERS = 256 * MEGABYTE
EDGES = np.array([[0, 1], [1, 0]])


def npy(shape: tuple[int, ...], descr: str, content: bytes = b"") -> bytes:
    """Returns an array whose header claims any shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + content


def archive(path: Path, method: int = zipfile.ZIP_DEFLATED, **members: Any) -> Path:
    with zipfile.ZipFile(path, "w", method) as packed:
        for name, member in members.items():
            if isinstance(member, np.ndarray):
                file = io.BytesIO()
                np.save(file, member)
                member = file.getvalue()
            packed.writestr(f"{name}.npy", member)
    return path


def sparse(columns: int, rows: int = 2) -> dict[str, Any]:
    indptr = np.arange(rows + 1)
    return {
        "x_indptr": indptr,
        "x_indices": np.zeros(rows, int),
        "x_data": np.ones(rows),
        "x_shape": np.array([rows, columns]),
    }


def packed_by_bzip2(folder: Path) -> None:
    archive(folder / "a.npz", zipfile.ZIP_BZIP2, edge_index=EDGES, x=npy((2**22, 1), "<f4", bytes(2**24)))


def packed_zeros(folder: Path) -> None:
    archive(folder / "a.npz", edge_index=EDGES, x=np.zeros((2**20, 24), dtype=np.float32))


def packed_edges(folder: Path) -> None:
    edges = np.zeros((2, 2**24), dtype=np.int8)
    archive(folder / "a.npz", edge_index=edges, x=np.ones((2, 1)))


def packed_flags(folder: Path) -> None:
    archive(folder / "a.npz", edge_index=EDGES, x=np.zeros((2**20, 100), dtype=bool))


def a_size_that_lies(folder: Path) -> None:
    """The directory and the header of a member claim 100 bytes, but it unpacks to many."""
    path = archive(folder / "a.npz", edge_index=EDGES, x=bytes(2**26))
    content = path.read_bytes().replace(struct.pack("<L", 2**26), struct.pack("<L", 100))
    path.write_bytes(content)


def many_columns(folder: Path) -> None:
    archive(folder / "a.npz", edge_index=EDGES, **sparse(20_000_000))


def text_without_width(folder: Path) -> None:
    archive(folder / "a.npz", edge_index=EDGES, x=np.ones((2, 1)), class_name=npy((10**9,), "<U0"))


def a_shape_beyond_the_file(folder: Path) -> None:
    archive(folder / "a.npz", edge_index=EDGES, x=npy((10**9, 10**9), "<f4"))


def nested_json(folder: Path) -> None:
    path = folder / "a.json"
    path.write_text('{"a":' * 100_000)


def lists_in_json(folder: Path) -> None:
    np.save(folder / "feats.npy", np.ones((2, 1)))
    archive(folder / "adj_full.npz", shape=np.array([2, 2]), indptr=np.zeros(3, int), indices=np.zeros(0, int))
    (folder / "class_map.json").write_text('{"0": [' + "[]," * 8_000_000 + "[]]}")
    (folder / "role.json").write_text('{"tr": [], "va": [], "te": []}')


def wide_labels(folder: Path) -> None:
    np.save(folder / "feats.npy", np.ones((100_000, 1), dtype=np.int8))
    archive(
        folder / "adj_full.npz", shape=np.array([100_000] * 2), indptr=np.zeros(100_001, int), indices=np.zeros(0, int)
    )
    (folder / "class_map.json").write_text(json.dumps({"0": [0] * 100_000}))
    (folder / "role.json").write_text('{"tr": [0], "va": [], "te": []}')


def ogb(folder: Path, repeated: int = 1, **files: bytes) -> None:
    """Writes a sound data set but for some files, whose content is repeated."""
    content = {"num_node_list": b"2\n", "node_feat": b"1\n2\n", "node_label": b"0\n1\n", "edge": b"0,1\n"} | files
    (folder / "raw").mkdir()
    for name, text in content.items():
        packed = gzip.compress(text) * (repeated if name in files else 1)
        (folder / "raw" / f"{name.replace('_', '-')}.csv.gz").write_bytes(packed)
    (folder / "split" / "time").mkdir(parents=True)
    for name in ("train", "valid", "test"):
        (folder / "split" / "time" / f"{name}.csv").write_text("0\n" if name == "train" else "")


def a_long_line(folder: Path) -> None:
    ogb(folder, repeated=400, node_feat=b"1" * MEGABYTE)


def a_line_of_columns(folder: Path) -> None:
    ogb(folder, repeated=400, node_feat=b"1," * MEGABYTE)


def many_nodes(folder: Path) -> None:
    ogb(folder, num_node_list=b"2000000000\n")


def many_lines(folder: Path) -> None:
    ogb(folder, repeated=100, edge=b"0,1\n" * MEGABYTE)


def planetoid(folder: Path, content: bytes) -> None:
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph"):
        (folder / f"ind.a.{part}").write_bytes(content)
    (folder / "ind.a.test.index").write_text("0\n")


def a_pickle_of_lists(folder: Path) -> None:
    planetoid(folder, b"\x80\x02" + b"]" * MEGABYTE + b".")


def a_pickle_that_doubles(folder: Path) -> None:
    planetoid(folder, b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * 100 + b".")


def a_pickle_with_hashes(folder: Path) -> None:
    planetoid(folder, b"\x80\x02})" + b"2\x86" * 100 + b"K\x01s.")


def nested_toml(folder: Path) -> None:
    path = folder / "a.toml"
    path.write_text("a = " + "[" * 100_000)


def a_key_of_many_parts(folder: Path) -> None:
    path = folder / "a.toml"
    path.write_text("a" + ".a" * 100_000 + " = 1")


def a_number_of_many_digits(folder: Path) -> None:
    path = folder / "a.toml"
    path.write_text("epochs = 0x" + "f" * 100_000)


def a_wide_model(_: Path) -> None:
    """Options alone."""


def build_wide(_: Path) -> object:
    graph = block_graph(20, 1, degree=2, in_channels=3, num_classes=2)
    return build(resolve("lazygnn", "a", {"hidden_channels": 10**12}), graph)


READERS: dict[str, Callable[[Path], object]] = {
    "npz": lambda folder: read_npz(folder / "a.npz"),
    "json": lambda folder: read_json(folder / "a.json"),
    "toml": lambda folder: read_options(folder / "a.toml"),
    "saint": lambda folder: read_saint(folder, "a"),
    "ogb": lambda folder: read_ogb(folder, "a"),
    "planetoid": lambda folder: read_planetoid(folder, "a"),
    "model": build_wide,
}
HOSTILE: list[tuple[Callable[[Path], None], str]] = [
    (packed_by_bzip2, "npz"),
    (packed_zeros, "npz"),
    (packed_edges, "npz"),
    (packed_flags, "npz"),
    (a_size_that_lies, "npz"),
    (many_columns, "npz"),
    (text_without_width, "npz"),
    (a_shape_beyond_the_file, "npz"),
    (nested_json, "json"),
    (lists_in_json, "saint"),
    (wide_labels, "saint"),
    (a_long_line, "ogb"),
    (a_line_of_columns, "ogb"),
    (many_nodes, "ogb"),
    (many_lines, "ogb"),
    (a_pickle_of_lists, "planetoid"),
    (a_pickle_that_doubles, "planetoid"),
    (a_pickle_with_hashes, "planetoid"),
    (nested_toml, "toml"),
    (a_key_of_many_parts, "toml"),
    (a_number_of_many_digits, "toml"),
    (a_wide_model, "model"),
]


def read_and_measure(reader: str, folder: Path, answers: Connection) -> None:
    """Reads a file in a process of its own; answers with the error and the growth of its memory in bytes."""
    # sets the peak back to the memory in use
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    limit = memory("VmSize") + 3 * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        READERS[reader](folder)
        found = "no error"
    except (GraphError, ConfigError, CheckpointError) as error:
        found = f"{type(error).__name__}: {error}"
    except BaseException as error:
        found = f"unexpected {type(error).__name__}: {error}"
    answers.send((found, memory("VmHWM") - before))


def memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell the peak of memory")
@pytest.mark.parametrize(("write", "reader"), HOSTILE, ids=[write.__name__ for write, _ in HOSTILE])
def test_a_hostile_file_takes_memory_in_proportion_to_its_size(
    write: Callable[[Path], None], reader: str, tmp_path: Path
) -> None:
    write(tmp_path)
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    answers, sender = get_context().Pipe(duplex=False)
    process = context().Process(target=read_and_measure, args=(reader, tmp_path, sender))
    process.start()
    assert answers.poll(60), "no answer in time"
    found, growth = answers.recv()
    process.join()
    assert found.startswith(("GraphError: ", "ConfigError: ", "CheckpointError: ")), found
    assert len(found) < 1000
    assert growth < 16 * size + OTHERS
