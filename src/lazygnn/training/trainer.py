"""The training loop: one for every method, full batch and mini-batch."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.config import TrainerOptions
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.training.evaluate import TrainableModel, evaluate
from lazygnn.training.metrics import find_metric


@dataclass(frozen=True)
class EpochReport:
    """What is known after an epoch; scores only where the epoch was evaluated."""

    epoch: int
    loss: float
    seconds: float
    lr: float
    scores: dict[str, float] | None


@dataclass
class Best:
    """The weights with the best validation score so far."""

    epoch: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class FitResult:
    """How training ended; the model holds the best weights."""

    epochs: int
    best_epoch: int
    scores: dict[str, float]
    seconds_per_epoch: float


class Trainer:
    """Trains a model on the batches of a loader and keeps the weights that validate best.

    Args:
        model: Any model of the library, or one with the same few methods.
        loader: Gives the batches of an epoch.
        graph: What is evaluated; the graph the loader was made from.
        options: Epochs, optimizer and the rest.
        on_epoch: Told about every epoch.
    """

    def __init__(
        self,
        model: TrainableModel,
        loader: Iterable[Batch],
        graph: Graph,
        options: TrainerOptions,
        *,
        on_epoch: Callable[[EpochReport], None] | None = None,
    ) -> None:
        find_metric(options.metric, graph.task)
        self.model = model
        self.loader = loader
        self.graph = graph
        self.options = options
        self.on_epoch = on_epoch
        self.optimizer = _make_optimizer(model.layer_parameters(), options)
        self.epoch = 0
        self.seconds = 0.0
        self.best = Best()

    def fit(self) -> FitResult:
        """Trains until the epochs are over or patience runs out, then puts the best weights back."""
        if self.graph.num_train == 0:
            raise GraphError("there is no training node; give the graph a `train_mask`")
        while self.epoch < self.options.epochs and not self._patience_is_over():
            loss, seconds = self._run_epoch()
            self.epoch += 1
            self.seconds += seconds
            scores = None
            if self.epoch % self.options.eval_every == 0 or self.epoch == self.options.epochs:
                scores = evaluate(self.model, self.graph, self.options.metric)
                self._keep_best(scores)
            if self.on_epoch is not None:
                lr = float(self.optimizer.param_groups[0]["lr"])
                self.on_epoch(EpochReport(self.epoch, loss, seconds, lr, scores))
        if self.best.weights:
            self.model.load_state_dict(self.best.weights)
        else:
            self.best.scores = evaluate(self.model, self.graph, self.options.metric)
        return FitResult(self.epoch, self.best.epoch, self.best.scores, self.seconds / max(self.epoch, 1))

    def _run_epoch(self) -> tuple[float, float]:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.options, self.epoch)
        self.model.train(True)
        started = time.perf_counter()
        losses = [self._step(batch) for batch in self.loader]
        loss = float(torch.stack(losses).mean())
        seconds = time.perf_counter() - started
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} in epoch {self.epoch + 1}; lower `lr` or set `clip_norm`")
        return loss, seconds

    def _step(self, batch: Batch) -> Tensor:
        self.optimizer.zero_grad()
        logits = self.model(batch)
        loss = (batch.weight * self.graph.task.loss(logits, batch.y)).sum()
        loss.backward()
        if self.options.clip_norm is not None:
            weights = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(weights, self.options.clip_norm)
        self.optimizer.step()
        return loss.detach()

    def _keep_best(self, scores: dict[str, float]) -> None:
        # without a validation split the last weights are the best that can be known
        if "val" not in scores or scores["val"] > self.best.scores.get("val", -math.inf):
            weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
            self.best = Best(self.epoch, scores, weights)

    def _patience_is_over(self) -> bool:
        patience = self.options.patience
        return patience is not None and self.best.epoch > 0 and self.epoch - self.best.epoch >= patience


def learning_rate(options: TrainerOptions, epoch: int) -> float:
    """The learning rate of an epoch, counted from zero."""
    if epoch < options.warmup_epochs:
        return options.lr * (epoch + 1) / (options.warmup_epochs + 1)
    if options.schedule == "constant":
        return options.lr
    length = max(options.epochs - options.warmup_epochs, 1)
    return options.lr * (1 + math.cos(math.pi * (epoch - options.warmup_epochs) / length)) / 2


def _make_optimizer(layers: list[list[nn.Parameter]], options: TrainerOptions) -> torch.optim.Optimizer:
    spared = len(layers) if options.decay_layers is None else options.decay_layers
    groups = [
        {"params": [p for layer in layers[:spared] for p in layer], "weight_decay": options.weight_decay},
        {"params": [p for layer in layers[spared:] for p in layer], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    kind = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=options.lr)
