"""Evaluates a run of several ranks, and predicts with it, by the ranks that `torchrun` has started."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lazygnn.commands.prediction import write_outputs
from lazygnn.commands.restoring import reload_graph, restore_model
from lazygnn.commands.result import make_result
from lazygnn.commands.scaling import joined
from lazygnn.commands.sharing import ORDER, PARTS, parts_folder
from lazygnn.config import Config
from lazygnn.distributed.agreement import check_agreement
from lazygnn.distributed.building import share_of
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.scores import score_ranks
from lazygnn.errors import ConfigError
from lazygnn.files import discard
from lazygnn.graph import Graph, without_warnings
from lazygnn.methods import read_config
from lazygnn.ops import choose_device
from lazygnn.run.folder import HISTORIES, Run
from lazygnn.run.inputs import check_same_graph, check_same_shards
from lazygnn.run.predictions import check_format
from lazygnn.training import infer
from lazygnn.training.metrics import find_metric

_INSTEAD = "give another graph to one process with `--graph`"


@dataclass(frozen=True)
class _Outputs:
    """What a rank has computed.

    Attributes:
        values: Of its own nodes, [K, C].
        graph: Its own nodes.
        in_run: Whether the graph is sorted by a partition that the run folder holds.
    """

    run: Run
    config: Config
    ranks: Ranks
    device: torch.device
    values: Tensor
    graph: Graph
    in_run: bool


def evaluate_with_ranks(
    path: Path,
    metrics: Sequence[str] = (),
    *,
    device: str = "auto",
    root: str | None = None,
    verify: bool = True,
) -> list[dict[str, Any]]:
    """Evaluates the best weights of a run exactly; the solver exchanges rows between ranks.

    Args:
        path: The run folder.
        metrics: Names of metrics; none means that of the run.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        verify: Whether files of the run, or its graph, that have changed since they were written are refused.

    Returns:
        A result for every metric on the first rank, an empty list on the others.
    """
    with _outputs(path, device, root, verify=verify) as found:
        results = []
        task, trained = found.graph.task, found.run.result()
        for name, metric in [find_metric(name, task) for name in metrics or [found.config.trainer.metric]]:
            scores = {
                split: score_ranks(name, metric, found.values[mask], found.graph, found.ranks, split)
                for split, mask in found.graph.masks.items()
            }
            results.append(
                make_result(found.config, name, scores, trained=trained, task=task, device=found.device, path=path)
            )
        return results if found.ranks.is_first else []


def predict_with_ranks(
    path: Path,
    out: Path,
    *,
    device: str = "auto",
    root: str | None = None,
    probabilities: bool = False,
    known: bool = False,
    unlabeled: bool = False,
    verify: bool = True,
) -> int | None:
    """Writes the predictions of a run for every node of its graph; the first rank writes the file.

    Args:
        path: The run folder.
        out: The file; its suffix is the format.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        probabilities: Whether to add a column for the probability of each class.
        known: Whether to add columns with the split and the label of every node.
        unlabeled: Whether to write nodes without a label alone.
        verify: Whether files of the run, or its graph, that have changed since they were written are refused.

    Returns:
        The number of predictions on the first rank, `None` on the others.
    """
    check_format(out)
    with _outputs(path, device, root, verify=verify) as found:
        ranks, rows = found.ranks, found.ranks.gather_rows(found.values)

        def write() -> int:
            assert rows is not None
            with without_warnings():
                loaded = reload_graph(found.config, root)
            check_same_graph(found.run, loaded, _INSTEAD)
            graph = replace(loaded, task=found.graph.task)
            columns = {"probabilities": probabilities, "known": known, "unlabeled": unlabeled}
            return write_outputs(_in_order(rows, found), graph, graph, out, **columns)

        count = ranks.first_alone("write", write)
        return count if ranks.is_first else None


@contextmanager
def _outputs(path: Path, device: str, root: str | None, *, verify: bool) -> Iterator[_Outputs]:
    run = Run.open(path, verify=verify)
    config, chosen = run.config(read_config), choose_device(device)
    if config.trainer.parts_per_step is None:
        raise ConfigError(f"run `{path}` was trained by one process; evaluate it without `torchrun`")
    with joined(device, config.trainer.rank_timeout) as ranks:
        folder = Path(ranks.first_alone("parts", lambda: str(parts_folder(run, config, root))))
        digest = check_agreement(ranks, config, folder)
        with ranks.agreeing():
            check_same_shards(run, digest)
            shard, weights = share_of(config, folder, ranks), run.load_weights()
        scratch = run.path / HISTORIES / f"rank-{ranks.rank}"
        model, graph = restore_model(run, weights, shard.graph, chosen, scratch=scratch)
        try:
            values, in_run = infer(model, graph), folder == (run.path / PARTS).absolute()
            yield _Outputs(run, config, ranks, chosen, values, graph, in_run)
        finally:
            discard(scratch)


def _in_order(rows: Tensor, found: _Outputs) -> Tensor:
    """Returns rows in the order of the graph as it is loaded."""
    if not found.in_run:
        return rows
    ordered = torch.empty_like(rows)
    ordered[torch.from_numpy(np.load(found.run.path / ORDER))] = rows
    return ordered
