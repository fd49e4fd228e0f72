"""Proves that a refactoring changes no result: trains short seeded runs with two revisions and compares every bit.

    python scripts/compare_revisions.py REVISION

Trains every method with the source of `REVISION`, checked out beside the working tree, and with the working tree, which
takes all options that the run of `REVISION` has recorded: defaults may change, what an option does may not. Every
tensor of `best.safetensors` and every byte of the predictions must be equal. Runs of `REVISION` must also be evaluated
and predicted with by the working tree. Names that changed in between are given in `OPTIONS` and `TENSORS`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[1]
# names of options and of weights that changed: before -> after
OPTIONS = {"fanout": "num_neighbors"}
TENSORS = {f"layers.{layer}.neighbours": f"layers.{layer}.neighbors" for layer in range(2)}

SHORT = {"epochs": 6, "eval_every": 2, "diagnose_every": 3}
PARTS = SHORT | {"num_parts": 6, "parts_per_batch": 2, "partition": "random"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", SHORT),
    "appnp": ("appnp", SHORT),
    "lazygnn": ("lazygnn", SHORT),
    "lazygnn-plain": ("lazygnn", SHORT | {"response": "plain", "label_step": False, "norm": "batch"}),
    "lazygnn-parts": ("lazygnn", PARTS | {"norm": "batch", "mlp_layers": 3}),
    "lazygnn-host": ("lazygnn", PARTS | {"history": "host", "history_dtype": "bfloat16", "features": "host"}),
    "lazygnn-disk": ("lazygnn", PARTS | {"history": "disk", "history_dtype": "int8", "eval_storage": "disk"}),
    "lazygnn-halo-gradients": ("lazygnn", PARTS | {"halo_gradients": True}),
    "lazygnn-paper-halo": ("lazygnn", PARTS | {"halo": "paper", "gamma": 0.5, "prop_channels": 8}),
    "lazygnn-bfloat16": ("lazygnn", PARTS | {"precision": "bfloat16", "history_dtype": "float16"}),
    "lazygnn-paper": ("lazygnn-paper", PARTS),
    "lazygnn-paper-full": ("lazygnn-paper", SHORT | {"eval_layers": 7}),
    "gcn": ("gcn", SHORT | {"norm": "layer"}),
    "gcnii": ("gcnii", SHORT | {"norm": "batch", "shared_weights": False}),
    "gcn-gas": ("gcn-gas", PARTS | {"norm": "batch"}),
    "gcnii-gas": ("gcnii-gas", PARTS | {"num_layers": 4}),
    "appnp-gas": ("appnp-gas", PARTS | {"num_layers": 4}),
    "graphsage": ("graphsage", SHORT | {"batch_size": 100, "num_neighbors": [3, 5], "norm": "batch"}),
    "cluster-gcn": ("cluster-gcn", PARTS | {"diag_lambda": 0.5}),
    "sgc": ("sgc", SHORT | {"batch_size": 100}),
    "sign": ("sign", SHORT | {"mlp_layers": 2, "input_dropout": 0.1, "norm": "batch", "normalize_features": True}),
    "label-propagation": ("label-propagation", {"feature_neighbors": 3, "feature_hops": 1, "class_mass": True}),
}
DRIVER = """
import json, sys
import torch
from lazygnn.cli import app
torch.set_num_threads(1)
for arguments in json.load(open(sys.argv[1])):
    app(arguments, standalone_mode=False)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="what the working tree is compared with")
    parser.add_argument("--tolerance", type=float, default=0.0, help="allowed difference of a predicted probability")
    options = parser.parse_args()
    revision, tolerance = options.revision, options.tolerance
    known = ["git", "-C", str(ROOT), "rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}"]
    if subprocess.run(known, stdout=subprocess.DEVNULL).returncode != 0:
        parser.error(f"`{revision}` is not a revision of this repository; choose one of `git log --oneline`")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = folder / "graph.npz"
        write_graph(graph)
        earlier = folder / "earlier"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", earlier, revision], check=True)
        try:
            old = names_in(earlier)
            values = {case: {old.get(name, name): value for name, value in CASES[case][1].items()} for case in CASES}
            run(earlier, folder, [train(case, graph, folder / "before", values[case]) for case in CASES])
            run(earlier, folder, [predict(case, folder, "before", "before") for case in CASES])
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", earlier], check=True)
        run(ROOT, folder, [train(case, graph, folder / "after", recorded(folder / "before" / case)) for case in CASES])
        run(ROOT, folder, [predict(case, folder, "after", "after") for case in CASES])
        run(ROOT, folder, [["evaluate", str(folder / "before" / case), "--device", "cpu"] for case in CASES])
        run(ROOT, folder, [predict(case, folder, "before", "before-read-after") for case in CASES])
        failed = [case for case in CASES if not is_same(case, folder, tolerance)]
    print(f"{len(CASES) - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


def write_graph(path: Path) -> None:
    """Writes a graph of 600 nodes in five blocks, with sparse features."""
    rng = np.random.default_rng(0)
    num_nodes, num_classes, num_features = 600, 5, 40
    y = rng.integers(0, num_classes, num_nodes)
    likely = np.where(y[:, None] == y[None, :], 0.02, 0.002)
    upper = np.triu(rng.random((num_nodes, num_nodes)) < likely, k=1)
    x = rng.random((num_nodes, num_features)) < 0.05 + 0.1 * (np.arange(num_features) % num_classes == y[:, None])
    indptr = np.concatenate(([0], x.sum(axis=1).cumsum()))
    order = rng.permutation(num_nodes)
    np.savez(
        path,
        edge_index=np.stack((upper | upper.T).nonzero()),
        x_indptr=indptr,
        x_indices=x.nonzero()[1],
        x_data=rng.random(indptr[-1]).astype(np.float32),
        x_shape=np.array(x.shape),
        y=y,
        train_mask=order < 300,
        val_mask=(order >= 300) & (order < 450),
        test_mask=order >= 450,
    )


def names_in(tree: Path) -> dict[str, str]:
    """Returns the names that options have in the source of a tree, by their names of today, where the two differ."""
    source = "".join(path.read_text() for path in (tree / "src").rglob("*.py"))
    return {new: old for old, new in OPTIONS.items() if f"    {old}:" in source}


def train(case: str, graph: Path, out: Path, options: dict[str, Any]) -> list[str]:
    """Returns the arguments of a training."""
    settings = [
        argument
        for name, value in options.items()
        for argument in ("--set", f"{name}={'none' if value is None else json.dumps(value)}")
    ]
    return ["train", CASES[case][0], str(graph), "--out", str(out / case), "--device", "cpu", "--quiet", *settings]


def recorded(run: Path) -> dict[str, Any]:
    """Returns all options of an earlier run, by their names of today; a full batch has no partition."""
    config = json.loads((run / "config.json").read_text())
    values = {OPTIONS.get(name, name): value for name, value in (config["trainer"] | config["model"]).items()}
    if values.get("num_parts") == 1:
        del values["partition"]
    return values


def predict(case: str, folder: Path, runs: str, out: str) -> list[str]:
    """Returns the arguments of a prediction."""
    return ["predict", str(folder / runs / case), "--out", str(folder / f"{out}-{case}.csv"), "--device", "cpu"]


def run(tree: Path, folder: Path, commands: list[list[str]]) -> None:
    """Runs commands of `lazygnn` in one process, with the source of a tree."""
    script = folder / "commands.json"
    script.write_text(json.dumps(commands))
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "LAZYGNN_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", DRIVER, str(script)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, cwd=folder)


def is_same(case: str, folder: Path, tolerance: float) -> bool:
    """Compares the results of two revisions in a case, and prints the differences."""
    before, after = (load_file(folder / side / case / "best.safetensors") for side in ("before", "after"))
    before = {TENSORS.get(name, name): value for name, value in before.items()}
    differing = [name for name in before.keys() & after.keys() if not torch.equal(before[name], after[name])]
    differing += sorted(before.keys() ^ after.keys())
    tables = [folder / f"{side}-{case}.csv" for side in ("before", "after", "before-read-after")]
    largest = max(difference(tables[0], table) for table in tables[1:])
    same = not differing and largest <= tolerance
    size = f"{len(before)} tensors, {tables[0].stat().st_size} bytes"
    found = f", a probability differs by {largest:.1e}" if largest else ""
    print(f"{case:24} {'same' if same else 'DIFFERENT'}: {size}{found}", *differing)
    return same


def difference(first: Path, second: Path) -> float:
    """Returns the largest difference of the probabilities of two tables, infinite if more than these differs."""
    if first.read_bytes() == second.read_bytes():
        return 0.0
    pairs = [[line.rsplit(",", 1) for line in table.read_text().splitlines()] for table in (first, second)]
    if [row[0] for row in pairs[0]] != [row[0] for row in pairs[1]]:
        return float("inf")
    return max(abs(float(one[1]) - float(other[1])) for one, other in zip(pairs[0][1:], pairs[1][1:], strict=True))


if __name__ == "__main__":
    main()
