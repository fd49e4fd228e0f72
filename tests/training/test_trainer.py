import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.config import TrainerOptions
from lazygnn.errors import ConfigError, DivergenceError, GraphError
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader, FullLoader
from lazygnn.methods import METHODS, build, resolve
from lazygnn.model import Model
from lazygnn.models import MLP, Decoupled
from lazygnn.models.decoupled import LazyGNN
from lazygnn.propagation import NoPropagation
from lazygnn.task import Task
from lazygnn.training import EpochReport, Trainer, evaluate, infer
from lazygnn.training.criterion import calibrated_loss, tempered_losses
from lazygnn.training.evaluation import Assessment, assess
from lazygnn.training.trainer import FitResult

State = dict[str, Tensor]
LEARNING = [method for method in METHODS if method != "label-propagation"]


def options(**values: Any) -> TrainerOptions:
    return TrainerOptions(**values)


def copy_state(model: nn.Module) -> State:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(first: State, second: State) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def weights_of(state: State) -> State:
    """Returns a state without the weights of a mixture, which are selected on validation."""
    return {name: value for name, value in state.items() if name != "weights"}


def course(method: str, graph: Graph, seed: int, **values: Any) -> tuple[list[EpochReport], list[State], State]:
    """Trains a few epochs; returns the reports, the weights after every epoch, and the final weights."""
    known = METHODS[method].options.model_fields.keys() | TrainerOptions.model_fields.keys()
    wanted = {"epochs": 4, "hidden_channels": 8, "num_blocks": 2} | values
    config = resolve(method, "block", {name: value for name, value in wanted.items() if name in known})
    torch.manual_seed(seed)
    built = build(config, graph)
    reports: list[EpochReport] = []
    states: list[State] = []

    def on_epoch(report: EpochReport) -> None:
        reports.append(report)
        states.append(copy_state(built.model))

    Trainer(built.model, built.loader, built.graph, config.trainer, on_epoch=on_epoch).fit()
    return reports, states, copy_state(built.model)


class Scripted(Decoupled):
    """A model that predicts the first `known[steps]` nodes correctly after `steps` training steps."""

    steps: Tensor

    def __init__(self, known: Sequence[int], factor: float = 1.0) -> None:
        super().__init__(MLP(3, 4, 2, mlp_layers=1), NoPropagation())
        self.known = known
        self.factor = factor
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, batch: Batch) -> Tensor:
        if self.training:
            self.steps += 1
        return super().forward(batch) * self.factor

    def infer(self, graph: Graph) -> Tensor:
        assert not self.training
        wrong = torch.arange(graph.num_nodes) >= self.known[int(self.steps)]
        return torch.eye(2)[graph.y ^ wrong.long()]


def scripted_graph(splits: str = "train val") -> Graph:
    """Returns a graph of ten validation nodes, then two training nodes."""
    at = np.arange(12)
    masks: dict[str, Any] = {"train": at >= 10, "val": at < 10}
    return Graph.from_edges(
        np.stack((at, at[::-1])),
        np.ones((12, 3)),
        at % 2,
        **{f"{split}_mask": masks[split] for split in splits.split()},
    )


def fit_script(
    known: Sequence[int], splits: str = "train val", **values: Any
) -> tuple[Scripted, FitResult, list[EpochReport]]:
    graph = scripted_graph(splits)
    model = Scripted(known)
    reports: list[EpochReport] = []
    trainer = Trainer(model, FullLoader(graph, 0), graph, options(**values), on_epoch=reports.append)
    return model, trainer.fit(), reports


@pytest.mark.parametrize("method", LEARNING)
def test_the_same_seed_gives_the_same_training_bit_for_bit(block_graph: Graph, method: str) -> None:
    first, second, other = (course(method, block_graph, seed, norm="batch") for seed in (0, 0, 1))
    assert [(r.loss, r.scores) for r in first[0]] == [(r.loss, r.scores) for r in second[0]]
    assert all(map(same, first[1], second[1]))
    assert [r.loss for r in first[0]] != [r.loss for r in other[0]]


@pytest.mark.parametrize(("method", "shown"), [*((method, 0.0) for method in LEARNING), ("lazygnn-deep", 0.5)])
def test_no_label_outside_the_training_split_reaches_the_weights(block_graph: Graph, method: str, shown: float) -> None:
    def with_other_labels(*splits: str) -> Graph:
        poisoned = torch.stack([block_graph.masks[split] for split in splits]).any(dim=0)
        return replace(block_graph, y=torch.where(poisoned, (block_graph.y + 1) % 3, block_graph.y))

    train = partial(course, method, seed=0, label_input=shown)
    straight, states, kept = train(block_graph)
    # validation labels select among the weights of all epochs and among mixtures, and do nothing else
    reports, poisoned, _ = train(with_other_labels("val", "test"))
    assert all(map(same, map(weights_of, states), map(weights_of, poisoned)))
    assert reports[-1].scores != straight[-1].scores
    assert same(kept, train(with_other_labels("test"))[2])
    # other training labels do change the weights
    assert not same(weights_of(states[-1]), weights_of(train(with_other_labels("train"))[1][-1]))


def test_training_lowers_the_loss_and_scores_are_those_of_evaluation(block_graph: Graph) -> None:
    config = resolve("lazygnn", "block", {"epochs": 40})
    torch.manual_seed(0)
    built = build(config, block_graph)
    reports: list[EpochReport] = []
    result = Trainer(built.model, built.loader, built.graph, config.trainer, on_epoch=reports.append).fit()
    assert reports[-1].loss < 0.7 * reports[0].loss
    assert result.scores == evaluate(built.model, built.graph)
    assert result.scores["test"] > 0.8
    assert [report.epoch for report in reports] == list(range(1, 41))
    assert result.seconds == pytest.approx(sum(report.seconds for report in reports))


def test_the_weights_with_the_best_validation_score_are_restored() -> None:
    model, result, reports = fit_script([0, 3, 8, 8, 5, 7], epochs=5)
    # the first of two equal scores counts
    assert (result.epochs, result.best_epoch) == (5, 2)
    assert result.scores == {"val": 0.8, "train": 0.0}
    assert int(model.steps) == 2
    assert [report.scores["val"] for report in reports if report.scores] == [0.3, 0.8, 0.8, 0.5, 0.7]


class Planned(Scripted):
    """A model whose second logits of every four nodes are given, for each number of training steps."""

    def __init__(self, logits: list[list[float]]) -> None:
        super().__init__([])
        self.logits = logits

    def infer(self, graph: Graph) -> Tensor:
        second = torch.tensor(self.logits[int(self.steps) - 1] * 3)
        return torch.stack((torch.zeros(graph.num_nodes), second), dim=1)


@pytest.mark.parametrize(
    ("metric", "best", "found"), [("accuracy", 1, 0.75), ("roc-auc", 2, 1.0), ("average-precision", 2, 1.0)]
)
def test_the_metric_decides_which_weights_are_best(metric: str, best: int, found: float) -> None:
    # of the classes 0, 1, 0, 1, the first epoch finds three, in a poor order; the second only zeros, in a perfect order
    at = np.arange(12)
    graph = Graph.from_edges(np.stack((at, at[::-1])), np.ones((12, 3)), at % 2, train_mask=at >= 8, val_mask=at < 4)
    model = Planned([[-1.0, 1.0, 3.0, 2.0], [-4.0, -2.0, -3.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
    result = Trainer(model, FullLoader(graph, 0), graph, options(epochs=3, metric=metric)).fit()
    assert (result.best_epoch, result.scores["val"]) == (best, found)
    assert int(model.steps) == best


def alternating(**values: Any) -> tuple[Planned, Trainer]:
    """Returns a trainer on nodes of the classes 0, 1, 0, 1 ...; four of them are for validation."""
    at = np.arange(12)
    graph = Graph.from_edges(np.stack((at, at[::-1])), np.ones((12, 3)), at % 2, train_mask=at >= 8, val_mask=at < 4)
    # three of four right and one wrong by far; then wrong by little; then more confident, and not better; then two
    # right, so near to four that the loss alone would take it
    model = Planned([[-2.0, 4.0, 4.0, 2.0], [-2.0, 4.0, 0.2, 2.0], [-4.0, 8.0, 0.41, 4.0], [-4.0, 8.0, 0.01, -0.01]])
    return model, Trainer(model, FullLoader(graph, 0), graph, options(epochs=4, **values))


@pytest.mark.parametrize(("criterion", "best"), [("score", 1), ("score-loss", 2)])
def test_the_criterion_decides_which_weights_are_best(criterion: str, best: int) -> None:
    model, trainer = alternating(criterion=criterion)
    result = trainer.fit()
    assert (result.best_epoch, result.scores["val"], int(model.steps)) == (best, 0.75, best)
    val = trainer.graph.masks["val"]
    outputs, y = model.infer(trainer.graph)[val], trainer.graph.y[val]
    loss = calibrated_loss(tempered_losses(trainer.graph.task, outputs, y)) if criterion == "score-loss" else 0.0
    assert trainer.best.value == pytest.approx(0.75 - loss)


def test_reports_have_the_value_of_the_criterion() -> None:
    for criterion in ("score", "score-loss"):
        _, trainer = alternating(criterion=criterion, eval_every=2)
        reports: list[EpochReport] = []
        trainer.on_epoch = reports.append
        best = trainer.fit().best_epoch
        assert [report.criterion is None for report in reports] == [True, False, True, False]
        assert reports[best - 1].criterion == trainer.best.value
        assert max(report.criterion for report in reports if report.criterion is not None) == trainer.best.value


def test_patience_counts_epochs_since_the_best_criterion() -> None:
    assert alternating(criterion="score", patience=1)[1].fit().epochs == 2
    assert alternating(criterion="score-loss", patience=1)[1].fit().epochs == 3


def test_a_resumed_run_keeps_the_value_of_its_best_weights() -> None:
    for criterion, best in (("score", 1), ("score-loss", 2)):
        _, straight = alternating(criterion=criterion)
        straight.options = straight.options.model_copy(update={"epochs": 3})
        straight.run()
        tensors, state = straight.checkpoint()
        model, resumed = alternating(criterion=criterion)
        resumed.restore(tensors, json.loads(json.dumps(state)))
        assert resumed.best.value == straight.best.value
        assert resumed.fit().best_epoch == best
        assert int(model.steps) == best


def test_a_checkpoint_without_a_value_was_chosen_by_its_score() -> None:
    _, first = alternating()
    first.options = first.options.model_copy(update={"epochs": 2})
    first.run()
    tensors, state = first.checkpoint()
    del state["best_value"]
    _, resumed = alternating()
    resumed.restore(tensors, state)
    assert resumed.best.value == 0.75
    assert resumed.fit().best_epoch == 1


def test_weights_of_classes_count_in_the_criterion() -> None:
    """Both epochs miss one node; the rare class, which the second one misses by less, weighs three times as much."""
    at = np.arange(12)
    y = np.array([0, 0, 0, 1] * 3)
    graph = Graph.from_edges(np.stack((at, at[::-1])), np.ones((12, 3)), y, train_mask=at >= 8, val_mask=at < 4)
    logits = [[-3.0, -3.0, -3.0, -0.6], [0.4, -1.0, -1.0, 1.0]]
    found = {}
    for weight in ("none", "balanced"):
        values = options(epochs=2, criterion="score-loss", class_weight=weight)
        trainer = Trainer(Planned(logits), FullLoader(graph, 0), graph, values)
        found[weight] = trainer.fit().best_epoch
    assert found == {"none": 1, "balanced": 2}


def test_a_loss_of_the_users_own_does_not_count_in_the_criterion() -> None:
    at = np.arange(12)
    graph = Graph.from_edges(np.stack((at, at[::-1])), np.ones((12, 3)), at % 2, train_mask=at >= 8, val_mask=at < 4)
    model, asked = Planned([[-1.0, 2.0, 2.0, 1.0], [-1.0, 2.0, 0.1, 1.0]]), []

    def own(outputs: Tensor, y: Tensor) -> Tensor:
        asked.append(len(y))
        return F.cross_entropy(outputs, y, reduction="none")

    values = options(epochs=2, criterion="score-loss")
    result = Trainer(model, FullLoader(graph, 0), graph, values, loss=own).fit()
    assert result.best_epoch == 2
    # the four training nodes of every step, and no evaluation
    assert len(asked) == 2


def test_the_lowest_error_is_best() -> None:
    at = np.arange(12)
    y = np.stack((at, -at), axis=1) + 0.5
    graph = Graph.from_edges(np.stack((at, at[::-1])), np.ones((12, 3)), y, train_mask=at >= 4, val_mask=at < 4)

    class Offset(Scripted):
        def infer(self, graph: Graph) -> Tensor:
            return graph.y + [3.0, 0.5, 2.0][int(self.steps) - 1]

    for metric, best in (("mae", 0.5), ("rmse", 0.5)):
        for criterion in ("score", "score-loss"):
            # a regression is chosen by its score
            values = options(epochs=3, metric=metric, criterion=criterion)
            trainer = Trainer(Offset([]), FullLoader(graph, 0), graph, values)
            result = trainer.fit()
            assert (result.best_epoch, result.scores["val"], trainer.best.value) == (2, best, -best)


def test_without_validation_nodes_the_last_weights_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    model, result, _ = fit_script([0, 8, 3, 2], splits="train", epochs=3, patience=1)
    assert (result.epochs, result.best_epoch) == (3, 3)
    (message,) = caplog.messages
    assert message.startswith("`patience` is 1, but ")
    assert message.endswith("training ends after all epochs; add a `val_mask`, or omit `patience`")
    assert int(model.steps) == 3
    assert set(result.scores) == {"train"}


def test_patience_counts_epochs_since_the_best() -> None:
    _, result, _ = fit_script([0, 3, 8, 5, 8, 5, 9, 9, 9], epochs=8, patience=3)
    assert (result.epochs, result.best_epoch) == (5, 2)
    _, result, _ = fit_script([0, 3, 8, 5, 8, 5, 9, 9, 9], epochs=8, patience=4)
    assert (result.epochs, result.best_epoch) == (8, 6)


def test_epochs_between_evaluations_are_not_scored_and_the_last_is() -> None:
    _, result, reports = fit_script([0, 9, 2, 9, 4, 5], epochs=5, eval_every=2)
    assert [report.scores and report.scores["val"] for report in reports] == [None, 0.2, None, 0.4, 0.5]
    assert result.best_epoch == 5


def test_zero_epochs_evaluate_the_untrained_model() -> None:
    model, result, reports = fit_script([4], epochs=0)
    assert (result.epochs, result.best_epoch, result.scores["val"]) == (0, 0, 0.4)
    assert int(model.steps) == 0
    assert not reports


def test_a_loss_that_is_not_a_number_ends_training() -> None:
    graph = scripted_graph()
    trainer = Trainer(Scripted([0] * 3, factor=math.nan), FullLoader(graph, 0), graph, options(epochs=2))
    with pytest.raises(DivergenceError, match=r"the loss is nan in epoch 1; lower `lr` or set `clip_norm`"):
        trainer.fit()


def test_weights_that_are_not_finite_are_never_the_best() -> None:
    class Broken(Scripted):
        """Predicts better than before with a weight that has no effect on the outputs and is not a number."""

        def infer(self, graph: Graph) -> Tensor:
            if int(self.steps) == 2:
                next(self.parameters()).data.fill_(math.nan)
            return super().infer(graph)

    graph, model = scripted_graph(), Broken([0, 5, 9, 9])
    trainer = Trainer(model, FullLoader(graph, 0), graph, options(epochs=3))
    with pytest.raises(DivergenceError, match=r"a weight is not finite in epoch 2; lower `lr` or set `clip_norm`"):
        trainer.run()
    assert (trainer.best.epoch, trainer.best.scores["val"]) == (1, 0.5)
    assert all(value.isfinite().all() for value in trainer.best.weights.values())


def test_a_metric_that_does_not_fit_is_refused_before_training(block_graph: Graph) -> None:
    model = Decoupled(MLP(3, 4, 3, mlp_layers=1), NoPropagation())
    with pytest.raises(ConfigError, match=r"metric `r2` does not fit a single-label task; choose one of: auto, accur"):
        Trainer(model, FullLoader(block_graph, 0), block_graph, options(metric="r2"))


def test_features_of_double_precision_are_refused_before_training(block_graph: Graph) -> None:
    model = Decoupled(MLP(3, 4, 3, mlp_layers=1), NoPropagation())
    graph = block_graph.to(torch.float64)
    with pytest.raises(ConfigError, match=r"features are torch.float64 and the weights torch.float32; train on `graph"):
        Trainer(model, FullLoader(graph, 0), graph, options(epochs=1))
    assert Trainer(model.double(), FullLoader(graph, 0), graph, options(epochs=1)).fit().epochs == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_that_do_not_fit_float16_are_a_reason_for_another_format(block_graph: Graph, dtype: str) -> None:
    assert isinstance(block_graph.x, Tensor)
    large = replace(block_graph, x=block_graph.x * 1e7)
    values = {"epochs": 3, "eval_every": 3, "lr": 1e-9, "history_dtype": dtype, "standardize_features": "off"}
    config = resolve("lazygnn", "block", values)
    built = build(config, large)
    trainer = Trainer(built.model, built.loader, built.graph, config.trainer)
    if dtype == "float16":
        with pytest.raises(DivergenceError, match=r"loss is nan .* above 65,504, set `history_dtype=bfloat16`$"):
            trainer.fit()
    else:
        assert trainer.fit().epochs == 3


@pytest.mark.parametrize("num_parts", [1, 6])
def test_an_interrupted_training_leaves_the_next_one_a_whole_epoch(block_graph: Graph, num_parts: int) -> None:
    parts = {"num_parts": num_parts, "partition": "random"} if num_parts > 1 else {}
    config = resolve("lazygnn", "block", {"epochs": 2, "hidden_channels": 8, **parts})
    built = build(config, block_graph)

    def stop(trainer: Trainer) -> None:
        if trainer.num_batches == max(num_parts - 1, 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainer(built.model, built.loader, built.graph, config.trainer, on_batch=stop).fit()
    again = Trainer(built.model, built.loader, built.graph, config.trainer)
    again.fit()
    assert again.num_batches == 2 * num_parts


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_metric_that_a_split_does_not_define_is_refused_before_training(split: str) -> None:
    at = np.arange(8)
    masks = {f"{name}_mask": at % 4 == index for index, name in enumerate(("train", "val", "test"))}
    y = at // 4
    y[masks[f"{split}_mask"]] = 1
    graph = Graph.from_edges(np.stack((at, at)), np.eye(8), y, **masks)
    model = Decoupled(MLP(8, 4, 2, mlp_layers=1), NoPropagation())
    with pytest.raises(GraphError, match=rf"split `{split}` of size 2: `roc-auc` needs a class that some nodes have"):
        Trainer(model, FullLoader(graph, 0), graph, options(epochs=1, metric="roc-auc"))


@pytest.mark.parametrize("num_nodes", [59, 61])
def test_a_history_of_another_size_is_refused_before_training_in_parts(block_graph: Graph, num_nodes: int) -> None:
    loader = ClusterLoader(block_graph, torch.tensor([0, 30, 60]), 2)
    with pytest.raises(ConfigError, match=f"`num_nodes` is {num_nodes}, but the graph has 60 nodes; build the model"):
        Trainer(LazyGNN(3, 4, 3, num_nodes=num_nodes), loader, block_graph, options())
    assert Trainer(LazyGNN(3, 4, 3, num_nodes=60), loader, block_graph, options(epochs=2)).fit().epochs == 2


def test_a_graph_without_training_nodes_can_be_evaluated_alone() -> None:
    graph, model = scripted_graph("val"), Scripted([10])
    loader = FullLoader(graph, 0)
    with pytest.raises(GraphError, match="has no training nodes; give it labels `y` and a `train_mask`"):
        Trainer(model, loader, graph, options(epochs=1))
    assert Trainer(model, loader, graph, options(epochs=0)).fit().scores == {"val": 1.0}


def without_loss(graph: Graph) -> FullLoader:
    """Makes batches with a loss of zero, so that nothing but the weight decay moves a weight."""
    loader = FullLoader(graph, 0)
    loader.batch = replace(loader.batch, weight=torch.zeros(graph.num_nodes))
    return loader


@pytest.mark.parametrize(("decay_layers", "decayed"), [(None, 3), (1, 1), (2, 2), (9, 3)])
def test_weight_decay_spares_the_later_layers(block_graph: Graph, decay_layers: int | None, decayed: int) -> None:
    model = Decoupled(MLP(3, 4, 3, mlp_layers=3, dropout=0.0), NoPropagation())
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    chosen = options(epochs=1, optimizer="adamw", lr=0.1, weight_decay=0.5, decay_layers=decay_layers)
    Trainer(model, without_loss(block_graph), block_graph, chosen).fit()
    for depth, layer in enumerate(model.layer_parameters()):
        expected = 0.95 if depth < decayed else 1.0
        for parameter in layer:
            torch.testing.assert_close(parameter.detach(), torch.full_like(parameter, expected), rtol=0, atol=1e-7)


def test_the_schedule_reaches_the_optimizer() -> None:
    _, _, reports = fit_script([0] * 5, epochs=4, lr=2.0, schedule="cosine")
    assert [report.lr for report in reports] == pytest.approx([2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)])


def test_gradients_are_clipped(block_graph: Graph) -> None:
    norms = {}
    for clip in (None, 1e-3):
        torch.manual_seed(0)
        model = Decoupled(MLP(3, 4, 3, mlp_layers=2, dropout=0.0), NoPropagation())
        Trainer(model, FullLoader(block_graph, 0), block_graph, options(epochs=1, clip_norm=clip)).fit()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        norms[clip] = math.sqrt(sum(float(g.square().sum()) for g in grads))
    assert norms[None] > 0.01
    assert norms[1e-3] == pytest.approx(1e-3, rel=1e-3)


class FirstStep(Exception):
    """Ends training where the first step starts."""


def reach_first_step(method: str, graph: Graph, observe: Callable[[Trainer], None], **values: Any) -> None:
    """Calls `observe` before training starts, and again when the first step computes its loss."""
    torch.manual_seed(0)
    parts = {"num_parts": 4, "partition": "random", "hidden_channels": 8, "norm": "batch", "dropout": 0.5}
    config = resolve(method, "block", parts | values)
    built = build(config, graph)
    trainer = Trainer(built.model, built.loader, built.graph, config.trainer)

    def stop(*_: object) -> None:
        observe(trainer)
        raise FirstStep

    built.model.loss = stop  # type: ignore[method-assign, assignment]
    observe(trainer)
    with pytest.raises(FirstStep):
        trainer.run()


def num_written(trainer: Trainer) -> set[int]:
    """Counts the written rows of every history; gradients are left out, since they need a loss."""
    kept = {name: history for name, history in trainer.histories.items() if "gradients" not in name}
    return {int((history.pushed >= 0).sum()) for history in kept.values()}


WITH_HISTORIES = ["lazygnn", "lazygnn-paper", "gcn-gas", "gcn-graphfm", "gcn-lmc", "gcnii-gas", "appnp-gas"]


@pytest.mark.parametrize("method", WITH_HISTORIES)
def test_every_row_of_a_history_is_written_before_the_first_step(block_graph: Graph, method: str) -> None:
    written: list[set[int]] = []
    reach_first_step(method, block_graph, lambda trainer: written.append(num_written(trainer)))
    assert written == [{0}, {60}]


def test_the_history_of_a_full_batch_is_empty_before_the_first_step(block_graph: Graph) -> None:
    written: list[set[int]] = []
    whole = {"num_parts": 1, "partition": "auto"}
    reach_first_step("lazygnn", block_graph, lambda trainer: written.append(num_written(trainer)), **whole)
    assert written == [{0}, {0}]


@pytest.mark.parametrize("method", WITH_HISTORIES)
def test_filling_histories_changes_no_weight_and_no_statistic_of_batch_norm(block_graph: Graph, method: str) -> None:
    states: list[State] = []
    reach_first_step(method, block_graph, lambda trainer: states.append(copy_state(trainer.model)))
    assert any(name.endswith("running_mean") for name in states[0])
    assert same(*states)


@pytest.mark.parametrize("method", WITH_HISTORIES)
def test_filling_histories_leaves_the_random_numbers_of_training_as_they_are(block_graph: Graph, method: str) -> None:
    generators: list[Tensor] = []
    reach_first_step(method, block_graph, lambda _: generators.append(torch.get_rng_state()))
    assert torch.equal(*generators)


def test_training_on_a_cpu_starts_no_gpu(block_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    # torch seeds all GPUs, those that have not started when they do
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda _: None)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda *_: started.append("random numbers"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: started.append("synchronization"))
    config = resolve("lazygnn", "block", {"hidden_channels": 8, "epochs": 1, "num_parts": 3})
    built = build(config, block_graph, "cpu")
    Trainer(built.model, built.loader, built.graph, config.trainer).fit()
    assert started == []


def test_the_loss_of_an_epoch_is_the_mean_over_its_batches(block_graph: Graph) -> None:
    torch.manual_seed(0)
    model = Decoupled(MLP(3, 4, 3, mlp_layers=2, dropout=0.0), NoPropagation())
    train, y = block_graph.masks["train"], block_graph.y
    loader = ClusterLoader(block_graph, torch.tensor([0, 10, 35, 60]), 0, halo="none")
    # the weights of a batch make the mean over batches the mean over training nodes
    expected = float(block_graph.task.loss(infer(model, block_graph)[train], y[train]).mean())
    reports: list[EpochReport] = []
    # a learning rate that changes no weight, so that every batch sees the same model
    Trainer(model, loader, block_graph, options(epochs=2, lr=1e-30), on_epoch=reports.append).fit()
    assert [report.loss for report in reports] == pytest.approx([expected, expected], rel=1e-5)


@pytest.mark.parametrize("method", ["lazygnn", "lazygnn-deep"])
def test_epochs_are_validated_by_estimates_and_the_result_is_exact(
    monkeypatch: pytest.MonkeyPatch, block_graph: Graph, method: str
) -> None:
    estimated: list[bool] = []

    def watched(model: Model, *args: Any, **options: Any) -> Assessment:
        estimated.append(any(getattr(each, "estimates", False) for each in model.modules()))
        return assess(model, *args, **options)

    monkeypatch.setattr("lazygnn.training.trainer.assess", watched)
    config = resolve(method, "block", {"epochs": 4, "hidden_channels": 8})
    built = build(config, block_graph)
    result = Trainer(built.model, built.loader, built.graph, config.trainer).fit()
    assert estimated == [True] * 4 + [False]
    assert result.scores == evaluate(built.model, built.graph)
    assert result.eval_seconds > 0


def test_a_model_without_a_fixed_point_is_not_evaluated_twice(
    monkeypatch: pytest.MonkeyPatch, block_graph: Graph
) -> None:
    calls: list[Model] = []

    def watched(model: Model, *args: Any, **options: Any) -> Assessment:
        calls.append(model)
        return assess(model, *args, **options)

    monkeypatch.setattr("lazygnn.training.trainer.assess", watched)
    config = resolve("appnp", "block", {"epochs": 4})
    built = build(config, block_graph)
    result = Trainer(built.model, built.loader, built.graph, config.trainer).fit()
    assert len(calls) == 4
    assert result.scores == evaluate(built.model, built.graph)


def with_labels(graph: Graph) -> Graph:
    """Returns a graph whose nodes have two of five labels, none of them frequent."""
    classes = graph.y[:, None]
    y = ((torch.arange(5) == classes) | (torch.arange(5) == classes + 2)).float()
    return replace(graph, y=y, task=Task("multi-label", 5))


def train_labels(graph: Graph, **values: Any) -> tuple[Trainer, FitResult]:
    torch.manual_seed(0)
    config = resolve("lazygnn-deep", "mine", {"num_blocks": 1, "hidden_channels": 8, "epochs": 12, **values})
    built = build(config, graph)
    trainer = Trainer(built.model, built.loader, built.graph, config.trainer)
    return trainer, trainer.fit()


def test_a_threshold_is_learned_with_the_best_weights(block_graph: Graph) -> None:
    graph = with_labels(block_graph)
    plain, (trainer, learned) = train_labels(graph)[1], train_labels(graph, threshold="validation")
    assert plain.threshold == 0.5
    assert learned.threshold < 0.5
    assert learned.scores["val"] > plain.scores["val"]
    assert evaluate(trainer.model, trainer.graph) == learned.scores
    # it has no effect on training
    alike = [train_labels(graph, threshold=value, eval_every=12)[0] for value in (0.5, "validation")]
    first, second = (dict(each.model.named_parameters()) for each in alike)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_given_threshold_is_kept(block_graph: Graph) -> None:
    trainer, found = train_labels(with_labels(block_graph), threshold=0.3)
    assert found.threshold == 0.3
    assert evaluate(trainer.model, trainer.graph) == found.scores


def test_a_resumed_training_has_the_threshold_of_its_best_weights(block_graph: Graph) -> None:
    graph = with_labels(block_graph)
    trained, expected = train_labels(graph, threshold="validation")
    resumed, _ = train_labels(graph, threshold="validation", epochs=0)
    resumed.restore(*trained.checkpoint())
    found = resumed.finish()
    assert found.scores == expected.scores
    assert found.threshold == expected.threshold == float(trained.checkpoint()[0]["best.label_threshold"])


def test_a_threshold_that_has_no_effect_is_refused(block_graph: Graph) -> None:
    with pytest.raises(
        ConfigError, match=r"`threshold` is 0\.3, but the nodes of this graph do not have several labels"
    ):
        train_labels(block_graph, threshold=0.3)
    graph = with_labels(block_graph)
    unjudged = replace(graph, masks={name: mask for name, mask in graph.masks.items() if name != "val"})
    with pytest.raises(ConfigError, match="`threshold=validation` needs a validation split; add a `val_mask` or set"):
        train_labels(unjudged, threshold="validation")


def test_a_model_that_is_trained_again_forgets_its_threshold(block_graph: Graph) -> None:
    graph = with_labels(block_graph)
    first, learned = train_labels(graph, threshold="validation")
    assert learned.threshold != 0.5
    again = Trainer(first.model, first.loader, first.graph, options(epochs=1)).fit()
    assert again.threshold == 0.5
    assert evaluate(first.model, graph) == again.scores


def test_a_metric_without_a_threshold_has_one_for_predictions(block_graph: Graph) -> None:
    graph = with_labels(block_graph)
    plain = train_labels(graph, metric="roc-auc")[1]
    learned = train_labels(graph, metric="roc-auc", threshold="validation")[1]
    assert learned.scores == plain.scores
    assert learned.threshold < plain.threshold == 0.5


def test_a_checkpoint_has_the_random_state_of_the_gpu_of_the_model(
    block_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = resolve("lazygnn", "block", {"hidden_channels": 8, "epochs": 1})
    built = build(config, block_graph)
    trainer = Trainer(built.model, built.loader, built.graph, config.trainer)
    # a CPU draws nothing from a GPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "random.cuda" not in trainer.checkpoint()[0]
    states = {torch.device("cuda", index): torch.full((2,), index, dtype=torch.uint8) for index in range(2)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", states.__getitem__)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.update({device: state}))
    # not the current one
    trainer._device = torch.device("cuda", 1)
    checkpoint = trainer.checkpoint()
    states[trainer._device] = torch.zeros(2, dtype=torch.uint8)
    trainer.restore(*checkpoint)
    assert [state.tolist() for state in states.values()] == [[0, 0], [1, 1]]
