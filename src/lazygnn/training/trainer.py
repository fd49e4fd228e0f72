"""The training loop: one for every method, full batch and mini-batch.

Training can stop after any batch and be resumed from `checkpoint` with the same results.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch, ByLoss, Loader
from lazygnn.config import TrainerOptions
from lazygnn.errors import CheckpointError, ConfigError, DivergenceError, wrong_type
from lazygnn.graph import Graph, check_graph, check_num_nodes
from lazygnn.history import named_histories
from lazygnn.model import Model
from lazygnn.ops import Csr
from lazygnn.propagation import estimating, named_diagnostics, solves
from lazygnn.task import Task
from lazygnn.training.balance import balanced
from lazygnn.training.criterion import counts_loss
from lazygnn.training.divergence import LossWatch
from lazygnn.training.evaluation import Assessment, assess
from lazygnn.training.metrics import check_defined, find_metric, gain
from lazygnn.training.optimizer import learning_rate, make_optimizer, set_lr
from lazygnn.training.own_loss import RowLoss, with_loss
from lazygnn.training.plain import as_model
from lazygnn.training.precision import cost_of_bfloat16, forward_precision, product_precision
from lazygnn.training.replay import Replay
from lazygnn.training.upload import Uploads

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochReport:
    """The results of an epoch; scores, the value of the criterion and laziness only if they were computed after it."""

    epoch: int
    loss: float
    seconds: float
    lr: float
    scores: dict[str, float] | None
    laziness: dict[str, float] | None = None
    criterion: float | None = None


@dataclass
class Best:
    """The weights with the best value of the criterion on validation so far."""

    epoch: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    value: float | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class FitResult:
    """The result of training; the model holds the best weights.

    Attributes:
        scores: The exact score on every split; those of an epoch may be estimates.
        seconds: Time of training in all epochs, without evaluation.
        eval_seconds: Time of evaluation.
        threshold: Of several labels, those with a higher probability are predicted.
    """

    epochs: int
    best_epoch: int
    scores: dict[str, float]
    seconds: float
    eval_seconds: float
    threshold: float = 0.5


class Trainer:
    """Trains a model on the batches of a loader and keeps the weights that validate best.

    Args:
        model: A model of the library, or any `nn.Module` with `forward(batch)` and `num_layers`, see `PlainModel`.
        loader: Returns the batches of an epoch.
        graph: The graph to evaluate on, the one that the loader was made from.
        options: Epochs, optimizer and the like.
        seed: Seed of the pass that fills the histories; all else draws from torch's global generator.
        loss: Returns the loss of every row, [T], from outputs [T, C] and targets; that of the task by default. Rows are
            then weighted, so that the loss of a step is the mean over training nodes.
        on_epoch: Called after every epoch.
        on_batch: Called after every batch, when the trainer may be saved; an exception ends the training.

    Examples:
        >>> import torch
        >>> from lazygnn import Trainer, build, resolve
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> config = resolve("lazygnn", "mine", {"epochs": 30}, graph=graph)
        >>> _ = torch.manual_seed(0)
        >>> built = build(config, graph)
        >>> result = Trainer(built.model, built.loader, built.graph, config.trainer).fit()
        >>> result.epochs, result.scores["test"] > 0.5
        (30, True)
    """

    def __init__(
        self,
        model: nn.Module,
        loader: Loader,
        graph: Graph,
        options: TrainerOptions,
        *,
        seed: int = 0,
        loss: RowLoss | None = None,
        on_epoch: Callable[[EpochReport], None] | None = None,
        on_batch: Callable[["Trainer"], None] | None = None,
    ) -> None:
        check_graph(graph)
        if not isinstance(options, TrainerOptions):
            raise ConfigError(wrong_type("options", options, "give `config.trainer`, or `TrainerOptions(...)`"))
        self.metric, _ = find_metric(options.metric, graph.task)
        self._check_metric(graph)
        model = as_model(model)
        if options.epochs > 0:
            # raises for a graph without training nodes, before any work is done
            _ = graph.num_train
            if not any(weight.requires_grad for weight in model.parameters()):
                raise ConfigError("the model has no weights to train; set `epochs=0`")
        _check_dtype(model, graph)
        self.model, self.loader, self.graph, self.options = model, loader, graph, options
        self.seed, self.on_epoch, self.on_batch = seed, on_epoch, on_batch
        self._set_threshold()
        self.optimizer = make_optimizer(model.layer_parameters(), options)
        self.histories, self._diagnostics = named_histories(model), named_diagnostics(model)
        # a batch of parts does not have the number of nodes of its graph
        for history in self.histories.values():
            check_num_nodes(history.values.num_rows, graph.num_nodes)
        self._device = next((p.device for p in model.parameters()), graph.device)
        self.task = self._make_task(loss)
        if isinstance(loader, ByLoss):
            loader.draw_by(self.task)
        self._criterion_loss = self._make_criterion_loss()
        if options.patience is not None and "val" not in graph.masks:
            logger.warning(
                f"`patience` is {options.patience}, but `{graph.name}` has no validation nodes, so that training ends "
                "after all epochs; add a `val_mask`, or omit `patience`"
            )
        if options.precision == "bfloat16" and self._device.type == "cpu" and (cost := cost_of_bfloat16()) > 1:
            logger.warning(
                f"this CPU takes {cost:.1f} times as long for products in bfloat16; set `precision=float32` for speed"
            )
        self._uploads = Uploads(self._device)
        self._replay = self._make_replay()
        self.epoch = 0
        self.num_batches = 0
        self.seconds = 0.0
        self.eval_seconds = 0.0
        self.best = Best()
        stored = [history.values.codec.dtype for history in self.histories.values()]
        self._watch = LossWatch(small_range=torch.float16 in stored)
        self._losses: list[Tensor] = []
        self._epoch_seconds = 0.0

    def fit(self) -> FitResult:
        """Trains to the end, then restores the best weights."""
        self.run()
        return self.finish()

    def run(self) -> None:
        """Trains until the epochs are over or patience runs out."""
        if self.num_batches == 0 and "position" in (state := self.loader.state_dict()):
            # a training that was interrupted may have left the loader within an epoch
            self.loader.load_state_dict(state | {"position": 0})
        if self.histories and self.num_batches == 0 and len(self.loader) > 1 and self.options.epochs > 0:
            self._fill_histories()
        while self.epoch < self.options.epochs and not self._patience_is_over():
            report = self._run_epoch()
            if self.on_epoch is not None:
                self.on_epoch(report)

    def finish(self) -> FitResult:
        """Restores the best weights and returns the result; its scores are exact."""
        if self._replay is not None:
            # graphs hold the memory of a step
            self._replay.reset()
        if self.best.weights:
            self.model.load_state_dict(self.best.weights)
        scores = self.best.scores
        if not self.best.weights or solves(self.model):
            started = time.perf_counter()
            scores = self._assess(select=not self.best.weights).scores
            self.eval_seconds += time.perf_counter() - started
        threshold = self.model.decide(self.graph.task).threshold
        return FitResult(self.epoch, self.best.epoch, scores, self.seconds, self.eval_seconds, threshold)

    def has_finite_weights(self) -> bool:
        """Returns whether all weights and buffers of the model are finite, so that they may be saved."""
        return all(bool(value.isfinite().all()) for value in self.model.state_dict().values())

    def checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns the state of training between two batches: tensors by name, and values for JSON."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best.weights.items()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{slot}": value for slot, value in slots.items()}
        for name, history in self.histories.items():
            tensors |= {f"history.{name}.{part}": value for part, value in history.state_dict().items()}
        for name, diagnostics in self._diagnostics.items():
            tensors |= {f"diagnosis.{name}.{part}": value for part, value in diagnostics.state_dict().items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self._device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self._device)
        tensors["losses"] = torch.stack(self._losses) if self._losses else torch.zeros(0)
        state = {
            "epoch": self.epoch,
            "num_batches": self.num_batches,
            "seconds": self.seconds,
            "epoch_seconds": self._epoch_seconds,
            "eval_seconds": self.eval_seconds,
            "loader": self.loader.state_dict(),
            "best_epoch": self.best.epoch,
            "best_scores": self.best.scores,
            "best_value": self.best.value,
            "watch": self._watch.state_dict(),
        }
        return tensors, state

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Resumes from a checkpoint of a trainer with the same configuration."""
        try:
            self.model.load_state_dict(_under("model.", tensors))
            self._restore_optimizer(_under("optimizer.", tensors))
            if self._replay is not None:
                # graphs update tensors that the optimizer has replaced
                self._replay.reset()
            for name, history in self.histories.items():
                history.load_state_dict(_under(f"history.{name}.", tensors))
            for name, diagnostics in self._diagnostics.items():
                diagnostics.load_state_dict(_under(f"diagnosis.{name}.", tensors))
            self.best = Best(
                state["best_epoch"], state["best_scores"], self._best_value(state), _under("best.", tensors)
            )
            self.loader.load_state_dict(state["loader"])
            self.epoch, self.num_batches = state["epoch"], state["num_batches"]
            self.seconds, self._epoch_seconds = state["seconds"], state["epoch_seconds"]
            self.eval_seconds = state.get("eval_seconds", 0.0)
            self._watch.load_state_dict(state.get("watch", {}))
            self._losses = list(tensors["losses"].to(self.model.device))
            torch.set_rng_state(tensors["random.cpu"])
            if self._device.type == "cuda" and "random.cuda" in tensors:
                torch.cuda.set_rng_state(tensors["random.cuda"], self._device)
        except (KeyError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"the checkpoint does not fit this configuration: {error}") from error

    def _check_metric(self, graph: Graph) -> None:
        """Refuses a metric that is not defined on a split, before any work is done."""
        check_defined(self.metric, graph.task, graph.y, graph.masks)

    def _best_value(self, state: Mapping[str, Any]) -> float | None:
        # a checkpoint from before there were criteria was chosen by its score
        score = state["best_scores"].get("val")
        value: float | None = state.get("best_value", None if score is None else gain(self.metric, score))
        return value

    def _restore_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            index, _, slot = name.partition(".")
            slots.setdefault(int(index), {})[slot] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": slots})

    def _fill_histories(self) -> None:
        """Runs a forward-only pass, so that no halo row is ever empty; it uses dropout and changes nothing else."""
        self.model.train(True)
        devices = [self._device] if self._device.type == "cuda" else []
        with self._keeping_buffers(), torch.random.fork_rng(devices):
            torch.manual_seed((self.seed + 1_000_003) % 2**63)
            for batch in self.loader.sweep():
                self._fill(batch)

    def _fill(self, batch: Batch) -> None:
        with forward_precision(self.options.precision, self._device):
            self.model.fill(batch.to(self._device))

    @contextmanager
    def _keeping_buffers(self) -> Iterator[None]:
        """Restores the buffers of the model, such as what batch normalization has measured, after the block."""
        buffers = {name: value.clone() for name, value in self.model.named_buffers()}
        try:
            yield
        finally:
            for name, value in self.model.named_buffers():
                value.copy_(buffers[name])

    def _run_epoch(self) -> EpochReport:
        diagnose = self._is_due(self.options.diagnose_every)
        lr = learning_rate(self.options, self.epoch)
        set_lr(self.optimizer, lr)
        for history in self.histories.values():
            history.measure = diagnose
        self.model.train(True)
        self._train_batches()
        loss = float(torch.stack(self._losses).mean())
        self._watch.add(self.epoch + 1, loss)
        found = self._evaluate() if self._is_due(self.options.eval_every) else None
        laziness = self._diagnose() if diagnose else None
        self.epoch += 1
        self.seconds += self._epoch_seconds
        scores, value = (None, None) if found is None else (found.scores, found.value)
        report = EpochReport(self.epoch, loss, self._epoch_seconds, lr, scores, laziness, value)
        self._losses, self._epoch_seconds = [], 0.0
        if found is not None:
            self._keep_best(found)
        return report

    def _train_batches(self) -> None:
        started = time.perf_counter()
        for loss in self._steps():
            self._losses.append(loss)
            self.num_batches += 1
            if self.on_batch is not None:
                self._epoch_seconds += time.perf_counter() - started
                self.on_batch(self)
                started = time.perf_counter()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._epoch_seconds += time.perf_counter() - started

    def _steps(self) -> Iterator[Tensor]:
        """Takes the steps that are left of the epoch and yields the loss of each."""
        for batch in self.loader:
            yield self._train_batch(batch)

    def _train_batch(self, batch: Batch) -> Tensor:
        if self._replay is None:
            return self._plain_step(batch)
        return self._replay.step(batch, self.loader.upcoming)

    def _plain_step(self, batch: Batch) -> Tensor:
        return self._step(self._uploads.take(batch), self._prefetch_next)

    def _step(self, batch: Batch, meanwhile: Callable[[], None] | None = None) -> Tensor:
        with product_precision(self.options.precision):
            self.optimizer.zero_grad()
            # the transform does not need these rows yet; rows prefetched in the step before are not fetched again
            for history in self.histories.values():
                history.prefetch(batch.nodes, batch.num_targets)
            with forward_precision(self.options.precision, self._device):
                loss = self.model.loss(batch, self.task)
            if meanwhile is not None:
                meanwhile()
            loss.backward()
            self._update()
        return loss.detach()

    def _update(self) -> None:
        """Changes the weights by their gradients, which are clipped if that is an option."""
        if self.options.clip_norm is not None:
            weights = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(weights, self.options.clip_norm)
        self.optimizer.step()

    def _prefetch_next(self) -> None:
        """Starts to copy the next batch and its rows during the backward pass; this batch's writes are launched."""
        distant = [history for history in self.histories.values() if history.prefetches]
        if self._uploads.idle and not distant:
            return
        if (upcoming := self.loader.upcoming()) is not None:
            upcoming = self._uploads.prefetch(upcoming)
            for history in distant:
                history.prefetch(upcoming.nodes, upcoming.num_targets)

    def _make_replay(self) -> Replay | None:
        if self.options.cuda_graphs == "off" or self._device.type != "cuda" or not self.model.replayable:
            return None
        histories = list(self.histories.values())
        return Replay(self._step, self._plain_step, self.optimizer, histories, self._device)

    def _evaluate(self) -> Assessment:
        """Evaluates the current weights; fixed points are estimated, from stored ones if there are any."""
        started = time.perf_counter()
        with estimating(self.model):
            found = self._assess(select=True)
        self.eval_seconds += time.perf_counter() - started
        return found

    def _assess(self, *, select: bool) -> Assessment:
        return assess(
            self.model,
            self.graph,
            self.options.metric,
            loss=self._criterion_loss,
            select=select,
            learn_threshold=self._learns_threshold,
        )

    def _diagnose(self) -> dict[str, float] | None:
        """Measures how lazy the histories are: mean age, drift of the inputs, error of the stored solution."""
        if not self.histories:
            return None
        stored = list(self.histories.values())
        found = {"mean_age": sum(history.mean_age() for history in stored) / len(stored)}
        drifts = [drift for history in stored if (drift := history.drift_norm()) is not None]
        if drifts:
            found["drift_norm"] = max(drifts)
        found |= self.model.diagnose(self.graph)
        # a gradient of zero has no direction
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def _make_task(self, loss: RowLoss | None) -> Task:
        weighs = self.options.class_weight == "balanced"
        if loss is not None and weighs:
            raise ConfigError("`class_weight=balanced` has no effect on a `loss` of your own; weigh classes in it")
        if loss is not None:
            return with_loss(self.graph.task, loss)
        return balanced(self.graph, self._device) if weighs else self.graph.task

    def _make_criterion_loss(self) -> Task | None:
        """Returns the task whose loss counts in the criterion; one of the user's own may not have a temperature."""
        if not counts_loss(self.options.criterion, self.graph.task):
            return None
        # outputs of all nodes are on the device of the graph
        return balanced(self.graph, self.graph.device) if self.options.class_weight == "balanced" else self.graph.task

    @property
    def _learns_threshold(self) -> bool:
        return self.options.threshold == "validation"

    def _set_threshold(self) -> None:
        threshold = self.options.threshold
        if threshold != 0.5 and self.graph.task.kind != "multi-label":
            raise ConfigError(
                f"`threshold` is {threshold}, but the nodes of this graph do not have several labels; omit it"
            )
        if threshold == "validation" and "val" not in self.graph.masks:
            raise ConfigError(
                "`threshold=validation` needs a validation split; add a `val_mask` or set `threshold=0.5`"
            )
        # the model may have the threshold of an earlier training
        self.model.set_threshold(None if threshold == 0.5 else 0.5 if threshold == "validation" else threshold)

    def _keep_best(self, found: Assessment) -> None:
        # without a validation split the last weights are kept
        if found.value is None or self.best.value is None or found.value > self.best.value:
            if not self.has_finite_weights():
                raise DivergenceError(f"a weight is not finite in epoch {self.epoch}; lower `lr` or set `clip_norm`")
            weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
            self.best = Best(self.epoch, found.scores, found.value, weights)

    def _is_due(self, every: int) -> bool:
        ending = self.epoch + 1 == self.options.epochs
        return every > 0 and ((self.epoch + 1) % every == 0 or ending)

    def _patience_is_over(self) -> bool:
        patience = self.options.patience
        return patience is not None and self.best.epoch > 0 and self.epoch - self.best.epoch >= patience


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _check_dtype(model: Model, graph: Graph) -> None:
    """Refuses features of double precision for weights of another one."""
    features = graph.x.value if isinstance(graph.x, Csr) else graph.x
    weight = next(model.parameters(), None)
    if weight is not None and features.dtype == torch.float64 != weight.dtype:
        raise ConfigError(
            f"the features are {features.dtype} and the weights {weight.dtype}; train on `graph.to({weight.dtype})`"
        )
