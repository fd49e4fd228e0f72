import pytest
import torch
from sklearn.metrics import log_loss
from torch import Tensor

from lazygnn.reports.calibration import NUM_BINS, calibration, fit_temperature
from lazygnn.task import Task
from tests.helpers import random_rows

SINGLE, MULTI = Task("single-label", 4), Task("multi-label", 3)


def drawn(logits: Tensor, seed: int) -> Tensor:
    """Returns classes drawn with the probabilities of the logits."""
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]


def test_the_error_is_the_mean_gap_between_probability_and_share() -> None:
    probability = torch.tensor([0.95, 0.91, 0.55, 0.59, 0.51], dtype=torch.float64)
    logits = torch.stack((probability.logit(), torch.zeros(5, dtype=torch.float64)), dim=1)
    found = calibration(logits, torch.tensor([0, 1, 0, 0, 1]), Task("single-label", 2))
    # two bins: 0.93 against 1 / 2, and 0.55 against 2 / 3
    assert found["error"] == pytest.approx((2 * abs(0.93 - 1 / 2) + 3 * abs(0.55 - 2 / 3)) / 5)
    counts = [one["count"] for one in found["bins"]]
    assert counts == [0, 0, 0, 0, 0, 3, 0, 0, 0, 2]
    assert found["bins"][9]["probability"] == pytest.approx(0.93)
    assert found["bins"][9]["share"] == 0.5
    assert found["bins"][0]["share"] is None
    assert (found["bins"][9]["low"], found["bins"][9]["high"]) == (0.9, 1.0)


def test_a_certain_node_is_in_the_last_bin() -> None:
    found = calibration(torch.tensor([[100.0, -100.0]]), torch.tensor([0]), Task("single-label", 2))
    assert len(found["bins"]) == NUM_BINS
    assert found["bins"][-1]["count"] == 1
    assert found["error"] == 0


def test_labels_count_by_themselves() -> None:
    logits = torch.tensor([[4.0, -4.0, 0.2], [4.0, -4.0, 0.2]])
    y = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    found = calibration(logits, y, MULTI)
    assert [one["count"] for one in found["bins"]] == [2, 0, 0, 0, 0, 2, 0, 0, 0, 2]
    low, half = torch.tensor([-4.0, 0.2]).sigmoid().tolist()
    assert found["error"] == pytest.approx((2 * low + 2 * low + 2 * abs(half - 0.5)) / 6, rel=1e-5)


def test_the_log_loss_equals_that_of_scikit_learn() -> None:
    logits, y = random_rows(100, 4, 0), torch.arange(100) % 4
    assert calibration(logits, y, SINGLE)["log_loss"] == pytest.approx(log_loss(y, logits.softmax(dim=1)))


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_of_outputs_is_found_again(temperature: float) -> None:
    logits = 2 * random_rows(20_000, 4, 0)
    y = drawn(logits, 1)
    assert fit_temperature(logits * temperature, y, SINGLE) == pytest.approx(temperature, rel=0.05)
    uniform = torch.rand(20_000, 3, generator=torch.Generator().manual_seed(2))
    labels = (logits[:, :3].sigmoid() > uniform).float()
    assert fit_temperature(logits[:, :3] * temperature, labels, MULTI) == pytest.approx(temperature, rel=0.05)


def test_a_temperature_lowers_the_error_of_a_model_that_is_too_sure() -> None:
    logits = random_rows(8_000, 4, 0)
    y, sure = drawn(logits, 1), 5 * logits
    temperature = fit_temperature(sure[:4000], y[:4000], SINGLE)
    assert temperature is not None
    before, after = (calibration(sure[4000:] / scale, y[4000:], SINGLE) for scale in (1.0, temperature))
    assert before["error"] > 0.2
    assert after["error"] < 0.03
    assert after["log_loss"] < before["log_loss"]


def test_no_temperature_is_fitted_where_none_is_lowest() -> None:
    assert fit_temperature(torch.zeros(10, 4), torch.arange(10) % 4, SINGLE) is None
    # all right: the colder the better
    assert fit_temperature(torch.eye(4), torch.arange(4), SINGLE) is None
    assert fit_temperature(3 * torch.eye(3) - 1, torch.eye(3), MULTI) is None
    # one of many is wrong, which bounds it
    logits, y = torch.eye(4).repeat(25, 1), torch.arange(100) % 4
    y[0] = 1
    found = fit_temperature(logits, y, SINGLE)
    assert found is not None
    assert 0.05 < found < 1
