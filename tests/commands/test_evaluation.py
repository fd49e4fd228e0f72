import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lazygnn import commands
from lazygnn.config import Config
from lazygnn.errors import CheckpointError
from lazygnn.methods import METHODS
from lazygnn.run.folder import Run
from lazygnn.run.saving import Saver

Configure = Callable[..., Config]
KEYS = ["method", "dataset", "seed", "metric", "val", "test", "epochs", "best_epoch", "seconds_per_epoch"]
KEYS += ["peak_memory_mib", "run"]
LEARNING = [method for method in METHODS if method != "label-propagation"]


@pytest.mark.parametrize("method", LEARNING)
def test_evaluation_reproduces_the_scores_of_training(
    dataset: Path, tmp_path: Path, method: str, configure: Configure
) -> None:
    config = configure(dataset, method, prop_channels=4, norm="batch", epochs=5)
    trained = commands.train(config, tmp_path / "run", quiet=True)
    again = commands.evaluate_run(tmp_path / "run", device="cpu")
    assert list(trained) == list(again) == KEYS
    assert trained | {"peak_memory_mib": 0} == again | {"peak_memory_mib": 0}
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == trained
    # the median, since the first epochs may take longer
    times = [line["seconds"] for line in Run.open(tmp_path / "run").log.read()]
    assert trained["seconds_per_epoch"] == sorted(times)[2]


def test_weights_of_another_model_do_not_fit(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    for name, hidden in (("a", 8), ("b", 16)):
        commands.train(configure(dataset, hidden_channels=hidden), tmp_path / name, quiet=True)
    (tmp_path / "b" / "best.safetensors").replace(tmp_path / "a" / "best.safetensors")
    with pytest.raises(
        CheckpointError, match=r"the weights in `.*a` do not fit its configuration: .*size mismatch"
    ) as e:
        commands.evaluate_run(tmp_path / "a", device="cpu")
    assert "\n" not in str(e.value)


def test_a_run_that_has_not_ended_is_refused_before_its_graph_is_loaded(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Configure
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Saver, "__call__", stop)
    with pytest.raises(KeyboardInterrupt):
        commands.train(configure(dataset), tmp_path / "run", quiet=True)
    dataset.unlink()
    for use in (commands.evaluate_run, commands.predict_run):
        with pytest.raises(
            CheckpointError, match=r"run` has no weights yet, since its training has not ended; resume it"
        ):
            use(tmp_path / "run", device="cpu")
