"""Tells whether a model predicts nearly the same for every node, which a score alone may hide.

`N` nodes, `C` outputs.
"""

import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.ops import Csr
from lazygnn.training.metrics import predict_class

# share of nodes with the same prediction, and the deviation of predicted numbers in deviations of the targets
_SAME = 0.99
_DEVIATION = 0.01
# with fewer nodes, equal predictions may be right
_NODES = 20


def describe_constant(outputs: Tensor, graph: Graph, *, learns: bool = True) -> str | None:
    """Returns what is wrong with predictions that are nearly constant although their targets are not, or None.

    Judged are the validation and test nodes, or the training nodes of a graph without others.

    Args:
        outputs: Of every node, [N, C].
        graph: The graph, with labels and splits.
        learns: Whether the model has weights.
    """
    splits = [split for split in ("val", "test") if split in graph.masks] or list(graph.masks)
    if not splits:
        return None
    rows = torch.stack([graph.masks[split] for split in splits]).any(dim=0)
    if int(rows.sum()) < _NODES:
        return None
    outputs, y = outputs[rows.to(outputs.device)].cpu(), graph.y[rows].cpu()
    if graph.task.kind == "regression":
        found = _of_numbers(outputs.double(), y.double())
    else:
        found = _of_classes(outputs, y, graph) if graph.task.kind == "single-label" else _of_labels(outputs, y, graph)
    if found is None:
        return None
    what, remedy = found
    if not learns:
        remedy = "the model has no weights and spreads labels along edges: add training nodes, or edges to them"
    elif _are_equal_rows(graph.x):
        remedy = "all nodes have the same features, which say nothing: give others"
    return f"predictions are nearly constant: {what}; {remedy}"


def _are_equal_rows(x: Tensor | Csr) -> bool:
    if isinstance(x, Tensor):
        low, high = x.aminmax(dim=0)
        return bool((low == high).all())
    # entries are sorted by column
    count = x.rowptr.diff()
    if not bool((count == count[0]).all()):
        return False
    return all(bool((each == each[0]).all()) for each in (x.col.view(len(count), -1), x.value.view(len(count), -1)))


def _of_classes(outputs: Tensor, y: Tensor, graph: Graph) -> tuple[str, str] | None:
    predicted = predict_class(outputs)
    top = int(predicted.mode().values)
    share, wanted = (float((classes == top).double().mean()) for classes in (predicted, y))
    if not _is_constant(share, wanted):
        return None
    name = top if graph.class_names is None else graph.class_names[top]
    ranked = "; `metric=roc-auc` judges how probabilities rank the nodes" if outputs.shape[1] == 2 else ""
    return (
        f"class `{name}` for {share:.1%} of the nodes, which {wanted:.1%} of them have",
        f"train longer, change `lr`, or set `class_weight=balanced` if the other classes are rare{ranked}",
    )


def _of_labels(outputs: Tensor, y: Tensor, graph: Graph) -> tuple[str, str] | None:
    predicted = graph.task.predict_labels(outputs)
    # the labels that most nodes are predicted to have
    usual = predicted.double().mean(dim=0) > 0.5
    share, wanted = (float((labels == usual).all(dim=1).double().mean()) for labels in (predicted, y > 0))
    if not _is_constant(share, wanted):
        return None
    same = f"the same {int(usual.sum())} of {len(usual)} labels"
    return (
        f"{same} for {share:.1%} of the nodes, which {wanted:.1%} of them have",
        "train longer, change `lr`, or set `class_weight=balanced`",
    )


def _of_numbers(outputs: Tensor, y: Tensor) -> tuple[str, str] | None:
    predicted, wanted = outputs.std(dim=0), y.std(dim=0)
    if not bool((predicted < _DEVIATION * wanted).all()):
        return None
    deviation = f"their deviation is {float(predicted.max()):.3g}, that of the targets {float(wanted.max()):.3g}"
    return deviation, "train longer, or change `lr`"


def _is_constant(share: float, wanted: float) -> bool:
    # where nearly all nodes have the same label, predicting it is right as long as others are predicted too
    return share >= _SAME and 1 - share < (1 - wanted) / 2
