"""What a run was started on: its graph, parts and threads, which a resume must find again."""

import hashlib
import json
import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.graph import Graph
from lazygnn.ops import Csr
from lazygnn.run.folder import Run

logger = logging.getLogger(__name__)

# how most commands use another graph on purpose
ANOTHER = "give another graph with `--graph`"
# an array with more bytes is read in this many pieces, evenly spread
_MOST_BYTES, _PIECES, _PIECE = 2**30, 1024, 2**20


def check_inputs(run: Run, graph: Graph, device: torch.device) -> None:
    """Records graph and threads in a run that has no record; otherwise refuses another graph.

    Another number of threads on a CPU is a warning: sums may differ in their last digits.

    Args:
        run: The run.
        graph: The graph as it was loaded.
        device: The compute device.
    """
    known, threads = run.inputs(), torch.get_num_threads()
    if not known:
        run.save_inputs(describe_graph(graph) | {"threads": threads})
        return
    check_same_graph(run, graph, f"start a new run with `lazygnn train --init-from {run.path}`")
    if device.type == "cpu" and known.get("threads") != threads:
        logger.warning(
            "run `%s` was started with %s threads and goes on with %d, so its last digits may differ; "
            "set OMP_NUM_THREADS=%s for the same",
            run.path,
            known.get("threads"),
            threads,
            known.get("threads"),
        )


def check_same_graph(run: Run, graph: Graph, instead: str = ANOTHER) -> None:
    """Refuses a graph with other content than that of training, unless the run is not verified.

    Args:
        run: The run; one of an earlier version has no record of its graph.
        graph: The graph as it was loaded.
        instead: How to use another graph on purpose.
    """
    known = run.inputs() if run.verify else {}
    for name, find in _FINGERPRINTS.items():
        if name in known and known[name] != find(graph):
            raise CheckpointError(
                f"graph `{graph.name}` has other content than when run `{run.path}` was started; restore it, give its "
                f"folder with `--root`, {instead}, or take it as it is with `--no-verify`"
            )


def check_same_classes(run: Run, graph: Graph) -> None:
    """Refuses a graph with other names of classes than those of a run that training starts from.

    Args:
        run: The run; one of an earlier version has no record of its classes.
        graph: The graph to train on.
    """
    known, found = run.inputs().get("class_names"), graph.class_names
    if known is not None and found is not None and tuple(known) != found:
        raise ConfigError(
            f"graph `{graph.name}` has the classes {', '.join(found)}, run `{run.path}` was trained on "
            f"{', '.join(known)}; give the same classes in the same order"
        )


def check_parts(run: Run, order: Tensor, ptr: Tensor, engine: str | None) -> None:
    """Records the parts of the graph in a run that has no record of them; otherwise refuses other parts.

    Args:
        run: The run, whose graph is recorded already.
        order: Nodes part by part.
        ptr: Starts of the parts.
        engine: Package and version that found them.
    """
    digest = hashlib.blake2b(digest_size=16)
    for array in (order, ptr):
        digest.update(array.contiguous().numpy().data)
    known, found = run.inputs(), digest.hexdigest()
    if "parts" not in known:
        run.save_inputs(known | {"parts": found, "part_engine": engine})
    elif known["parts"] != found:
        started, now = known.get("part_engine") or "another method", engine or "another method"
        raise CheckpointError(
            f"the graph is divided by {now} into other parts than when run `{run.path}` was started, by {started}; "
            f"install that version, or start a new run with `lazygnn train --init-from {run.path}`"
        )


def check_shards(run: Run, digest: str) -> None:
    """Records the digest of the graph that ranks read in a run that has no record of it; otherwise refuses another one.

    Args:
        run: The run, whose graph as it was loaded is recorded already.
        digest: That of the folder, which is sorted by parts.
    """
    if "shards" not in (known := run.inputs()):
        run.save_inputs(known | {"shards": digest})
    check_same_shards(run, digest)


def check_same_shards(run: Run, digest: str) -> None:
    """Refuses a folder with another digest than that of training, unless the run is not verified."""
    known = run.inputs() if run.verify else {}
    if known.get("shards", digest) != digest:
        raise CheckpointError(
            f"the graph has other content than when run `{run.path}` was started; restore it, start a new run, or take "
            "it as it is with `--no-verify`"
        )


def describe_graph(graph: Graph) -> dict[str, Any]:
    """Returns what a run records of its graph as it was loaded: fingerprints, and the names of classes."""
    return {name: find(graph) for name, find in _FINGERPRINTS.items()} | {"class_names": graph.class_names}


def fingerprint(graph: Graph) -> str:
    """Returns a digest of edges, weights, features, labels and splits.

    Arrays of more than 1 GiB are sampled, so that a large graph is not read as a whole.
    """
    arrays = {"rowptr": graph.adj.rowptr, "col": graph.adj.col, "value": graph.adj.value, "y": graph.y}
    if isinstance(graph.x, Csr):
        arrays |= {"x.rowptr": graph.x.rowptr, "x.col": graph.x.col, "x.value": graph.x.value}
    else:
        arrays["x"] = graph.x
    arrays |= {f"{split}_mask": mask for split, mask in graph.masks.items()}
    digest = hashlib.blake2b(json.dumps([graph.task.kind, graph.task.num_outputs]).encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        for piece in _pieces(array):
            digest.update(piece)
    return digest.hexdigest()


def fingerprint_names(graph: Graph) -> str:
    """Returns a digest of what predictions are named by: ids of nodes, names of classes, encoding of tables."""
    schema = None if graph.schema is None else graph.schema.model_dump_json()
    digest = hashlib.blake2b(json.dumps([graph.class_names, schema]).encode(), digest_size=16)
    if graph.node_ids is not None:
        digest.update(f"{graph.node_ids.dtype} {graph.node_ids.shape}".encode())
        digest.update(np.ascontiguousarray(graph.node_ids).view(np.uint8).data)
    return digest.hexdigest()


def _pieces(array: Tensor) -> list[memoryview]:
    flat = array.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
    if len(flat) <= _MOST_BYTES:
        return [flat]
    starts = torch.linspace(0, len(flat) - _PIECE, _PIECES, dtype=torch.float64).long().tolist()
    return [flat[start : start + _PIECE] for start in starts]


_FINGERPRINTS = {"graph": fingerprint, "names": fingerprint_names}
