import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn import commands
from lazygnn.commands.embedding import write_embeddings
from lazygnn.commands.exporting import EXPORTED, export_run
from lazygnn.config import Config
from lazygnn.errors import ConfigError
from lazygnn.export import plain
from lazygnn.run.folder import Run

Configure = Callable[..., Config]
VARIANTS: dict[str, dict[str, Any]] = {
    **{method: {} for method in EXPORTED},
    "lazygnn, batch norm": {"norm": "batch", "mlp_layers": 3, "num_parts": 2, "partition": "random"},
    "lazygnn, steps": {"eval_layers": 3, "normalize_features": True},
    "lazygnn, head": {"prop_channels": 5},
    "lazygnn-deep, every view": {"alphas": [0.1, -0.5], "view_channels": 4, "num_blocks": 2, "norm": "batch"},
    "lazygnn-deep, stack alone": {"beside": [], "num_blocks": 1, "norm": "none", "eval_layers": 3},
    "lazygnn-deep, labels": {"label_input": 0.5, "beside": []},
    "gcn, layer norm": {"norm": "layer", "num_layers": 3},
    "graphsage, batch norm": {"norm": "batch", "normalize_features": True},
}


def known_labels(network: plain.Network, arrays: dict[str, Any]) -> Tensor:
    return network.known(torch.from_numpy(arrays["y"]), torch.from_numpy(arrays["train_mask"]))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_plain_file_computes_the_outputs_of_the_run(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], name: str, configure: Configure
) -> None:
    commands.train(configure(dataset, name.split(",")[0], lr=0.05, **VARIANTS[name]), tmp_path / "run", quiet=True)
    expected, _, _ = commands.predict_run(tmp_path / "run", device="cpu")
    description = export_run(tmp_path / "run", tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["model.json", "model.py", "weights.safetensors"]
    assert json.loads((tmp_path / "out" / "model.json").read_text()) == description
    network = plain.load(tmp_path / "out")
    x, edges = torch.from_numpy(block_arrays["x"]), torch.from_numpy(block_arrays["edge_index"])
    labels = known_labels(network, block_arrays) if description["reads_labels"] else None
    assert description["reads_labels"] == (name == "lazygnn-deep, labels")
    torch.testing.assert_close(network(x, edges, labels=labels), expected, rtol=1e-5, atol=1e-5)
    found = network.predict(x, edges, labels=labels)
    torch.testing.assert_close(found, expected.softmax(dim=1), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"`x` has shape \(60, 2\); give \[nodes, 3\]"):
        network(x[:, :2], edges)


def test_the_plain_file_runs_without_this_library(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    commands.train(configure(dataset), tmp_path / "run", quiet=True)
    export_run(tmp_path / "run", tmp_path / "out")
    # a module of that name that fails to import stands before any installed one
    (tmp_path / "out" / "lazygnn.py").write_text("raise ImportError('lazygnn was imported')")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    call = [sys.executable, "model.py", str(dataset), "predictions.npy"]
    subprocess.run(call, cwd=tmp_path / "out", env=environment, check=True)
    expected, _, _ = commands.predict_run(tmp_path / "run", device="cpu")
    found = np.load(tmp_path / "out" / "predictions.npy")
    np.testing.assert_allclose(found, expected.softmax(dim=1), rtol=1e-5, atol=1e-5)


def test_the_plain_file_says_what_it_needs(
    dataset: Path,
    tmp_path: Path,
    block_arrays: dict[str, Any],
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands.train(configure(dataset), tmp_path / "run", quiet=True)
    export_run(tmp_path / "run", tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plain, "__file__", str(tmp_path / "out" / "model.py"))
    x, edges = block_arrays["x"], block_arrays["edge_index"]
    holed, huge = x.copy(), x.astype(np.float64)
    holed[[7, 9], 1], huge[3, 0] = np.nan, 1e300
    np.savez("graph.npz", x=x, edge_index=edges)
    np.savez("sparse.npz", edge_index=edges)
    np.savez("few.npz", x=x[:, :2], edge_index=edges)
    np.savez("holed.npz", x=holed, edge_index=edges)
    np.savez("huge.npz", x=huge, edge_index=edges)
    np.savez("texts.npz", x=x.astype(str), edge_index=edges)
    np.savez("fractions.npz", x=x, edge_index=edges + 0.5)
    np.savez("transposed.npz", x=x, edge_index=edges.T)
    np.savez("weights.npz", x=x, edge_index=edges, edge_weight=np.full(edges.shape[1], np.nan))
    np.save("array.npy", x)
    Path("folder").mkdir()
    Path("text.npz").write_text("a,b")
    Path("empty.npz").touch()
    Path("cut.npz").write_bytes(Path("graph.npz").read_bytes()[:200])
    for graph, message in {
        "sparse.npz": r"`sparse.npz` has no array `x`; save it with dense features, \[N, D\]",
        "few.npz": r"`few.npz`: `x` has shape \(60, 2\); give \[nodes, 3\]",
        "holed.npz": "`holed.npz`: row 7 of `x` has a number that is NaN or infinite; replace it",
        "huge.npz": "`huge.npz`: row 3 of `x` has a number that is NaN or infinite; replace it",
        "texts.npz": "`texts.npz`: can't convert np.ndarray of type numpy.str_.*",
        "fractions.npz": r"`fractions.npz`: `edge_index` has shape .* and type float64; give integers or .*",
        "transposed.npz": r"`transposed.npz`: `edge_index` has shape \(\d+, 2\) and type int64; give integers .*",
        "weights.npz": "`weights.npz`: `weight` has to be a finite number of at least 0 for every edge",
        "missing.npz": "cannot read `missing.npz`: No such file or directory; give a file that `numpy.savez` wrote",
        "folder": "cannot read `folder`: Is a directory; give a file that `numpy.savez` wrote",
        **{name: f"cannot read `{name}`: .*; give a .*" for name in ("array.npy", "text.npz", "empty.npz", "cut.npz")},
    }.items():
        with pytest.raises(SystemExit, match=f"^error: {message}$"):
            plain.main(graph, "predictions.npy")
    with pytest.raises(
        SystemExit, match=r"^error: cannot write `no/out.npy`: No such file or directory; choose another"
    ):
        plain.main("graph.npz", "no/out.npy")
    assert not Path("predictions.npy").exists()
    for arguments, last in {
        ("missing.npz", "out.npy"): "error: cannot read `missing.npz`: No such file or directory; give a file that ",
        ("graph.npz",): "usage: python out/model.py graph.npz predictions.npy",
    }.items():
        call = [sys.executable, "out/model.py", *arguments]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(last)
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("texts", [False, True], ids=["integers", "texts"])
def test_the_program_reads_edges_between_ids(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure, texts: bool
) -> None:
    commands.train(configure(dataset, "gcn", lr=0.05), tmp_path / "run", quiet=True)
    export_run(tmp_path / "run", tmp_path / "out")
    ids = np.random.default_rng(0).permutation(60)
    ids = np.array([f"node {number}" for number in ids]) if texts else ids
    named = block_arrays | {"node_ids": ids, "edge_index": ids[block_arrays["edge_index"]]}
    np.savez(tmp_path / "named.npz", **named)
    call = [sys.executable, "out/model.py", "named.npz", "predictions.npy"]
    subprocess.run(call, cwd=tmp_path, check=True)
    expected, _, _ = commands.predict_run(tmp_path / "run", device="cpu")
    np.testing.assert_allclose(np.load(tmp_path / "predictions.npy"), expected.softmax(dim=1), rtol=1e-5, atol=1e-5)
    again, _, _ = commands.predict_run(tmp_path / "run", tmp_path / "named.npz", device="cpu")
    torch.testing.assert_close(again, expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"edge_index": np.array([[0], [60]])}, "names node 60, which is not in 0 to 59; remove the edge"),
        ({"edge_index": np.array([[0], [-1]])}, "names node -1, which is not in 0 to 59; remove the edge"),
        (
            {"edge_index": np.array([[1], [0]]), "node_ids": np.arange(1, 61)},
            "node 0, which is not in `node_ids`",
        ),
        ({"edge_index": np.array([["a"], ["b"]])}, "holds texts; add `node_ids`, or give positions of nodes"),
    ],
    ids=["too large", "negative", "unknown", "texts"],
)
def test_the_program_refuses_edges_of_unknown_nodes(
    dataset: Path,
    tmp_path: Path,
    block_arrays: dict[str, Any],
    configure: Configure,
    change: dict[str, Any],
    said: str,
) -> None:
    commands.train(configure(dataset, "mlp"), tmp_path / "run", quiet=True)
    export_run(tmp_path / "run", tmp_path / "out")
    np.savez(tmp_path / "wrong.npz", **block_arrays | change)
    call = [sys.executable, "out/model.py", "wrong.npz", "predictions.npy"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: `wrong.npz`: `edge_index` ")
    assert said in done.stderr


def test_every_model_of_a_mixture_is_exported(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure
) -> None:
    """Validation may choose one model of a few epochs alone, so the weights are set here."""
    options = {"alphas": [0.2, -0.4], "beside": ["narrow", "convolutions", "mlp", "decoupled"]}
    commands.train(configure(dataset, "lazygnn-deep", lr=0.05, **options), tmp_path / "run", quiet=True)
    run = Run.open(tmp_path / "run")
    run.save_weights(run.load_weights() | {"weights": torch.full((5,), 0.2)})
    expected, _, _ = commands.predict_run(tmp_path / "run", device="cpu")
    description = export_run(tmp_path / "run", tmp_path / "out")
    assert [each["kind"] for each in description["models"]] == ["blocks"] * 3 + ["decoupled"] * 2
    x, edges = torch.from_numpy(block_arrays["x"]), torch.from_numpy(block_arrays["edge_index"])
    torch.testing.assert_close(plain.load(tmp_path / "out")(x, edges), expected, rtol=1e-5, atol=1e-5)
    assert write_embeddings(tmp_path / "run", tmp_path / "rows.npy", device="cpu") == (60, 4 * 8 + 2)


@pytest.mark.parametrize("task", ["multi-label", "regression"])
def test_labels_of_every_task_are_read(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure, task: str
) -> None:
    first, second = block_arrays["x"][:, 0], block_arrays["x"][:, 1]
    y = np.stack((first > 0, second > 0), axis=1).astype(np.int8) if task == "multi-label" else 100 + 10 * first
    arrays = block_arrays | {"y": y}
    np.savez(dataset, **arrays)
    options = {"label_input": 0.5, "beside": ["mlp"]}
    commands.train(configure(dataset, "lazygnn-deep", lr=0.05, **options), tmp_path / "run", quiet=True)
    run = Run.open(tmp_path / "run")
    name = "weights" if task == "multi-label" else "model.weights"
    run.save_weights(run.load_weights() | {name: torch.tensor([0.75, 0.25])})
    expected, _, _ = commands.predict_run(tmp_path / "run", device="cpu")
    assert export_run(tmp_path / "run", tmp_path / "out")["task"] == task
    network = plain.load(tmp_path / "out")
    x, edges = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["edge_index"])
    found = network(x, edges, labels=known_labels(network, arrays))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(network(x, edges), expected, rtol=1e-4, atol=1e-5)


def test_the_program_reads_labels_or_says_that_it_has_none(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure
) -> None:
    commands.train(configure(dataset, "lazygnn-deep", label_input=0.5, beside=[]), tmp_path / "run", quiet=True)
    export_run(tmp_path / "run", tmp_path / "out")
    np.savez(tmp_path / "bare.npz", x=block_arrays["x"], edge_index=block_arrays["edge_index"])
    np.savez(tmp_path / "unmasked.npz", **{name: block_arrays[name] for name in ("x", "edge_index", "y")})
    warnings = {
        str(dataset): "",
        "bare.npz": "warning: `bare.npz` has no `y` and `train_mask`; the network reads known labels, so give them\n",
        "unmasked.npz": "warning: `unmasked.npz` has no `train_mask`; the network reads known labels, so give them\n",
    }
    for graph, message in warnings.items():
        call = [sys.executable, "out/model.py", graph, "predictions.npy"]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
        # torch may have warnings of its own
        told = [line for line in done.stderr.splitlines(keepends=True) if line.startswith("warning: ")]
        assert (done.returncode, "".join(told)) == (0, message)
        labeled = dataset if not message else tmp_path / "bare.npz"
        expected, _, _ = commands.predict_run(tmp_path / "run", labeled, device="cpu")
        np.testing.assert_allclose(np.load(tmp_path / "predictions.npy"), expected.softmax(dim=1), rtol=1e-5, atol=1e-5)


def test_labels_that_a_network_does_not_read_are_refused(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure
) -> None:
    commands.train(configure(dataset, "mlp"), tmp_path / "run", quiet=True)
    export_run(tmp_path / "run", tmp_path / "out")
    network, x = plain.load(tmp_path / "out"), torch.from_numpy(block_arrays["x"])
    with pytest.raises(ValueError, match="reads no labels; omit `labels`"):
        network(x, torch.from_numpy(block_arrays["edge_index"]), labels=torch.zeros(60))
    # nor does the program look at them
    np.savez(tmp_path / "named.npz", x=block_arrays["x"], edge_index=block_arrays["edge_index"], y=np.array(["a"] * 60))
    call = [sys.executable, "out/model.py", "named.npz", "predictions.npy"]
    subprocess.run(call, cwd=tmp_path, check=True)
    np.testing.assert_allclose(
        np.load(tmp_path / "predictions.npy"), network.predict(x, torch.from_numpy(block_arrays["edge_index"]))
    )


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        ("single-label", torch.zeros(60, 1, dtype=torch.long), "classes below 3"),
        ("single-label", torch.zeros(60), "classes below 3"),
        ("single-label", torch.full((60,), 3), "classes below 3"),
        ("multi-label", torch.zeros(60), r"`labels` have shape \(60,\); give \[nodes, 2\]"),
    ],
    ids=["a column", "floats", "another class", "no columns"],
)
def test_labels_of_another_kind_are_refused(
    dataset: Path,
    tmp_path: Path,
    block_arrays: dict[str, Any],
    configure: Configure,
    task: str,
    labels: Tensor,
    message: str,
) -> None:
    y = block_arrays["y"] if task == "single-label" else (block_arrays["x"][:, :2] > 0).astype(np.int8)
    np.savez(dataset, **block_arrays | {"y": y})
    commands.train(configure(dataset, "lazygnn-deep", label_input=0.5, beside=[]), tmp_path / "run", quiet=True)
    export_run(tmp_path / "run", tmp_path / "out")
    network, x = plain.load(tmp_path / "out"), torch.from_numpy(block_arrays["x"])
    edges = torch.from_numpy(block_arrays["edge_index"])
    with pytest.raises(ValueError, match=message):
        network(x, edges, labels=labels)
    with pytest.raises(
        ValueError, match=r"`mask` has shape \(60,\) and type torch.int64, .*; give both for every node"
    ):
        network.known(torch.from_numpy(y), torch.ones(60, dtype=torch.long))
    # arrays are taken too
    known = network.known(y, block_arrays["train_mask"])
    assert torch.equal(network.targets(known), network.targets(known_labels(network, block_arrays | {"y": y})))
    with pytest.warns(UserWarning, match="no `labels` are given to a network that reads them; see `known`"):
        network.predict(x, edges)
    if task == "multi-label":
        # -1 and NaN both mean an unknown label
        unknown = torch.tensor([[-1.0, 1.0], [torch.nan, 0.0]]).repeat(30, 1)
        assert torch.equal(network.targets(unknown), torch.zeros(60, 2))
    else:
        with pytest.raises(ValueError, match=r"`y` has shape \(60, 1\) and type torch.int64; give a class for every"):
            network.known(torch.zeros(60, 1, dtype=torch.long), torch.ones(60, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
def test_edges_of_small_integers_do_not_overflow(dtype: torch.dtype) -> None:
    size = {torch.int16: 400, torch.int32: 70_000}[dtype]
    edges = torch.tensor([[size - 1], [2]])
    expected, found = (plain.undirected(each, None, size) for each in (edges, edges.to(dtype)))
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one, other)


def test_other_methods_and_folders_in_use_are_refused(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    commands.train(configure(dataset, "sgc"), tmp_path / "run", quiet=True)
    with pytest.raises(ConfigError, match=r"`sgc` cannot be exported; methods that can: mlp, appnp, appnp-gas"):
        export_run(tmp_path / "run", tmp_path / "out")
    with pytest.raises(ConfigError, match=r"`.*run` exists; choose another `--out` or remove it"):
        export_run(tmp_path / "run", tmp_path / "run")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("method", "unit"), [("mlp", 1.0), ("lazygnn", 1e6), ("lazygnn", 1e-6)])
def test_regression_outputs_are_in_the_units_of_the_data(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure, method: str, unit: float
) -> None:
    y = unit * (100.0 + 10 * block_arrays["x"][:, 0])
    np.savez(dataset, **block_arrays | {"y": y, "task": "regression"})
    commands.train(configure(dataset, method, lr=0.05), tmp_path / "run", quiet=True)
    expected, _, _ = commands.predict_run(tmp_path / "run", device="cpu")
    export_run(tmp_path / "run", tmp_path / "out")
    x, edges = torch.from_numpy(block_arrays["x"]), torch.from_numpy(block_arrays["edge_index"])
    deviation = y[block_arrays["train_mask"]].std()
    found = plain.load(tmp_path / "out").predict(x, edges)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5 * deviation)
    assert float(expected.mean()) > 50 * unit
    assert write_embeddings(tmp_path / "run", tmp_path / "rows.npy", device="cpu") == (60, 8)
