import json
import math

import pytest

from lazygnn.errors import ConfigError, DivergenceError
from lazygnn.training.divergence import LossWatch


def watched(*losses: float, watch: LossWatch | None = None) -> LossWatch:
    watch = LossWatch() if watch is None else watch
    for epoch, loss in enumerate(losses, 1):
        watch.add(epoch, loss)
    return watch


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_ends_training(loss: float) -> None:
    with pytest.raises(DivergenceError, match=rf"the loss is {loss} in epoch 3; lower `lr` or set `clip_norm`"):
        watched(1.0, 0.5, loss)
    # as such a loss was reported before
    assert issubclass(DivergenceError, ConfigError)
    assert issubclass(DivergenceError, FloatingPointError)


def test_a_loss_that_has_grown_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    watched(0.7, *[3.0 + 0.1 * epoch for epoch in range(30)])
    (record,) = caplog.records
    assert record.message == (
        "the loss has grown from 0.7 in the first epoch to 3.9 in epoch 11; lower `lr` or set `clip_norm`"
    )


@pytest.mark.parametrize(
    "losses",
    [
        [2.0 - 0.05 * epoch for epoch in range(40)],
        [1.6, *[1.6 + 0.2 * (-1) ** epoch for epoch in range(40)]],
        [1.0, *[50.0] * 9, 0.5, *[20.0] * 9],
        [0.001, *[0.15] * 30],
        [1.0, *[5.0] * 8],
    ],
    ids=["falls", "does not learn", "jumps", "starts near zero", "few epochs"],
)
def test_other_losses_are_no_reason_to_warn(losses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    watched(*losses)
    assert not caplog.records


def test_a_loss_that_has_exploded_ends_training() -> None:
    with pytest.raises(DivergenceError, match=r"has grown from 0\.5 in the first epoch to 9e\+08 in epoch 11; "):
        watched(0.5, *[9e8] * 10)


def test_a_watch_continues_from_a_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    before = watched(0.7, *[3.0] * 6)
    resumed = LossWatch()
    resumed.load_state_dict(json.loads(json.dumps(before.state_dict())))
    watched(*[3.0] * 20, watch=resumed)
    assert len(caplog.records) == 1
    again = LossWatch()
    again.load_state_dict(json.loads(json.dumps(resumed.state_dict())))
    watched(*[3.0] * 20, watch=again)
    assert len(caplog.records) == 1
    # an earlier version stored none
    again.load_state_dict({})
    assert again.first == 0.7
