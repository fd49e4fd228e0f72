import numpy as np
import pytest
import torch

from lazygnn.reports.mistakes import NUM_MISTAKES, find_mistakes
from lazygnn.task import Task
from tests.helpers import random_rows

IDS = np.array(["p", "q", "r", "s"])


def test_the_most_confident_wrong_class_comes_first() -> None:
    logits = torch.tensor([[9.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 9.0]])
    found = find_mistakes(logits, torch.tensor([0, 0, 1, 1]), Task("single-label", 2), IDS, ["no", "yes"])
    assert [(row["node"], row["target"], row["prediction"]) for row in found] == [
        ("r", "yes", "no"),
        ("q", "no", "yes"),
    ]
    assert [row["probability"] for row in found] == pytest.approx(torch.tensor([3.0, 1.0]).sigmoid().tolist())


def test_every_wrong_label_is_a_mistake() -> None:
    logits = torch.tensor([[2.0, -5.0], [1.0, -1.0], [-1.0, 3.0], [4.0, 4.0]])
    y = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = find_mistakes(logits, y, Task("multi-label", 2), IDS, ["a", "b"])
    assert [(row["node"], row["label"], row["target"], row["prediction"]) for row in found] == [
        ("p", "b", "has it", "does not have it"),
        ("q", "a", "does not have it", "has it"),
    ]
    assert [row["probability"] for row in found] == pytest.approx(torch.tensor([5.0, 1.0]).sigmoid().tolist())


def test_errors_of_numbers_are_compared_in_their_deviations() -> None:
    y = torch.tensor([[0.0, 0.0], [1.0, 1000.0], [0.0, 0.0], [1.0, 1000.0]])
    outputs = y + torch.tensor([[0.0, 500.0], [-2.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    found = find_mistakes(outputs, y, Task("regression", 2), np.arange(4), ["size", "price"])
    assert found == [
        {"node": 1, "label": "size", "target": 1.0, "prediction": -1.0, "error": 2.0},
        {"node": 0, "label": "price", "target": 0.0, "prediction": 500.0, "error": 500.0},
    ]


def test_there_are_at_most_twenty() -> None:
    logits, ids = random_rows(100, 3, 0), np.arange(100)
    found = find_mistakes(logits, (logits.argmax(dim=1) + 1) % 3, Task("single-label", 3), ids, ["0", "1", "2"])
    assert len(found) == NUM_MISTAKES
    sure = [row["probability"] for row in found]
    assert sure == sorted(sure, reverse=True)
    assert sure[0] == float(logits.softmax(dim=1).max())
    assert find_mistakes(logits, logits.argmax(dim=1), Task("single-label", 3), ids, ["0", "1", "2"]) == []
