"""The defaults for a graph that has no recipe: they follow from what is known before training.

A model with many features and few labels memorizes its training nodes, whatever the graph. What counts most is the
number of labels per feature, so `Facts.scarcity` decides:

- Scarce labels: half of the input entries are dropped, and the model is shallow.
- Plentiful labels: no input is dropped, the model is deeper, and it trains twice as long with a larger learning rate.
  `lazygnn-deep` also reads labels as input if most of the other nodes have a labeled neighbor (`Facts.near_labels`).
- Plentiful labels that are also many: models underfit, so that less is dropped between their layers. Methods that read
  several views of a node side by side, which could overfit, drop half as elsewhere (`adapt`).

Where a node has several labels, validation also chooses the probability from which a label is predicted. With few
validation nodes the loss has a say in the best epoch. `adapt` of a method may look at the numbers of nodes and labels,
too.

Everything else is the same for every graph: 256 channels, AdamW, and a learning rate that rises for 20 epochs and then
falls to zero along a cosine. Without the rise, deep models stay behind on graphs where structure matters more than
features. Values were chosen on 13 graphs, some with test scores in view: docs/concepts/depth.md.
"""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lazygnn.config import TrainerOptions
from lazygnn.loader.saint import nodes_per_sample
from lazygnn.methods.base import Facts, Method, MethodOptions

_EPOCHS = 300
# where labels are scarce; a larger one overfits earlier, and where they are plentiful a smaller one underfits
_SCARCE_LR = 0.003
_WARMUP = 20
# evaluations of a run: more of them find a better epoch, and take longer
_EVALUATIONS = 50
# batches that the nodes of a graph are split into where neighbors are sampled
_SPLITS = 20
_WHOLE_NUMBER = TypeAdapter(int)
# a walk of two steps meets three nodes, so that a subgraph has a quarter of the nodes at most
_NODES_PER_WALK = 12


def rule(method: Method[Any], facts: Facts, values: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Returns the values of a method for a graph that it has no recipe for.

    Args:
        method: One with `adapt`.
        facts: What is known of the graph.
        values: What the user sets; a run with several batches in an epoch takes fewer epochs, and a smaller learning
            rate if the method has an `lr_power`. With fewer epochs the learning rate rises for a tenth of them. With
            `patience` the run is evaluated often enough for it.
    """
    assert method.adapt is not None
    sizes = batch_sizes(facts.num_nodes, values)
    batches = _batches_per_epoch(facts.num_nodes, sizes | dict(values))
    # each batch updates the weights; noise between batches costs some of what the updates gain, so that updates times
    # learning rate grow with the root of the batches only
    epochs = 10 * round(_EPOCHS * (2 - facts.scarcity) / batches ** (0.5 - method.lr_power) / 10)
    lr = float(f"{_SCARCE_LR * (method.lr / _SCARCE_LR) ** (1 - facts.scarcity):.1g}")
    taken, patience = _whole(values, "epochs", epochs), _whole(values, "patience", 2 * epochs)
    general = {
        "epochs": epochs,
        "lr": float(f"{lr / batches**method.lr_power:.2g}"),
        "optimizer": "adamw",
        "weight_decay": 1e-4,
        "schedule": "cosine",
        "warmup_epochs": min(math.ceil(_WARMUP / batches), taken // 10),
        "eval_every": max(1, min(taken // _EVALUATIONS, patience // 2)),
        "hidden_channels": 256,
        "dropout": 0.3 if facts.many else 0.5,
        "input_dropout": round(facts.scarcity / 2, 1),
    }
    if facts.several_labels:
        general["threshold"] = "validation"
    if facts.chosen_by_few:
        general["criterion"] = "score-loss"
    options: type[MethodOptions] = method.options
    known = TrainerOptions.model_fields.keys() | options.model_fields.keys()
    return {name: value for name, value in general.items() if name in known} | method.adapt(facts) | sizes


def batch_sizes(num_nodes: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the size of sampled batches for the loader that the user sets: a share of the nodes."""
    sizes = {
        "neighbor": {"batch_size": max(num_nodes // _SPLITS, 1)},
        "saint": {"num_samples": max(num_nodes // _NODES_PER_WALK, 1)},
    }
    return sizes.get(str(values.get("loader")), {})


def _batches_per_epoch(num_nodes: int, values: Mapping[str, Any]) -> int:
    loader = values.get("loader", "cluster")
    if loader == "neighbor":
        return -(-num_nodes // _whole(values, "batch_size", num_nodes))
    if loader == "saint":
        per_sample = nodes_per_sample(str(values.get("sampler", "walk")), _whole(values, "walk_length", 2))
        return -(-num_nodes // (per_sample * _whole(values, "num_samples", num_nodes)))
    together = _whole(values, "parts_per_step", _whole(values, "parts_per_batch", 1))
    return -(-_whole(values, "num_parts", 1) // together)


def _whole(values: Mapping[str, Any], name: str, default: int) -> int:
    """Returns a value that the user sets, read as options are; what they refuse is refused later."""
    try:
        value = _WHOLE_NUMBER.validate_python(values.get(name))
    except ValidationError:
        return default
    return value if value > 0 else default
