import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lazygnn.data import ogb
from lazygnn.data.ogb import read_ogb
from lazygnn.errors import GraphError

# four nodes; the edges point one way, as in the original files
FILES = {
    "raw/edge": "0,1\n2,1\n3,2\n",
    "raw/node-feat": "0.1,-2.5\n1e-3,4\n-0.057943,0.0\n3,1.17549435e-38\n",
    "raw/node-label": "3\n0\n1\n0\n",
    "raw/num-node-list": "4\n",
    "raw/num-edge-list": "3\n",
    "split/time/train": "0\n2\n",
    "split/time/valid": "3\n",
    "split/time/test": "1\n",
}


@pytest.fixture(params=["arrow", "numpy"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "numpy":
        # an entry of None makes the import fail
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    else:
        pytest.importorskip("pyarrow")
    return name


def write(folder: Path, changes: dict[str, str | bytes | None] | None = None, *, ending: str = ".csv.gz") -> Path:
    for name, content in (FILES | (changes or {})).items():
        path = folder / f"{name}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            data = content.encode()
            path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
        elif content is not None:
            path.write_bytes(content)
    return folder


@pytest.mark.parametrize("ending", [".csv.gz", ".csv"])
def test_all_fields_are_read(tmp_path: Path, parser: str, ending: str) -> None:
    graph = read_ogb(write(tmp_path, ending=ending), "tiny")
    expected = np.array([[0.1, -2.5], [1e-3, 4], [-0.057943, 0], [3, 1.17549435e-38]], dtype=np.float32)
    assert torch.equal(torch.as_tensor(graph.x), torch.from_numpy(expected))
    assert graph.y.tolist() == [3, 0, 1, 0]
    assert graph.task.num_outputs == 4
    pairs = set(zip(graph.adj.row_index().tolist(), graph.adj.col.tolist(), strict=True))
    edges = {(0, 1), (2, 1), (3, 2)}
    assert pairs == edges | {(j, i) for i, j in edges} | {(i, i) for i in range(4)}
    assert {split: mask.nonzero()[:, 0].tolist() for split, mask in graph.masks.items()} == {
        "train": [0, 2],
        "val": [3],
        "test": [1],
    }
    assert graph.name == "tiny"


@pytest.mark.parametrize("label", ["3\nnan\n1\n0\n", "3.0\nnan\n1.0\n0.0"])
def test_label_nan_is_unknown_and_left_out_of_the_splits(tmp_path: Path, parser: str, label: str) -> None:
    graph = read_ogb(
        write(tmp_path, {"raw/node-label": label, "split/time/test": "1\n3\n", "split/time/valid": ""}), "tiny"
    )
    assert graph.y.tolist() == [3, -1, 1, 0]
    assert graph.masks["test"].nonzero()[:, 0].tolist() == [3]


def test_split_by_sales_ranking_is_found(tmp_path: Path, parser: str) -> None:
    (write(tmp_path) / "split" / "time").rename(tmp_path / "split" / "sales_ranking")
    assert read_ogb(tmp_path, "tiny").masks["val"].nonzero()[:, 0].tolist() == [3]


def test_number_of_edges_need_not_be_given(tmp_path: Path, parser: str) -> None:
    assert read_ogb(write(tmp_path, {"raw/num-edge-list": None}), "tiny").num_edges == 3


def test_graph_without_edges_is_read(tmp_path: Path, parser: str) -> None:
    assert read_ogb(write(tmp_path, {"raw/edge": "", "raw/num-edge-list": None}), "tiny").num_edges == 0


def test_arrow_and_numpy_read_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    # small blocks, so that they end within lines
    monkeypatch.setattr(ogb, "_BLOCK_BYTES", 1 << 12)
    rng = np.random.default_rng(0)
    floats = rng.standard_normal((1000, 7)) * 10.0 ** rng.integers(-30, 30, (1000, 7))
    floats[5, 3] = np.nan
    for form in ("{:.6f}", "{:.17e}", "{!r}"):
        path = tmp_path / "floats.csv.gz"
        text = "\n".join(",".join(form.format(value) for value in row) for row in floats.tolist())
        path.write_bytes(gzip.compress(text.encode()))
        blocks = list(ogb._lines(path))
        assert len(blocks) > 1
        arrow, plain = (
            np.concatenate([parse(lines, np.float64, 7) for lines in blocks])
            for parse in (ogb._arrow_parse, ogb._numpy_parse)
        )
        np.testing.assert_array_equal(arrow, plain)
    np.testing.assert_array_equal(plain, floats)

    integers = rng.integers(-(2**62), 2**62, (3000, 2))
    path = tmp_path / "integers.csv"
    path.write_text("".join(f"{a},{b}\r\n" for a, b in integers.tolist()))
    for parse in (ogb._arrow_parse, ogb._numpy_parse):
        found = np.concatenate([parse(lines, np.int64, 2) for lines in ogb._lines(path)])
        np.testing.assert_array_equal(found, integers)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_blocks_of_any_size_join_to_the_file(
    tmp_path: Path, parser: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ogb, "_BLOCK_BYTES", size)
    path = tmp_path / "pairs.csv"
    for text in ("1,2\n34,5\n6,789", "1,2\n\n\n\n34,5\n6,789\n\n"):
        path.write_text(text)
        found = np.concatenate(list(ogb._blocks(path, np.int64, 2, most=3)))
        assert found.tolist() == [[1, 2], [34, 5], [6, 789]]


def test_error_in_a_late_block_is_reported(tmp_path: Path, parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ogb, "_BLOCK_BYTES", 1 << 12)
    for last, message in (("0,4", "names node 4"), ("0,x", "cannot be read"), ("0", "cannot be read")):
        write(tmp_path, {"raw/edge": "0,1\n" * 20_000 + last + "\n" + "0,1\n" * 20_000})
        with pytest.raises(GraphError, match=rf"(?s)edge\.csv\.gz` {message}"):
            read_ogb(tmp_path, "tiny")


@pytest.mark.parametrize("name", [name for name in FILES if "num-edge" not in name])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: None})
    with pytest.raises(GraphError, match=rf"{name}\.csv\.gz` is missing; put the file there or download"):
        read_ogb(tmp_path, "tiny")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["empty", "cut", "garbage", "text"])
def test_corrupt_file_is_named(tmp_path: Path, parser: str, name: str, change: str) -> None:
    whole = gzip.compress(FILES[name].encode())
    changed = {"cut": whole[: len(whole) // 2], "garbage": bytes(range(256)), "text": b"<html>", "empty": b""}[change]
    write(tmp_path, {name: changed})
    # Python reads a file of zero bytes as an empty archive
    message = "is empty|holds|has 0 rows|`train_mask` is empty" if change == "empty" else "cannot be read"
    if change == "empty" and name in ("split/time/valid", "split/time/test"):
        assert len(read_ogb(tmp_path, "tiny").masks) == 2
        return
    with pytest.raises(GraphError, match=f"(?s){message}"):
        read_ogb(tmp_path, "tiny")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"raw/num-node-list": "4\n4\n"}, r"num-node-list\.csv\.gz` holds \[4, 4\]; it must hold one positive number"),
        ({"raw/num-node-list": "0\n"}, r"num-node-list\.csv\.gz` holds \[0\]"),
        ({"raw/num-node-list": "4,4\n"}, r"num-node-list\.csv\.gz` cannot be read"),
        ({"raw/num-node-list": "4.5\n"}, r"num-node-list\.csv\.gz` cannot be read"),
        ({"raw/num-node-list": "99999999999999999999\n"}, r"num-node-list\.csv\.gz` cannot be read"),
        ({"raw/num-node-list": "5\n"}, r"node-feat\.csv\.gz` has 4 rows, 5 were expected"),
        ({"raw/num-node-list": "3\n"}, r"node-feat\.csv\.gz` has more than 3 rows; download the data set again"),
        ({"raw/num-edge-list": "4\n"}, r"edge\.csv\.gz` has 3 rows, 4 were expected"),
        ({"raw/node-feat": ""}, r"node-feat\.csv\.gz` is empty"),
        ({"raw/node-feat": "1,2\n1,2,3\n1,2\n1,2\n"}, r"node-feat\.csv\.gz` cannot be read"),
        ({"raw/node-feat": "1,2\n1,\n1,2\n1,2\n"}, r"node-feat\.csv\.gz` cannot be read"),
        ({"raw/node-feat": "1,2\n1,one\n1,2\n1,2\n"}, r"node-feat\.csv\.gz` cannot be read"),
        ({"raw/node-feat": '1,2\n1,"2"\n1,2\n1,2\n'}, r"node-feat\.csv\.gz` cannot be read"),
        (
            {"raw/node-feat": "1,2\n1,nan\n1,2\n1,2\n"},
            r"node-feat\.csv\.gz` has a value in row 1 that is not a finite float32",
        ),
        (
            {"raw/node-feat": "1,2\n1,2\n1,2\n1,1e300\n"},
            r"node-feat\.csv\.gz` has a value in row 3 that is not a finite",
        ),
        ({"raw/edge": "0,1\n2,4\n3,2\n"}, r"edge\.csv\.gz` names node 4; nodes go from 0 to 3"),
        ({"raw/edge": "0,1\n-1,3\n3,2\n"}, r"edge\.csv\.gz` names node -1; nodes go from 0 to 3"),
        ({"raw/edge": "0,1\n1,nan\n3,2\n"}, r"edge\.csv\.gz` cannot be read"),
        ({"raw/edge": "0,1\n# 1,2\n3,2\n"}, r"edge\.csv\.gz` cannot be read"),
        ({"raw/edge": "0,1,1\n"}, r"edge\.csv\.gz` cannot be read"),
        ({"raw/node-label": "0,1\n" * 4}, r"node-label\.csv\.gz` has 2 columns; OGB files must have one class"),
        ({"raw/node-label": "0\n1\n2\n"}, r"node-label\.csv\.gz` has 3 rows, 4 were expected"),
        (
            {"raw/node-label": "0\n1\n0.5\n2\n"},
            r"node-label\.csv\.gz` has label 0.5 in row 2; labels are integers from 0",
        ),
        ({"raw/node-label": "0\n1\n-2\n2\n"}, r"node-label\.csv\.gz` has label -2.0 in row 2"),
        ({"raw/node-label": "0\n1\ninf\n2\n"}, r"node-label\.csv\.gz` has label inf in row 2"),
        ({"split/time/valid": "4\n"}, r"valid\.csv\.gz` names node 4; nodes go from 0 to 3"),
        ({"split/time/valid": "2\n"}, r"valid\.csv\.gz` names node 2, which is in another split too"),
    ],
)
def test_inconsistent_content_is_refused(
    tmp_path: Path, parser: str, changes: dict[str, str | bytes | None], message: str
) -> None:
    write(tmp_path, changes)
    with pytest.raises(GraphError, match=f"(?s){message}"):
        read_ogb(tmp_path, "tiny")


def test_split_must_be_unique(tmp_path: Path) -> None:
    (write(tmp_path) / "split" / "sales_ranking").mkdir()
    with pytest.raises(GraphError, match=r"split` has \['time', 'sales_ranking'\]; it must have one folder of"):
        read_ogb(tmp_path, "tiny")
    (tmp_path / "split" / "sales_ranking").rmdir()
    (tmp_path / "split" / "time").rename(tmp_path / "split" / "random")
    with pytest.raises(GraphError, match=r"split` has no split; it must have one folder of: time, sales_ranking"):
        read_ogb(tmp_path, "tiny")
