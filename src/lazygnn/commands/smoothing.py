"""Correct and Smooth for the outputs of a run."""

from dataclasses import replace

import torch
from torch import Tensor

from lazygnn.config import Config
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.graph import Graph
from lazygnn.training.metrics import find_metric
from lazygnn.training.threshold import choose_threshold


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
