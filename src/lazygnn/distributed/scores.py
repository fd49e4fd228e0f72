"""Exact scores over the nodes of all ranks."""

from torch import Tensor

from lazygnn.distributed.group import Ranks
from lazygnn.distributed.memory import return_free_memory
from lazygnn.errors import DivergenceError, GraphError
from lazygnn.graph import Graph
from lazygnn.model import Model
from lazygnn.task import Task
from lazygnn.training.criterion import calibrated_loss, tempered_losses
from lazygnn.training.evaluation import Assessment, assess_by
from lazygnn.training.metrics import Metric, find_metric, score_of_rows
from lazygnn.training.threshold import choose_threshold

# metrics that are a mean over nodes, by task
_MEANS = {"single-label": ("accuracy", "micro-f1"), "multi-label": (), "regression": ("mae",)}


def assess_ranks(
    model: Model,
    graph: Graph,
    ranks: Ranks,
    metric: str = "auto",
    *,
    loss: Task | None = None,
    select: bool = False,
    learn_threshold: bool = False,
) -> Assessment:
    """Evaluates a model over the nodes of all ranks; all of them return the same numbers.

    Args:
        model: The model, with the same weights on every rank.
        graph: The nodes of this rank.
        ranks: All ranks.
        metric: A metric of the task; `auto` is its default.
        loss: The criterion is the score less the calibrated loss of this task; `None` means the score alone.
        select: Whether the model first chooses what is chosen on validation.
        learn_threshold: Whether its threshold is chosen, too.
    """
    name, _ = find_metric(metric, graph.task)

    def scored(rows: Tensor, split: str, task: Task) -> float:
        return score_ranks(name, find_metric(name, task)[1], rows, graph, ranks, split)

    def best_threshold(rows: Tensor) -> float:
        outputs, labels = ranks.gather_rows(rows), ranks.gather_rows(targets)
        # only the first rank has gathered rows
        own = 0.5 if outputs is None or labels is None else choose_threshold(name, outputs, labels)
        return ranks.from_first(own)

    def lost(rows: Tensor) -> float:
        assert loss is not None
        return calibrated_loss(ranks.sum(tempered_losses(loss, rows, targets)))

    return_free_memory()
    targets = graph.y[graph.masks["val"]] if "val" in graph.masks else graph.y[:0]
    threshold = best_threshold if select and learn_threshold else None
    return assess_by(model, graph, name, scored, None if loss is None else lost, threshold, select=select)


def score_ranks(name: str, metric: Metric, rows: Tensor, graph: Graph, ranks: Ranks, split: str) -> float:
    """Returns the score of a split: a mean over ranks if the metric is one, or else that of the gathered rows.

    Args:
        name: The name of the metric.
        metric: The metric.
        rows: Outputs of the nodes of this rank that are in the split, [T, C].
        graph: The nodes of this rank.
        ranks: All ranks.
        split: A split of the graph.

    Raises:
        DivergenceError: An output is not finite.
        GraphError: The metric is not defined on the nodes of the split.
    """
    targets = graph.y[graph.masks[split]]
    found = 0.0
    failure: DivergenceError | GraphError | None = None
    if name in _MEANS[graph.task.kind]:
        try:
            own = score_of_rows(metric, rows, targets, split) if len(rows) else 0.0
        except DivergenceError as error:
            own, failure = 0.0, error
        shares = ranks.gather((own * len(rows), None if failure is None else str(failure)))
        found = sum(share for share, _ in shares) / max(graph.count(split), 1)
        failures = [text for _, text in shares if text is not None]
    else:
        outputs, labels = ranks.gather_rows(rows), ranks.gather_rows(targets)
        if outputs is not None and labels is not None:
            try:
                found = score_of_rows(metric, outputs, labels, split)
            except (DivergenceError, GraphError) as error:
                failure = error
        found, text, is_graph = ranks.from_first((found, str(failure), isinstance(failure, GraphError)))
        if is_graph:
            raise GraphError(text)
        failures = [] if text == "None" else [text]
    if failures:
        raise DivergenceError(failures[0])
    return found
