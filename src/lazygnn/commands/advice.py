"""Tells before a training what the splits of its graph and the rule mean for it."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from lazygnn.config import Config
from lazygnn.graph import Graph
from lazygnn.methods import follows_rule, recipe

logger = logging.getLogger(__name__)

# share of the rule's epochs below which a warning is due
_FEW = 0.25


def advise(config: Config, values: Mapping[str, Any], graph: Graph, tell: Callable[[str], None]) -> None:
    """Warns of missing validation nodes and of far fewer epochs than the rule takes; tells that the rule shows labels.

    Args:
        config: From `resolve`.
        values: Options that the user sets.
        graph: The graph to train on; if there is a recipe for it, nothing is told about the rule.
        tell: Called with the sentence about labels.
    """
    if "val" not in graph.masks and config.trainer.epochs > 0:
        logger.warning(
            f"`{graph.name}` has no validation nodes, so the weights of the last epoch count, and nothing else is "
            "chosen; add a `val_mask`"
        )
    if not follows_rule(config.method, config.dataset, graph):
        return
    # ranks have parts that the user need not set, and the rule takes fewer epochs with several batches
    parts = {"num_parts": getattr(config.model, "num_parts", 1), "parts_per_step": config.trainer.parts_per_step}
    chosen = recipe(config.method, config.dataset, graph=graph, values={**values, **parts})
    if 0 < config.trainer.epochs < _FEW * chosen["epochs"]:
        logger.warning(
            f"`epochs` is {config.trainer.epochs}, but the rule takes {chosen['epochs']} for this graph; after so few, "
            "the model may have learned little: omit `epochs` for final results"
        )
    if chosen.get("label_input", 0) > 0 and "label_input" not in values:
        tell(
            f"the rule shows training labels to the model as input (`label_input={chosen['label_input']}`); "
            "`--set label_input=0` trains without them"
        )
