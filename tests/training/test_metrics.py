from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)
from torch import Tensor

from lazygnn.errors import ConfigError, DivergenceError, GraphError
from lazygnn.task import ERRORS, METRICS, Task
from lazygnn.training.metrics import find_metric, gain, predict_class, score
from tests.helpers import needs_cuda, random_rows

SINGLE, BINARY, MULTI = Task("single-label", 3), Task("single-label", 2), Task("multi-label", 2)
NUMBERS = Task("regression", 2)
AREAS: dict[str, Callable[..., float]] = {"roc-auc": roc_auc_score, "average-precision": average_precision_score}
SHIFTS = [-1e4, -20.0, 20.0, 1e4]


def measure(name: str, task: Task, logits: Tensor, y: Tensor) -> float:
    return find_metric(name, task)[1](logits, y)


def mixed(positive: Tensor) -> list[int]:
    """Returns the columns that have both values."""
    return [column for column in range(positive.shape[1]) if len(positive[:, column].unique()) == 2]


def mean_area(name: str, scores: Tensor, positive: Tensor) -> float:
    """Returns the mean of scikit-learn's areas over columns that have both values."""
    return float(np.mean([AREAS[name](positive[:, column], scores[:, column]) for column in mixed(positive)]))


def one_hot(y: Tensor, num_classes: int) -> Tensor:
    return torch.nn.functional.one_hot(y, num_classes)


@st.composite
def labels_with_ties(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Draws logits with few distinct values, among them zero, and targets of a multi-label task."""
    num_nodes, num_labels = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    size = num_nodes * num_labels
    logits = draw(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0]), min_size=size, max_size=size))
    y = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    shape = (num_nodes, num_labels)
    return torch.tensor(logits).view(shape), torch.tensor(y, dtype=torch.float32).view(shape)


@st.composite
def classes_with_ties(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Draws logits whose rows repeat, and targets of a single-label task; classes may be missing."""
    num_nodes, num_classes = draw(st.integers(1, 15)), draw(st.integers(2, 5))
    distinct = random_rows(4, num_classes, draw(st.integers(0, 1000)), torch.float32)
    rows = draw(st.lists(st.integers(0, 3), min_size=num_nodes, max_size=num_nodes))
    y = draw(st.lists(st.integers(0, num_classes - 1), min_size=num_nodes, max_size=num_nodes))
    return distinct[rows], torch.tensor(y)


def test_accuracy_is_the_share_of_correct_labels() -> None:
    logits = torch.tensor([[0.1, 2.0, 0.0], [3.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert measure("accuracy", SINGLE, logits, torch.tensor([1, 2, 2])) == 2 / 3


def test_micro_f1_counts_over_all_labels() -> None:
    logits = torch.tensor([[2.0, -1.0], [1.0, -1.0], [-3.0, 0.5]])
    y = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    # three true positives and one false negative; the mean over the labels is (1 + 2 / 3) / 2 = 5 / 6
    assert measure("micro-f1", MULTI, logits, y) == 6 / 7
    assert measure("macro-f1", MULTI, logits, y) == pytest.approx(5 / 6)


def test_micro_f1_weighs_a_frequent_label_by_its_count() -> None:
    """Uses an example in which micro F1 differs from the mean F1 over labels and over nodes."""
    logits = torch.tensor([[1.0, -1.0], [1.0, -1.0], [1.0, -1.0], [1.0, 1.0]])
    y = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    # first label: 4 true positives; second: 1 false positive, 1 false negative
    macro, over_nodes = (1 + 0) / 2, (1 + 1 + 2 / 3 + 2 / 3) / 4
    micro = 2 * 4 / (2 * 4 + 1 + 1)
    assert len({round(value, 3) for value in (micro, macro, over_nodes)}) == 3
    assert measure("micro-f1", MULTI, logits, y) == pytest.approx(micro)
    assert measure("macro-f1", MULTI, logits, y) == pytest.approx(macro)


@settings(max_examples=40, deadline=None)
@given(drawn=labels_with_ties())
def test_scores_of_several_labels_equal_those_of_scikit_learn(drawn: tuple[Tensor, Tensor]) -> None:
    logits, y = drawn
    task = Task("multi-label", y.shape[1])
    for average in ("micro", "macro"):
        # a single column is a binary task for scikit-learn, which has a class for zeros unless `labels` says otherwise
        labels = [1] if y.shape[1] == 1 else None
        expected = f1_score(y, logits > 0, average=average, labels=labels, zero_division=0)
        assert measure(f"{average}-f1", task, logits, y) == pytest.approx(expected, abs=1e-12)
    for name in AREAS:
        if mixed(y):
            assert measure(name, task, logits, y) == pytest.approx(mean_area(name, logits, y), abs=1e-12)
        else:
            with pytest.raises(GraphError, match=f"`{name}` needs a label that some nodes have and some do not"):
                measure(name, task, logits, y)


@settings(max_examples=40, deadline=None)
@given(drawn=classes_with_ties())
def test_scores_of_one_label_equal_those_of_scikit_learn(drawn: tuple[Tensor, Tensor]) -> None:
    logits, y = drawn
    num_classes = logits.shape[1]
    task = Task("single-label", num_classes)
    predicted = logits.argmax(dim=1)
    for average in ("micro", "macro"):
        expected = f1_score(y, predicted, average=average, zero_division=0)
        assert measure(f"{average}-f1", task, logits, y) == pytest.approx(expected, abs=1e-12)
    # scikit-learn's `balanced_accuracy_score` warns of classes that are only predicted
    expected = recall_score(y, predicted, labels=y.unique(), average="macro")
    assert measure("balanced-accuracy", task, logits, y) == pytest.approx(expected, abs=1e-12)
    probability, positive = logits.double().softmax(dim=1), one_hot(y, num_classes)
    if num_classes == 2:
        probability, positive = probability[:, 1:], positive[:, 1:]
    for name in AREAS:
        if len(y.unique()) > 1:
            expected = mean_area(name, probability, positive)
            assert measure(name, task, logits, y) == pytest.approx(expected, abs=1e-12)
        else:
            with pytest.raises(GraphError, match=f"`{name}` needs a class that some nodes have and some do not"):
                measure(name, task, logits, y)


def test_areas_of_many_classes_equal_those_of_scikit_learn_as_a_whole() -> None:
    logits, y = random_rows(300, 5, 0, torch.float32), torch.arange(300) % 5
    probability = logits.double().softmax(dim=1)
    task = Task("single-label", 5)
    expected = roc_auc_score(y, probability, multi_class="ovr", average="macro")
    assert measure("roc-auc", task, logits, y) == pytest.approx(expected, abs=1e-12)
    expected = average_precision_score(y, probability, average="macro")
    assert measure("average-precision", task, logits, y) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", AREAS)
def test_areas_of_labels_do_not_change_where_all_logits_are_shifted(name: str, shift: float) -> None:
    # multiples of 1 / 64, which a shift by 10,000 leaves exact in float32
    logits = (64 * random_rows(400, 3, 0, torch.float32)).round() / 64
    y = (logits + random_rows(400, 3, 1, torch.float32) > 0).float()
    plain = measure(name, Task("multi-label", 3), logits, y)
    assert plain == pytest.approx(mean_area(name, logits, y), abs=1e-12)
    assert plain > 0.8
    assert measure(name, Task("multi-label", 3), logits + shift, y) == plain


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", AREAS)
def test_areas_of_classes_do_not_change_where_probabilities_saturate(name: str, shift: float, num_classes: int) -> None:
    """A shift of one class makes its probability 0 or 1 for all nodes; the order of the nodes remains."""
    logits = torch.zeros(400, num_classes)
    logits[:, 1] = (64 * random_rows(400, 1, 0, torch.float32)[:, 0]).round() / 64
    # no node has the third class, or is likely to
    logits[:, 2:] = -1e6
    y = (logits[:, 1] + random_rows(400, 1, 1, torch.float32)[:, 0] > 0).long()
    task = Task("single-label", num_classes)
    plain = measure(name, task, logits, y)
    # the first class ranks in reverse
    expected = mean_area(name, torch.stack((-logits[:, 1], logits[:, 1]), dim=1), one_hot(y, 2))
    if num_classes == 2:
        expected = AREAS[name](y, logits[:, 1])
    assert plain == pytest.approx(expected, abs=1e-12)
    assert plain > 0.7
    moved = logits + shift * one_hot(torch.tensor(1), num_classes)
    assert measure(name, task, moved, y) == pytest.approx(plain, abs=1e-12)
    assert measure(name, task, logits + shift, y) == plain


def test_the_average_precision_of_two_classes_is_that_of_the_second() -> None:
    logits = torch.tensor([[0.0, 3.0], [0.0, 2.0], [5.0, 1.0], [0.0, 0.0]])
    # differences 3, 2, -4, 0: the third node ranks last
    y = torch.tensor([1, 0, 1, 0])
    assert measure("average-precision", BINARY, logits, y) == pytest.approx((1 + 2 / 4) / 2)
    # the first class is not the mirror image of the second
    assert measure("average-precision", BINARY, logits.flip(1), 1 - y) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert measure("roc-auc", BINARY, logits, y) == measure("roc-auc", BINARY, logits.flip(1), 1 - y) == 0.5


@pytest.mark.parametrize("name", AREAS)
def test_areas_leave_out_labels_that_all_nodes_have_or_none(name: str) -> None:
    logits = torch.tensor([[0.3, 1.0, 0.0], [0.1, 0.0, 1.0], [-0.2, 2.0, 0.5]])
    y = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    alone = measure(name, Task("multi-label", 1), logits[:, :1], y[:, :1])
    assert measure(name, Task("multi-label", 3), logits, y) == alone == AREAS[name](y[:, 0], logits[:, 0])


@pytest.mark.parametrize("name", AREAS)
def test_areas_leave_out_classes_that_no_node_has(name: str) -> None:
    logits, y = random_rows(30, 4, 0), torch.arange(30) % 2 * 3
    odds = logits.softmax(dim=1).logit()
    expected = np.mean([AREAS[name](y == column, odds[:, column]) for column in (0, 3)])
    assert measure(name, Task("single-label", 4), logits, y) == pytest.approx(expected, abs=1e-12)


def test_a_label_is_predicted_above_a_logit_of_zero() -> None:
    logits = torch.tensor([[0.0, -0.0], [1e-30, -1e-30]])
    assert MULTI.predict_labels(logits).tolist() == [[False, False], [True, False]]
    # the probability of the only predicted label rounds to 0.5
    y = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    assert measure("micro-f1", MULTI, logits, y) == 1
    assert measure("micro-f1", MULTI, logits, 1 - y) == 0


@pytest.mark.parametrize("name", ["micro-f1", "macro-f1"])
@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.85])
def test_f1_counts_labels_above_the_threshold(name: str, threshold: float) -> None:
    logits, y = random_rows(200, 4, 0), (random_rows(200, 4, 1) > 0.5).double()
    expected = f1_score(y > 0, logits.sigmoid() > threshold, average=name.removesuffix("-f1"), zero_division=0)
    task = Task("multi-label", 4, threshold=threshold)
    assert measure(name, task, logits, y) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", AREAS)
def test_areas_do_not_depend_on_the_threshold(name: str) -> None:
    logits, y = random_rows(50, 4, 0), (random_rows(50, 4, 1) > 0.5).double()
    found = {measure(name, Task("multi-label", 4, threshold=threshold), logits, y) for threshold in (0.1, 0.5, 0.9)}
    assert len(found) == 1


def test_the_first_of_equal_classes_is_predicted() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0], [-1.0, 2.0, 2.0]])
    assert predict_class(logits).tolist() == [0, 1]
    assert measure("accuracy", SINGLE, logits, torch.tensor([0, 1])) == 1


def test_f1_without_labels_and_predictions_is_zero() -> None:
    logits, y = -torch.ones(3, 2), torch.zeros(3, 2)
    assert measure("micro-f1", MULTI, logits, y) == 0
    assert measure("macro-f1", MULTI, logits, y) == 0


def test_macro_f1_leaves_out_classes_that_are_neither_found_nor_wanted() -> None:
    logits = torch.eye(4)[[0, 0, 2]]
    # class 0: two found, one of them right; class 1: wanted, not found; class 2: found and right; class 3: neither
    y = torch.tensor([0, 1, 2])
    assert measure("macro-f1", Task("single-label", 4), logits, y) == pytest.approx((2 / 3 + 0 + 1) / 3)


def test_r2_is_the_mean_share_of_variance_explained() -> None:
    logits = torch.tensor([[1.0, 0.0], [2.0, 1.0], [4.0, 0.0]])
    y = torch.tensor([[1.0, 0.0], [2.0, 2.0], [3.0, 1.0]])
    # residuals 1 of 2 and 2 of 2
    assert measure("r2", NUMBERS, logits, y) == pytest.approx((0.5 + 0.0) / 2)
    assert measure("r2", Task("regression", 1), y[:, :1], y[:, :1]) == 1


@pytest.mark.parametrize(("offset", "spread"), [(0, 1), (3e3, 1), (3e3, 1e-2), (3e8, 100), (-3e8, 1e4)])
def test_r2_is_exact_for_targets_far_from_zero(offset: float, spread: float) -> None:
    y = (offset + spread * random_rows(300, 2, 0)).float()
    logits = (y.double() + 0.3 * spread * random_rows(300, 2, 1)).float()
    found = measure("r2", NUMBERS, logits, y)
    assert found == pytest.approx(r2_score(y.double(), logits.double()), abs=1e-9)
    exact = []
    for column in range(2):
        wanted, given = ([Fraction(value) for value in rows[:, column].tolist()] for rows in (y, logits))
        mean = sum(wanted) / len(wanted)
        residual = sum((a - b) ** 2 for a, b in zip(wanted, given, strict=True))
        exact.append(1 - residual / sum((value - mean) ** 2 for value in wanted))
    assert found == pytest.approx(float(sum(exact) / 2), abs=1e-12)


def test_r2_of_equal_targets_is_one_if_all_are_met_and_else_zero() -> None:
    # the mean of three times 0.1 in float64 is not 0.1
    y = torch.tensor([[0.1, 0.1, 1.0]] * 3, dtype=torch.float64)
    y[0, 2] = 2.0
    logits = y.clone()
    assert float(y[:, 0].sum() / 3) != 0.1
    logits[0, 1] += 1e-3
    assert measure("r2", Task("regression", 3), logits, y) == pytest.approx((1 + 0 + 1) / 3)
    whole = (10 * y).round()
    assert measure("r2", Task("regression", 3), logits, whole) == pytest.approx(r2_score(whole, logits))


def test_auto_is_the_first_metric_of_the_task() -> None:
    assert [find_metric("auto", task)[0] for task in (SINGLE, MULTI, NUMBERS)] == ["accuracy", "micro-f1", "r2"]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in METRICS.items() for name in names])
def test_every_score_is_one_for_perfect_outputs_and_every_error_zero(kind: Any, name: str) -> None:
    classes = torch.tensor([0, 1, 2, 0])
    logits = 2.0 * torch.eye(3)[classes] - 1
    y = classes if kind == "single-label" else (logits > 0).float() if kind == "multi-label" else logits
    found, metric = find_metric(name, Task(kind, 3))
    assert (found, metric(logits, y)) == (name, 0 if name in ERRORS else 1)
    assert gain(name, metric(-logits, y)) < 0.5


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        (
            "r2",
            SINGLE,
            r"metric `r2` does not fit a single-label task; choose one of: auto, accuracy, balanced-accuracy, "
            r"micro-f1, macro-f1, roc-auc, average-precision$",
        ),
        (
            "acuracy",
            MULTI,
            r"metric `acuracy` does not fit a multi-label task; choose one of: auto, micro-f1, macro-f1, roc-auc, "
            r"average-precision$",
        ),
        ("accuracy", NUMBERS, r"metric `accuracy` does not fit a regression task; choose one of: auto, r2, mae, rmse$"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(name: str, task: Task, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_metric(name, task)


def test_every_split_is_scored_on_its_own_nodes() -> None:
    logits = torch.eye(3)
    y = torch.tensor([0, 0, 2])
    masks = {"train": torch.tensor([True, False, False]), "val": torch.tensor([False, True, True])}
    assert score(find_metric("auto", SINGLE)[1], logits, y, masks) == {"train": 1.0, "val": 0.5}


@pytest.mark.parametrize(
    ("name", "task", "y", "message"),
    [
        ("roc-auc", BINARY, torch.tensor([0, 1, 1]), r"needs a class .* some do not; add nodes .* or use `accuracy`$"),
        ("roc-auc", MULTI, torch.eye(3)[:, :2], r"needs a label .* some do not; add nodes .* or use `micro-f1`$"),
        ("average-precision", BINARY, torch.tensor([0, 1, 1]), r"needs a class that some nodes have and some do not"),
        ("average-precision", MULTI, torch.eye(3)[:, :2], r"needs a label that some nodes have and some do not"),
        ("r2", NUMBERS, torch.eye(3)[:, :2], r"needs at least two nodes; add nodes or drop the split$"),
    ],
)
def test_a_split_of_one_node_is_named(name: str, task: Task, y: Tensor, message: str) -> None:
    masks = {"train": torch.tensor([True, True, False]), "val": torch.tensor([False, False, True])}
    metric = find_metric(name, task)[1]
    assert len(score(metric, torch.zeros(3, 2), y, {"train": masks["train"]})) == 1
    with pytest.raises(GraphError, match=f"^split `val` of size 1: `{name}` {message}"):
        score(metric, torch.zeros(3, 2), y, masks)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in METRICS.items() for name in names])
def test_outputs_that_are_not_finite_have_no_score(kind: Any, name: str, value: float) -> None:
    y = torch.tensor([0, 1, 0, 1]) if kind == "single-label" else torch.eye(4)[:, :2]
    logits = torch.eye(4)[:, :2]
    logits[2, 1] = logits[3, 0] = value
    metric = find_metric(name, Task(kind, 2))[1]
    masks = {"train": torch.tensor([True, True, False, False])}
    assert len(score(metric, logits, y, masks)) == 1
    masks["val"] = ~masks["train"]
    message = rf"the outputs of split `val` hold {value} \(2 such values\), which have no score; lower `lr` or set `cli"
    with pytest.raises(ConfigError, match=message):
        score(metric, logits, y, masks)


@needs_cuda
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in METRICS.items() for name in names])
def test_scores_on_a_gpu_are_those_on_a_cpu(kind: Any, name: str) -> None:
    logits = random_rows(1000, 5, 0, torch.float32).round(decimals=2)
    y = torch.arange(1000) % 5 if kind == "single-label" else (logits + random_rows(1000, 5, 1) > 0).float()
    metric = find_metric(name, Task(kind, 5))[1]
    assert metric(logits.cuda(), y.cuda()) == pytest.approx(metric(logits, y), abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_errors_of_numbers_equal_those_of_scikit_learn(shift: float) -> None:
    y, outputs = random_rows(50, 2, 0) + shift, random_rows(50, 2, 1) * torch.tensor([1.0, 5.0]) + shift
    for name, function in (("mae", mean_absolute_error), ("rmse", root_mean_squared_error)):
        expected = function(y, outputs)
        assert measure(name, NUMBERS, outputs, y) == pytest.approx(expected, abs=1e-9)
        assert expected > 1


def test_a_lower_error_is_a_gain_and_so_is_a_higher_score() -> None:
    assert all(gain(name, 1.0) > gain(name, 2.0) for name in ("mae", "rmse"))
    scores = {name for names in METRICS.values() for name in names} - {"mae", "rmse"}
    assert all(gain(name, 2.0) > gain(name, 1.0) for name in scores)


def test_a_score_that_is_not_finite_is_a_divergence() -> None:
    y = torch.zeros(2, 1, dtype=torch.float64)
    with pytest.raises(DivergenceError, match=r"the score of split `val` is inf: outputs are too large; lower `lr` or"):
        score(find_metric("rmse", NUMBERS)[1], y + 1e200, y, {"val": torch.ones(2, dtype=torch.bool)})
