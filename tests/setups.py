"""Short trainings of every kind that must not notice an interruption, and what they are compared by."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.run.folder import CHECKPOINTS, CHOSEN, CONFIG, INPUTS, WEIGHTS, Run

COMMON: dict[str, Any] = {"hidden_channels": 8, "norm": "batch", "diagnose_every": 2, "checkpoint_every": 1}
PARTS: dict[str, Any] = {"num_parts": 5, "parts_per_batch": 2, "partition": "random"}
LAZY: dict[str, Any] = {"beta": 0.1, "gamma": 0.5, **PARTS}
DEEP: dict[str, Any] = {"num_blocks": 2, "alphas": "[0.1,-0.5]", "view_channels": 5}
# the method and the options of each
SETUPS: dict[str, tuple[str, dict[str, Any]]] = {
    "full batch": ("lazygnn", {}),
    "parts": ("lazygnn", LAZY),
    "host": ("lazygnn", LAZY | {"history": "host"}),
    "disk": ("lazygnn", LAZY | {"history": "disk"}),
    "halo gradients": ("lazygnn", LAZY | {"halo_gradients": "true"}),
    "bfloat16": ("lazygnn", LAZY | {"history_dtype": "bfloat16"}),
    "int8 on disk": ("lazygnn", LAZY | {"history_dtype": "int8", "history": "disk"}),
    "deep full batch": ("lazygnn-deep", DEEP),
    "deep parts": ("lazygnn-deep", DEEP | PARTS | {"history": "disk"}),
    "gas": ("gcn-gas", PARTS),
}
# fields of a result that differ between two equal trainings
TIMES = {"seconds", "seconds_per_epoch", "eval_seconds", "peak_memory_mib", "run"}


def write_graph(path: Path) -> None:
    """Writes a graph of 300 nodes, four classes and six features."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 300)
    edges = rng.integers(0, 300, (2, 4000))
    edges = edges[:, y[edges[0]] == y[edges[1]]]
    split = rng.integers(0, 3, 300)
    masks = {f"{name}_mask": split == index for index, name in enumerate(("train", "val", "test"))}
    np.savez(path, edge_index=edges, x=rng.normal(size=(300, 6)) + np.eye(6)[y], y=y, **masks)


def start(name: str, graph: Path, run: Path, epochs: int, **options: Any) -> list[str]:
    """Returns the command that starts a training."""
    method, own = SETUPS[name]
    pairs = [f"{key}={value}" for key, value in (COMMON | own | {"epochs": epochs} | options).items()]
    settings = [part for pair in pairs for part in ("--set", pair)]
    return ["train", method, str(graph), "--out", str(run), "--quiet", "--device", "cpu", *settings]


def resume(run: Path) -> list[str]:
    """Returns the command that resumes a training."""
    return ["train", "--resume", str(run), "--quiet"]


def outcome(path: Path) -> dict[str, Any]:
    """Returns all that a training leaves, but for its times; files that do not fit their digests are an error."""
    run = Run.open(path)
    saved = CheckpointFolder(path / CHECKPOINTS).load_latest()
    assert saved is not None
    # a view as bytes, since numpy has no bfloat16
    tensors = {name: value.contiguous().view(-1).view(torch.uint8).tolist() for name, value in saved.tensors.items()}
    run.load_weights()
    return {
        "weights": (path / WEIGHTS).read_bytes(),
        "result": {name: value for name, value in run.result().items() if name not in TIMES},
        "log": [{name: value for name, value in line.items() if name != "seconds"} for line in run.log.read()],
        "checkpoint": (saved.number, tensors),
        "settings": [json.loads((path / name).read_text()) for name in (CONFIG, CHOSEN, INPUTS)],
        "files": sorted(file.name for file in path.iterdir()),
    }


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Returns what two trainings differ in."""
    return [name for name in one if one[name] != other[name]]
