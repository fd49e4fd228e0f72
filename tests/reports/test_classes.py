import torch
from sklearn.metrics import confusion_matrix as reference
from sklearn.metrics import precision_recall_fscore_support

from lazygnn.reports.classes import class_table, confusion_matrix
from tests.helpers import random_rows

NAMES = ["a", "b", "c", "d"]


def test_classes_equal_those_of_scikit_learn() -> None:
    y = torch.arange(200) % 4
    predicted = torch.where(random_rows(200, 1, 0)[:, 0] > 0.5, (y * 3 + 1) % 4, y)
    rows = class_table(predicted, y, NAMES)
    expected = precision_recall_fscore_support(y, predicted, labels=range(4))
    for key, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert [row[key] for row in rows] == values.tolist()
    assert [row["predicted"] for row in rows] == torch.bincount(predicted, minlength=4).tolist()
    assert [row["name"] for row in rows] == NAMES
    assert confusion_matrix(predicted, y, 4) == reference(y, predicted).tolist()


def test_labels_equal_those_of_scikit_learn() -> None:
    y, predicted = (random_rows(100, 3, 0) > 0.3).float(), random_rows(100, 3, 1) > 0
    rows = class_table(predicted, y, NAMES[:3])
    expected = precision_recall_fscore_support(y, predicted)
    for key, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert [row[key] for row in rows] == values.tolist()


def test_a_ratio_without_a_denominator_is_not_defined() -> None:
    # of the classes, 1 is never predicted, 2 is in no target, and 3 neither
    rows = class_table(torch.tensor([0, 0, 2]), torch.tensor([0, 1, 0]), NAMES)
    assert [row["precision"] for row in rows] == [0.5, None, 0, None]
    assert [row["recall"] for row in rows] == [0.5, 0, None, None]
    assert [row["f1"] for row in rows] == [0.5, 0, 0, None]
    assert confusion_matrix(torch.tensor([0, 0, 2]), torch.tensor([0, 1, 0]), 3) == [[1, 0, 1], [1, 0, 0], [0, 0, 0]]
