"""Correct and Smooth for the outputs of a run."""

import logging
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from lazygnn.config import Config
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.graph import Graph
from lazygnn.training.metrics import find_metric, score_of_rows
from lazygnn.training.threshold import choose_threshold

logger = logging.getLogger(__name__)


def smooth(
    change: CorrectAndSmooth, logits: Tensor, graph: Graph, config: Config, device: torch.device, *, choose: bool
) -> tuple[Tensor, Graph]:
    """Returns the changed outputs, and the graph with the threshold of labels that fits them.

    The changed probabilities are others than those that the threshold of the run was chosen for.

    Args:
        change: What to apply.
        logits: The outputs of the run, [N, C].
        graph: The graph as the model takes it.
        config: The configuration of the run.
        device: Where to propagate.
        choose: Whether validation nodes of this graph may choose, if they did so in training.
    """
    logits = change.apply_to_logits(logits, graph, device=device)
    val = graph.masks.get("val")
    if not choose or val is None or config.trainer.threshold != "validation":
        return logits, graph
    metric, _ = find_metric(config.trainer.metric, graph.task)
    threshold = choose_threshold(metric, logits[val], graph.y[val])
    return logits, replace(graph, task=replace(graph.task, threshold=threshold))


def warn_of_loss(name: str, logits: Tensor, graph: Graph, scores: Mapping[str, float]) -> None:
    """Warns if validation nodes score less than without Correct and Smooth, as where linked nodes differ.

    Args:
        name: The metric.
        logits: The outputs of the run, [N, C], before they were changed.
        graph: The graph with the threshold of the run.
        scores: By splits, after the change.
    """
    if "val" not in scores:
        return
    val = graph.masks["val"]
    name, metric = find_metric(name, graph.task)
    before = score_of_rows(metric, logits[val], graph.y[val], "val")
    # less than the digits shown is noise
    if round(scores["val"], 4) < round(before, 4):
        logger.warning(
            f"Correct and Smooth lowers {name} on validation nodes from {before:.4f} to {scores['val']:.4f}; omit "
            "`--correct-and-smooth`, or set `--correct-alpha` and `--smooth-alpha` nearer to 1"
        )
