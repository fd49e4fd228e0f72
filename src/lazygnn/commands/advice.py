"""Tells before a training what the splits of its graph and the rule mean for it."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lazygnn.config import Config
from lazygnn.graph import Graph
from lazygnn.methods import follows_rule, recipe

logger = logging.getLogger(__name__)

# share of the rule's epochs below which a warning is due
_FEW = 0.25
# classes that a warning names
_NAMED = 5


def advise(config: Config, graph: Graph, tell: Callable[[str], None]) -> None:
    """Warns of missing nodes and edges and of too few epochs; tells that the rule shows labels.

    Args:
        config: From `resolve`. No warning is about a value that the recipe or the rule has set.
        graph: The graph to train on; if there is a recipe for it, nothing is told about the rule.
        tell: Called with the sentence about labels.
    """
    if "val" not in graph.masks and config.trainer.epochs > 0:
        logger.warning(
            f"`{graph.name}` has no validation nodes, so the weights of the last epoch count, and nothing else is "
            "chosen; add a `val_mask`"
        )
    if graph.num_edges == 0:
        logger.warning(
            f"`{graph.name}` has no edges, so that no node sees another, whatever the method; check where they are lost"
        )
    usual = recipe(config.method, config.dataset, graph=graph, values=_values(config))
    _warn_of_warmup(config, usual)
    if graph.task.kind == "single-label":
        _warn_of_classes(graph)
    elif graph.task.kind == "multi-label":
        _warn_of_labels(graph)
    if not follows_rule(config.method, config.dataset, graph):
        return
    if 0 < config.trainer.epochs < _FEW * usual["epochs"] and _may_be_set(config, "epochs"):
        logger.warning(
            f"`epochs` is {config.trainer.epochs}, but the rule takes {usual['epochs']} for this graph; after so few, "
            "the model may have learned little: omit `epochs` for final results"
        )
    if usual.get("label_input", 0) > 0 and _values(config)["label_input"] == usual["label_input"]:
        tell(
            f"the rule shows training labels to the model as input (`label_input={usual['label_input']}`); "
            "`--set label_input=0` trains without them"
        )


def advise_longer(before: Config, after: Config, graph: Graph) -> None:
    """Warns of values that a run keeps, where the rule sets others for a run with its new epochs from the start.

    Args:
        before: The configuration that the run was started with.
        after: The same with more epochs.
        graph: Its graph; if there is a recipe for it, no value follows from the epochs.
    """
    if not follows_rule(after.method, after.dataset, graph):
        return
    earlier, later = (
        recipe(config.method, config.dataset, graph=graph, values=_values(config)) for config in (before, after)
    )
    started = dict(before.trainer)
    # another value than that of the rule is the user's own
    if changed := [name for name in earlier if earlier[name] != later[name] and started.get(name) == earlier[name]]:
        logger.warning(
            f"the run keeps {_assigned(earlier, changed)}; for a new run with {after.trainer.epochs} epochs, the rule "
            f"sets {_assigned(later, changed)}"
        )


def _assigned(values: Mapping[str, Any], names: list[str]) -> str:
    return " and ".join(f"`{name}={values[name]}`" for name in names)


def _values(config: Config) -> dict[str, Any]:
    return dict(config.trainer) | dict(config.model)


def _may_be_set(config: Config, name: str) -> bool:
    """Returns whether the user may have set an option; without the graph, `resolve` notes which ones are set."""
    return config.asked is None or name in config.asked.values


def _warn_of_warmup(config: Config, usual: Mapping[str, Any]) -> None:
    """Warns of a rise of the learning rate that the epochs do not complete, unless it is that of the recipe."""
    rise, epochs = config.trainer.warmup_epochs, config.trainer.epochs
    if rise != usual.get("warmup_epochs") and rise >= epochs > 0:
        logger.warning(
            f"`warmup_epochs` is {rise}, but `epochs` is {epochs}, so that the learning rate never reaches `lr`; "
            "choose fewer `warmup_epochs`, or more `epochs`"
        )


def _warn_of_classes(graph: Graph) -> None:
    """Warns of classes that the training nodes do not have."""
    counts = {
        split: torch.bincount(graph.y[mask], minlength=graph.task.num_outputs) for split, mask in graph.masks.items()
    }
    trained = counts["train"] > 0
    if int(trained.sum()) == 1:
        logger.warning(
            f"all training nodes of `{graph.name}` have class {_names(graph, trained)}, so every node is predicted to "
            "have it; add training nodes of another class"
        )
        return
    missing = (torch.stack(list(counts.values())).sum(dim=0) > 0) & ~trained
    if bool(missing.any()):
        logger.warning(
            f"no training node of `{graph.name}` has class {_names(graph, missing)}, but nodes of other splits have; "
            "it is not learned: add training nodes of it"
        )


def _warn_of_labels(graph: Graph) -> None:
    """Warns of labels that no training node has, and of a validation split without any."""
    missing = ~(graph.y[graph.masks["train"]] > 0).any(dim=0)
    if bool(missing.any()):
        logger.warning(
            f"no training node of `{graph.name}` has label {_names(graph, missing)}, so it is not learned; "
            "add training nodes with it"
        )
    if "val" in graph.masks and not bool((graph.y[graph.masks["val"]] > 0).any()):
        logger.warning(
            f"no validation node of `{graph.name}` has any label, so that its F1 score is always 0; "
            "add nodes with labels to the `val_mask`"
        )


def _names(graph: Graph, chosen: Tensor) -> str:
    numbers = chosen.nonzero().flatten().tolist()
    names = [f"`{number if graph.class_names is None else graph.class_names[number]}`" for number in numbers]
    return " or ".join(names[:_NAMED]) + (f" or {len(names) - _NAMED} others" if len(names) > _NAMED else "")
