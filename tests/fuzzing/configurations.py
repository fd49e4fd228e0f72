"""Values of any kind as options of every method; some configurations are trained for an epoch."""

import json
import random
from functools import cache
from typing import Any, get_args

import numpy as np
import torch
from pydantic.fields import FieldInfo

from lazygnn.config import TrainerOptions, parse_assignments
from lazygnn.data.synthetic import block_graph
from lazygnn.graph import Graph
from lazygnn.methods import METHODS, build, read_config, resolve
from lazygnn.training import Trainer

NUMBERS: tuple[Any, ...] = (0, 1, -1, 2, 3, 7, 64, 10**6, 10**12, 2**31, 2**63, 2**64, 10**30, 0.5, 1.0, 1e-30, 1e-300)
EXTREMES: tuple[Any, ...] = (1e38, -1e38, 1e308, float("nan"), float("inf"), -float("inf"))
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    "none",
    "",
    "auto",
    "text",
    b"bytes",
    [],
    [0.5],
    ["mlp"],
    [[1]],
    {},
    {"a": 1},
    (),
    object(),
    np.ones(3),
    np.float32(0.5),
    np.int64(3),
    torch.ones(2),
    torch.tensor(3),
    range(3),
)
# share of the configurations that are trained
TRAINED = 0.05
RUN: tuple[tuple[str, Any], ...] = (
    ("seed", 2**64),
    ("seed", 2**63 - 1),
    ("seed", -1),
    ("seed", "1"),
    ("seed", np.ones(2)),
    ("device", "tpu"),
    ("device", 3),
    ("root", 5),
    ("root", "/nowhere"),
    ("unknown", 1),
)
# small models, so that a training takes milliseconds
SMALL: dict[str, Any] = {"epochs": 1, "hidden_channels": 4, "num_parts": 2, "partition": "random", "norm": "batch"}


@cache
def graphs() -> list[Graph]:
    """Returns graphs of one node, of a few, and of some dozens."""
    one = Graph.from_edges(np.zeros((2, 0), dtype=int), np.ones((1, 2)), np.array([0]), train_mask=np.array([True]))
    few = block_graph(5, 1, degree=2, in_channels=3, num_classes=2)
    return [one, few, block_graph(40, 2, degree=4, in_channels=3, num_classes=3)]


def fuzz_configuration(rng: random.Random) -> None:
    """Draws options of a method, resolves and reads them again; one in twenty is trained."""
    method = rng.choice(list(METHODS))
    fields = METHODS[method].options.model_fields | TrainerOptions.model_fields
    names = rng.sample(sorted(fields), rng.randrange(1, 5))
    values = {name: draw(rng, fields[name]) for name in names}
    trains = rng.random() < TRAINED
    if trains:
        values = {name: value for name, value in SMALL.items() if name in fields} | values
    if rng.random() < 0.05:
        values[rng.choice(("epoch", "", "seed", "é", 3))] = 1
    run = dict((rng.choice(RUN),)) if rng.random() < 0.1 else {}
    config = resolve(method, rng.choice(("cora", "mine.npz", "wordnet-small", "")), values, **run)
    again = read_config(json.loads(config.record()))
    assert again == config
    if trains:
        train(config, rng.choice(graphs()))


def fuzz_assignment(rng: random.Random) -> None:
    """Draws the text of `--set`."""
    text = rng.choice(("epochs", "alphas", " ", "a.b"))
    text += rng.choice(("=", "", " = ", "=="))
    text += "".join(
        rng.choice(("[", "]", "{", "}", '"', "'", "1", "e", "0x", ".", ",", "\n", "#", "é", "_", "-", "9" * 50))
        for _ in range(rng.randrange(9))
    )
    parse_assignments([text])


def draw(rng: random.Random, field: FieldInfo) -> Any:
    """Draws a value: most of the time one that the option may accept, and else any number or anything."""
    kind = rng.random()
    if kind < 0.15:
        return rng.choice(NUMBERS)
    if kind < 0.2:
        return rng.choice(EXTREMES)
    if kind < 0.3:
        return rng.choice(ODD)
    choices = [choice for part in (field.annotation, *get_args(field.annotation)) for choice in get_args(part)]
    words = [choice for choice in choices if isinstance(choice, str)]
    if words:
        return rng.choice(words)
    if type(field.default) is int or int in choices:
        return rng.choice((1, 2, 3, 5))
    return rng.choice((0.1, 0.5, 0.9, 1e-30, field.default)) if field.default is not True else rng.random() < 0.5


def train(config: Any, graph: Graph) -> None:
    """Builds and trains for one epoch, whatever is left of the options."""
    # the time of a training is not bounded
    if any(type(value) is int and value > 1000 for name, value in config.model if not name.endswith("channels")):
        return
    config = config.model_copy(update={"trainer": config.trainer.model_copy(update={"epochs": 1, "compile": False})})
    torch.manual_seed(0)
    built = build(config, graph)
    Trainer(built.model, built.loader, built.graph, config.trainer).fit()
