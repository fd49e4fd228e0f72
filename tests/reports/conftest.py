"""Reports of every task, and runs to make pages of."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.reports import Entry, make_report
from tests.helpers import random_rows

HOSTILE = "<script>alert(1)</script>"


def _judged(kind: str) -> tuple[Tensor, Graph]:
    """Returns a graph of 200 nodes on a ring, and outputs that are right for most of them."""
    at = np.arange(200)
    y, noise = at // 5 % 4, random_rows(200, 4, 0)
    ring = np.stack((at, (at + 1) % 200))
    wanted = 2.0 * torch.eye(4, dtype=torch.float64)[torch.from_numpy(y)] - 1
    targets: dict[str, Any] = {
        "single-label": y,
        "multi-label": (wanted > 0).long().numpy(),
        "regression": 1e4 + 100 * wanted.numpy(),
    }
    outputs = 1e4 + 100 * wanted + 30 * noise if kind == "regression" else 2 * wanted + 1.5 * noise
    names = ("red", "green & blue", HOSTILE, "never")
    if kind != "regression":
        outputs[:, 3] = -10
    graph = Graph.from_edges(
        np.concatenate((ring, ring[::-1]), axis=1),
        np.ones((200, 2)),
        targets[kind],
        train_mask=at % 4 == 0,
        val_mask=at % 4 == 1,
        test_mask=at % 4 > 1,
        node_ids=np.array([f"<node {index}>" for index in at]),
        class_names=names,
        num_classes=4 if kind == "single-label" else None,
    )
    return outputs, graph


def _entry(kind: str) -> Entry:
    outputs, graph = _judged(kind)
    metric = graph.task.metrics[0]
    log = [
        {
            "epoch": epoch,
            "loss": 1 / epoch,
            "seconds": 0.5,
            "scores": dict.fromkeys(("train", "val", "test"), 1 - 0.5 / epoch) if epoch % 2 else None,
        }
        for epoch in range(1, 12)
    ]
    trainer = {"epochs": 11, "lr": 0.01, "decay_layers": None}
    config = {"method": "lazygnn", "dataset": f"/home/me/{HOSTILE}.npz", "root": "/home/me", "trainer": trainer}
    result = {"metric": metric, "val": 0.9, "test": 0.8, "epochs": 11, "best_epoch": 11, "peak_memory_mib": 512.5}
    result |= {"seconds_per_epoch": 0.5}
    return Entry(f"run of {kind} {HOSTILE}", config | {"device": "cpu"}, log, result, make_report(outputs, graph))


@pytest.fixture(scope="package")
def judged() -> Callable[[str], tuple[Tensor, Graph]]:
    """Makes outputs and a graph for a task."""
    return _judged


@pytest.fixture(scope="package")
def entries() -> dict[str, Entry]:
    """A run of every task."""
    return {kind: _entry(kind) for kind in ("single-label", "multi-label", "regression")}
