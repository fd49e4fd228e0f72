"""One trial: trains a configuration and scores it on the validation nodes alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.errors import GraphError
from lazygnn.graph import Graph, without_warnings
from lazygnn.methods import build, resolve
from lazygnn.partitioning import default_cache
from lazygnn.training import EpochReport, Trainer

# called with an epoch and its validation score; returns whether the trial ends here
Report = Callable[[int, float], bool]


class Pruned(Exception):
    """A trial that was ended early."""


@dataclass(frozen=True)
class Subject:
    """What a search is about: everything but the values that are tried.

    Attributes:
        method: Name of the method.
        dataset: Name or path of the graph.
        seed: Seed of every trial.
        device: `cpu` or `cuda`.
        root: Folder of data files.
        fixed: Options that the user sets.
    """

    method: str
    dataset: str
    seed: int = 0
    device: str = "cpu"
    root: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Graph:
        """Loads the graph without its test nodes, so that no trial can be judged by them."""
        with without_warnings():
            graph = load_graph(self.dataset, self.root)
        if "val" not in graph.masks:
            raise GraphError(f"graph `{graph.name}` has no validation nodes to choose by; give it a `val_mask`")
        return replace(graph, masks={split: mask for split, mask in graph.masks.items() if split != "test"})

    def config(self, values: Mapping[str, Any], graph: Graph) -> Config:
        """Returns the configuration with some values; those of the user come first."""
        options = {**values, **self.fixed}
        return resolve(
            self.method, self.dataset, options, graph=graph, seed=self.seed, device=self.device, root=self.root
        )


def run_trial(subject: Subject, graph: Graph, values: Mapping[str, Any], report: Report) -> float:
    """Trains with some values and returns the validation score of the best epoch.

    Args:
        subject: The method and its surroundings.
        graph: From `subject.load`.
        values: The options to try.
        report: Decides after every evaluation whether the trial ends here.

    Raises:
        Pruned: The trial ended early.
        FloatingPointError, ConfigError: The training diverged, or the values do not go together.
    """
    config = subject.config(values, graph)
    torch.manual_seed(config.seed)
    built = build(config, graph, subject.device, cache=default_cache())
    trainer = Trainer(built.model, built.loader, built.graph, config.trainer, seed=config.seed)

    def on_epoch(epoch: EpochReport) -> None:
        if epoch.scores is not None and report(epoch.epoch, trainer.best.scores["val"]):
            raise Pruned

    trainer.on_epoch = on_epoch
    return trainer.fit().scores["val"]
