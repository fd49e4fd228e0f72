import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from lazygnn.reports.numbers import by_target, number_table
from tests.helpers import random_rows


def test_errors_of_every_output_equal_those_of_scikit_learn() -> None:
    y = random_rows(60, 2, 0) * torch.tensor([1.0, 100.0])
    outputs = y + 0.5 + random_rows(60, 2, 1)
    rows = number_table(outputs, y, ["size", "price"])
    for column, row in enumerate(rows):
        found, wanted = outputs[:, column], y[:, column]
        assert row["mae"] == pytest.approx(mean_absolute_error(wanted, found))
        assert row["rmse"] == pytest.approx(root_mean_squared_error(wanted, found))
        assert row["r2"] == pytest.approx(r2_score(wanted, found))
        assert row["bias"] == pytest.approx(float((found - wanted).mean()))
        assert (row["mean"], row["deviation"]) == pytest.approx((float(wanted.mean()), float(wanted.numpy().std())))
    assert [row["name"] for row in rows] == ["size", "price"]


def test_a_single_node_has_no_variance_to_explain() -> None:
    (row,) = number_table(torch.tensor([[1.0]]), torch.tensor([[3.0]]), ["0"])
    assert (row["mae"], row["r2"], row["bias"]) == (2, None, -2)


def test_nodes_with_similar_targets_are_a_group() -> None:
    y = torch.arange(25.0).flip(0)[:, None]
    rows = by_target(2 * y, y, ["0"])
    assert [row["nodes"] for row in rows] == [3] * 5 + [2] * 5
    assert rows[0] == {"name": "0", "nodes": 3, "target": 1.0, "prediction": 2.0}
    assert rows[-1] == {"name": "0", "nodes": 2, "target": 23.5, "prediction": 47.0}
    assert len(by_target(y[:3], y[:3], ["0"])) == 3
