import errno
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lazygnn import commands
from lazygnn.commands.exporting import export_run
from lazygnn.commands.loading import load_run
from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.errors import CheckpointError, ConfigError, DivergenceError, GraphError, LockedError
from lazygnn.export import plain
from lazygnn.graph import Graph
from lazygnn.methods import derive, read_config
from lazygnn.partitioning.choice import engine_version
from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.run.digests import DIGESTS
from lazygnn.run.environment import describe_environment
from lazygnn.run.folder import CHECKPOINTS, CONFIG, CURVES, RESULT, WEIGHTS, Run
from lazygnn.run.lock import LOCK, locked
from lazygnn.run.log import RunLog
from lazygnn.run.saving import Interrupted
from lazygnn.run.tensorboard import TensorBoardLog
from lazygnn.training import EpochReport
from tests.helpers import read_events

Arrays = dict[str, Any]
Configure = Callable[..., Config]


def scores(result: dict[str, Any]) -> tuple[float, float]:
    return result["val"], result["test"]


def test_the_same_seed_gives_the_same_scores(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    config = configure(dataset, epochs=5)
    first, second = (commands.train(config, tmp_path / name, quiet=True) for name in ("a", "b"))
    assert scores(first) == scores(second)
    logs = [[line["loss"] for line in Run.open(tmp_path / name).log.read()] for name in ("a", "b")]
    assert logs[0] == logs[1]
    assert len(logs[0]) == 5


def test_a_given_graph_is_not_loaded(tmp_path: Path, block_graph: Graph, configure: Configure) -> None:
    result = commands.train(configure("no-such-data-set"), tmp_path / "run", graph=block_graph, quiet=True)
    assert result["dataset"] == "no-such-data-set"
    message = r"run's graph `no-such-data-set` is not in `.*`; give the folder that has .* graph itself as `trained_on`"
    with pytest.raises(GraphError, match=message):
        commands.evaluate_run(tmp_path / "run", device="cpu", root=str(tmp_path))


def test_every_run_gets_a_new_folder(dataset: Path, block_graph: Graph, configure: Configure) -> None:
    results = [commands.train(configure(dataset, "mlp"), graph=block_graph, quiet=True)["run"] for _ in range(3)]
    assert results == ["runs/block-mlp-0", "runs/block-mlp-0-2", "runs/block-mlp-0-3"]
    assert all((Path(path) / "best.safetensors").is_file() for path in results)


def test_a_missing_split_has_no_score(tmp_path: Path, block_arrays: Arrays, configure: Configure) -> None:
    del block_arrays["test_mask"]
    np.savez(tmp_path / "block.npz", **block_arrays)
    result = commands.train(configure(tmp_path / "block.npz"), tmp_path / "run", quiet=True)
    assert result["test"] is None
    assert 0 <= result["val"] <= 1


def test_a_run_that_cannot_start_leaves_no_folder(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    with pytest.raises(ConfigError, match=r"metric `r2` does not fit a single-label task"):
        commands.train(configure(dataset, metric="r2"), tmp_path / "run", quiet=True)
    with pytest.raises(ConfigError, match=r"`label-propagation` has no weights to train; set `epochs=0`"):
        commands.train(configure(dataset, "label-propagation"), tmp_path / "run", quiet=True)
    with np.load(dataset) as file:
        np.savez(dataset, edge_index=file["edge_index"], x=file["x"])
    with pytest.raises(GraphError, match=r"graph `block` has no training nodes; give it labels `y` and a `train_mask`"):
        commands.train(configure(dataset), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match=r"run` exists and is not empty; choose another `--out` or remove it"):
        commands.train(configure(dataset), tmp_path / "run", quiet=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_a_diverging_loss_is_a_configuration_error(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    diverging = {"lr": 1e30, "epochs": 20}
    with pytest.raises(ConfigError, match=r"the loss is (nan|inf) in epoch \d+; lower `lr` or set `clip_norm`"):
        commands.train(configure(dataset, "mlp", eval_every=20, **diverging), tmp_path / "run", quiet=True)
    # an evaluation finds it earlier
    with pytest.raises(ConfigError, match=r"the outputs of split `train` hold -?(nan|inf) .*; lower `lr` or set `clip"):
        commands.train(configure(dataset, "mlp", **diverging), tmp_path / "other", quiet=True)


def test_the_best_weights_of_a_diverging_run_are_kept(
    dataset: Path, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lazygnn.training.trainer.learning_rate", lambda _, epoch: 0.01 if epoch < 4 else 1e30)
    config = configure(dataset, "mlp", epochs=20, checkpoint_every=1)
    with pytest.raises(DivergenceError, match=r"; the best weights, of epoch \d+, are kept: `lazygnn evaluate .*run`$"):
        commands.train(config, tmp_path / "run", quiet=True)
    result = commands.evaluate_run(tmp_path / "run", device="cpu")
    best = max(line["scores"]["val"] for line in Run.open(tmp_path / "run").log.read())
    assert result["val"] == best
    checkpoint = CheckpointFolder(tmp_path / "run" / CHECKPOINTS).load_latest()
    assert checkpoint is not None
    assert all(value.isfinite().all() for name, value in checkpoint.tensors.items() if name.startswith("model."))


@pytest.mark.parametrize(
    ("method", "task"), [("mlp", {}), ("lazygnn", {}), ("appnp", {"task": "regression"}), ("lazygnn-deep", {})]
)
def test_weights_that_are_not_finite_are_never_called_best(
    dataset: Path, tmp_path: Path, block_arrays: Arrays, configure: Configure, method: str, task: Arrays
) -> None:
    np.savez(dataset, **block_arrays | ({"y": block_arrays["x"][:, :1]} | task if task else {}))
    config = configure(dataset, method, lr=1e38, epochs=1, checkpoint_every=1)
    with pytest.raises(DivergenceError, match=r"lower `lr` or set `clip_norm`"):
        commands.train(config, tmp_path / "run", quiet=True)
    run = Run.open(tmp_path / "run")
    assert not (run.path / WEIGHTS).exists()
    assert run.result() == {}
    with pytest.raises(CheckpointError, match="has no weights yet"):
        run.load_weights()
    for file in run.path.rglob("*.json*"):
        json.loads(file.read_text() or "{}", parse_constant=pytest.fail)


def test_any_failure_keeps_the_best_weights_until_the_run_goes_on(
    dataset: Path,
    tmp_path: Path,
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = configure(dataset, "mlp", epochs=6)
    straight = commands.train(config, tmp_path / "straight", quiet=True)

    def fail(log: RunLog, report: EpochReport) -> None:
        if report.epoch == 4:
            raise MemoryError
        append(log, report)

    append = RunLog.append
    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "append", fail)
        with pytest.raises(MemoryError):
            commands.train(config, tmp_path / "run", quiet=True)
    assert re.search(r"the best weights, of epoch \d, are kept: `lazygnn evaluate .*run`", caplog.text)
    kept = commands.evaluate_run(tmp_path / "run", device="cpu")
    assert kept["val"] == max(line["scores"]["val"] for line in Run.open(tmp_path / "straight").log.read()[:4])
    resumed = commands.resume(tmp_path / "run", quiet=True)
    assert (resumed["val"], resumed["test"]) == (straight["val"], straight["test"])
    assert (tmp_path / "run" / WEIGHTS).read_bytes() == (tmp_path / "straight" / WEIGHTS).read_bytes()


def test_nearly_constant_predictions_are_a_warning(
    dataset: Path, tmp_path: Path, block_arrays: Arrays, configure: Configure, caplog: pytest.LogCaptureFixture
) -> None:
    np.savez(tmp_path / "poor.npz", **block_arrays | {"x": np.zeros((60, 2))})
    commands.train(configure(tmp_path / "poor.npz", "mlp"), tmp_path / "poor", quiet=True)
    assert caplog.text.count("predictions are nearly constant: class `") == 1
    caplog.clear()
    # derived, so that no warning tells of other defaults for the graph
    healthy = derive(configure(dataset, epochs=80, lr=0.05), {})
    commands.train(healthy, tmp_path / "healthy", quiet=True)
    assert not [record for record in caplog.records if "rising" not in record.message]


def test_multi_label_and_regression_tasks_are_trained(
    tmp_path: Path, block_arrays: Arrays, configure: Configure
) -> None:
    labels = np.eye(3)[block_arrays["y"]].astype(np.int64)
    for name, y, metric in (("several", labels, "micro-f1"), ("numbers", labels + 0.5, "r2")):
        np.savez(tmp_path / f"{name}.npz", **block_arrays | {"y": y})
        config = configure(tmp_path / f"{name}.npz", epochs=40, dropout=0.0, lr=0.1)
        result = commands.train(config, tmp_path / name, quiet=True)
        assert result["metric"] == metric
        assert result["test"] > 0.3
        again = commands.evaluate_run(tmp_path / name, device="cpu")
        assert scores(again) == scores(result)


def test_large_numbers_are_learned_standardized_and_scored_in_their_own_units(
    tmp_path: Path, block_arrays: Arrays, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    y = 5e4 + 1e3 * block_arrays["y"]
    np.savez(tmp_path / "numbers.npz", **block_arrays | {"y": y.astype(np.float64)}, task="regression")
    config = configure(tmp_path / "numbers.npz", epochs=40, dropout=0.0, lr=0.1, metric="mae")
    result = commands.train(config, tmp_path / "run")
    assert "targets are standardized in training; predictions and scores stay in their own" in capsys.readouterr().err
    assert 10 < result["test"] < 600
    outputs, graph, _ = commands.predict_run(tmp_path / "run", device="cpu")
    test = graph.masks["test"]
    assert float((outputs - graph.y)[test].abs().mean()) == pytest.approx(result["test"])
    chosen = json.loads((tmp_path / "run" / "chosen.json").read_text())
    train = y[block_arrays["train_mask"]]
    assert chosen["target_center"] == pytest.approx([train.mean()])
    assert chosen["target_scale"] == pytest.approx([train.std()])
    config = configure(tmp_path / "numbers.npz", epochs=1, standardize_targets=False)
    plain = commands.train(config, tmp_path / "plain")
    assert "standardized" not in capsys.readouterr().err
    assert "target_center" not in json.loads((tmp_path / "plain" / "chosen.json").read_text())
    assert scores(commands.evaluate_run(tmp_path / "plain", device="cpu")) == scores(plain)


def test_features_of_very_different_scales_are_standardized_wherever_the_run_is_used(
    tmp_path: Path, block_arrays: Arrays, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    x = block_arrays["x"] * np.array([1.0, 1e3, 1e5]) + np.array([0, 0, 1e6])
    data = tmp_path / "mixed.npz"
    np.savez(data, **block_arrays | {"x": x})
    config = configure(data, "gcn", epochs=20, lr=0.05, checkpoint_every=1)
    result = commands.train(config, tmp_path / "run")
    said = "features are standardized, 3 of 3 columns, since their scales are very different"
    assert said in capsys.readouterr().err.replace("\n", " ")
    run = Run.open(tmp_path / "run")
    scale = run.feature_scale()
    assert scale is not None
    np.testing.assert_allclose(scale.center, x.astype(np.float32).mean(axis=0, dtype=np.float64))
    assert run.chosen()["standardize_features"] == "on"
    assert scores(commands.evaluate_run(tmp_path / "run", device="cpu")) == scores(result)
    expected, _, _ = commands.predict_run(tmp_path / "run", device="cpu")
    # a part of the graph has other means, but is scaled as the whole
    np.savez(tmp_path / "two.npz", edge_index=np.array([[0, 1], [1, 0]]), x=x[:2])
    alone, _, _ = commands.predict_run(tmp_path / "run", tmp_path / "two.npz", device="cpu")
    loaded = load_run(tmp_path / "run", device="cpu")
    torch.testing.assert_close(loaded.outputs(), expected)
    torch.testing.assert_close(loaded.outputs(load_graph(tmp_path / "two.npz")), alone)
    assert float(alone.abs().max()) < 10 * float(expected.abs().max())
    export_run(tmp_path / "run", tmp_path / "out")
    edges = torch.from_numpy(block_arrays["edge_index"])
    outputs = plain.load(tmp_path / "out")(torch.from_numpy(x).float(), edges)
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)
    # fine-tuning keeps the scale, also on another graph
    np.savez(data, **block_arrays | {"x": 3 * x})
    tuned = commands.fine_tune(tmp_path / "run", {"epochs": 1}, tmp_path / "tuned", device="cpu", quiet=True)
    assert (tmp_path / "tuned" / "features.json").read_bytes() == (tmp_path / "run" / "features.json").read_bytes()
    assert scores(commands.evaluate_run(tmp_path / "tuned", device="cpu")) == scores(tuned)
    with pytest.raises(ConfigError, match=r"is off, but the weights in `.*run` were trained with on; omit it"):
        commands.fine_tune(tmp_path / "run", {"standardize_features": "off"}, tmp_path / "no", device="cpu", quiet=True)


def test_a_run_of_an_earlier_version_goes_on_with_its_features_as_they_are(
    tmp_path: Path, block_arrays: Arrays, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "mixed.npz", **block_arrays | {"x": block_arrays["x"] * 1e4})
    config = configure(tmp_path / "mixed.npz", "gcn", epochs=2, standardize_features="off")
    commands.train(config, tmp_path / "run")
    assert "standardized" not in capsys.readouterr().err
    stored = json.loads((tmp_path / "run" / CONFIG).read_text())
    del stored["trainer"]["standardize_features"]
    (tmp_path / "run" / CONFIG).write_text(json.dumps(stored))
    (tmp_path / "run" / DIGESTS).unlink()
    before = commands.predict_run(tmp_path / "run", device="cpu")[0]
    result = commands.resume(tmp_path / "run", epochs=3, quiet=True)
    assert not (tmp_path / "run" / "features.json").exists()
    assert result["epochs"] == 3
    assert before.isfinite().all()


@pytest.fixture
def in_parts(configure: Configure, dataset: Path) -> Config:
    """Mini-batches with a checkpoint after each."""
    parts = {"num_parts": 5, "parts_per_batch": 2, "partition": "random"}
    return configure(dataset, norm="batch", epochs=4, checkpoint_every=1, **parts)


def contents(run: Path) -> dict[Path, tuple[bytes, int]]:
    files = [path for path in run.rglob("*") if path.is_file()]
    return {path.relative_to(run): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_resuming_a_finished_run_changes_nothing(
    in_parts: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    result = commands.train(in_parts, tmp_path / "run", quiet=True)
    (tmp_path / "run").rename(tmp_path / "moved")
    before = contents(tmp_path / "moved")
    monkeypatch.setattr("lazygnn.commands.result.peak_memory_mib", lambda _: 1e9)
    again = commands.resume(tmp_path / "moved", quiet=True)
    assert again == result | {"run": str(tmp_path / "moved")}
    assert contents(tmp_path / "moved") == before
    assert "moved` has ended and is left unchanged; to train again, choose another `--out`" in caplog.text


@pytest.mark.parametrize("lost", [WEIGHTS, RESULT])
def test_resuming_restores_the_lost_files_of_a_finished_run(in_parts: Config, tmp_path: Path, lost: str) -> None:
    result = commands.train(in_parts, tmp_path / "run", quiet=True)
    weights = load_file(tmp_path / "run" / WEIGHTS)
    # the weights read above are mapped, so their file must not change
    (tmp_path / "run" / lost).unlink()
    (tmp_path / "run" / lost).write_bytes(b"{")
    again = commands.resume(tmp_path / "run", quiet=True)
    for key in ("val", "test", "epochs", "best_epoch", "seconds_per_epoch"):
        assert result[key] == again[key]
    restored = load_file(tmp_path / "run" / WEIGHTS)
    assert weights.keys() == restored.keys()
    assert [name for name in weights if not torch.equal(weights[name], restored[name])] == []
    assert Run.open(tmp_path / "run").result() == again


def test_resuming_without_a_checkpoint_starts_over_with_a_warning(
    in_parts: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    straight = commands.train(in_parts, tmp_path / "run", quiet=True)
    # as if it had been killed at its end
    (tmp_path / "run" / RESULT).unlink()
    commands.resume(tmp_path / "run", quiet=True)
    assert "starts over" not in caplog.text
    (tmp_path / "run" / RESULT).unlink()
    shutil.rmtree(tmp_path / "run" / CHECKPOINTS)
    again = commands.resume(tmp_path / "run", quiet=True)
    assert scores(again) == scores(straight)
    assert "has no checkpoint yet and starts over; see the option `checkpoint_minutes`" in caplog.text
    assert [line["epoch"] for line in Run.open(tmp_path / "run").log.read()] == [1, 2, 3, 4]


def test_the_partition_that_auto_chose_is_recorded_and_kept(
    configure: Configure, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kaminpar")
    monkeypatch.setenv("LAZYGNN_CACHE", str(tmp_path / "cache"))
    config = configure(dataset, epochs=2, num_parts=3)
    with monkeypatch.context() as scarce:
        scarce.setattr("lazygnn.partitioning.choice.memory_at_hand", lambda: 1000)
        straight = commands.train(config, tmp_path / "run", quiet=True)
    run = Run.open(tmp_path / "run")
    assert run.config(read_config).model.model_dump()["partition"] == "auto"
    assert run.chosen()["partition"] == "kaminpar"
    assert run.environment()["partition"] == run.inputs()["part_engine"] == engine_version("kaminpar")
    # METIS would fit now, and nothing is cached
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "run" / RESULT).unlink()
    assert scores(commands.resume(tmp_path / "run", quiet=True)) == scores(straight)
    assert run.chosen()["partition"] == "kaminpar"


def test_a_run_in_use_is_neither_started_nor_resumed_by_another_process(in_parts: Config, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with locked(path), pytest.raises(LockedError, match=r"`.*run` is in use by process \d+ on host"):
        commands.train(in_parts, path, quiet=True)
    assert list(path.iterdir()) == []
    commands.train(in_parts, path, quiet=True)
    (path / RESULT).unlink()
    before = contents(path)
    with locked(path), pytest.raises(LockedError, match=r"`.*run` is in use by process \d+ on host"):
        commands.resume(path, quiet=True)
    assert contents(path) == before
    commands.resume(path, quiet=True)
    assert not (path / LOCK).exists()


def test_a_start_that_was_killed_before_its_configuration_is_started_again(in_parts: Config, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    for name in (LOCK, f".{CONFIG}.0123456789abcdef.part"):
        (path / name).write_text("{")
    commands.train(in_parts, path, quiet=True)
    assert [file.name for file in path.iterdir() if file.name.startswith(".")] == []


def test_a_picture_that_cannot_be_drawn_is_a_warning(
    in_parts: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", fail)
    result = commands.train(in_parts, tmp_path / "run", quiet=True)
    assert Run.open(tmp_path / "run").result() == result
    assert f"cannot draw `{tmp_path / 'run' / CURVES}`: [Errno 28] no space left on device" in caplog.text


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_a_run_ends_stops_it_when_the_result_is_written(
    in_parts: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    expected = commands.train(in_parts, tmp_path / "straight", quiet=True)
    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", lambda *_: os.kill(os.getpid(), signum))
    usual = signal.getsignal(signum)
    with pytest.raises(
        Interrupted, match=f"stopped by {signum.name}; the run has ended, see `lazygnn show {tmp_path}/run`"
    ):
        commands.train(in_parts, tmp_path / "run", quiet=True)
    assert signal.getsignal(signum) is usual
    result = Run.open(tmp_path / "run").result()
    assert (result["test"], result["epochs"]) == (expected["test"], expected["epochs"])
    assert commands.resume(tmp_path / "run", quiet=True) == result


def test_a_run_whose_folder_is_removed_ends_and_does_not_make_it_again(
    in_parts: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = RunLog.append

    def remove_after(self: RunLog, report: EpochReport) -> None:
        append(self, report)
        if report.epoch == 2:
            shutil.rmtree(self.path.parent)

    monkeypatch.setattr(RunLog, "append", remove_after)
    with pytest.raises(
        CheckpointError, match=r"cannot write `.*log.jsonl`: No such file or directory; the folder is gone; train again"
    ):
        commands.train(in_parts, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_graph_that_was_replaced_is_not_trained_on(
    in_parts: Config, dataset: Path, tmp_path: Path, block_arrays: Arrays
) -> None:
    commands.train(in_parts, tmp_path / "run", quiet=True)
    (tmp_path / "run" / RESULT).unlink()
    np.savez(dataset, **block_arrays | {"x": block_arrays["x"] + 1})
    with pytest.raises(CheckpointError, match="has other content than when run"):
        commands.resume(tmp_path / "run", quiet=True)


def test_resuming_skips_a_corrupt_checkpoint(in_parts: Config, tmp_path: Path) -> None:
    straight = commands.train(in_parts, tmp_path / "run", quiet=True)
    newest = max((tmp_path / "run" / CHECKPOINTS).glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(bytes(content))
    (tmp_path / "run" / RESULT).unlink()
    again = commands.resume(tmp_path / "run", quiet=True)
    assert scores(again) == scores(straight)
    (tmp_path / "run" / RESULT).unlink()
    for path in (tmp_path / "run" / CHECKPOINTS).iterdir():
        path.write_bytes(b"foreign")
    with pytest.raises(CheckpointError, match="has no valid checkpoint"):
        commands.resume(tmp_path / "run", quiet=True)


@pytest.mark.parametrize("method", ["lazygnn", "lazygnn-deep", "graphsage"])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "stopped"])
def test_more_epochs_end_like_a_run_that_had_them_from_the_start(
    dataset: Path, tmp_path: Path, configure: Configure, method: str, ended: bool
) -> None:
    # histories are diagnosed at the end of the shorter run, too
    settings = {"num_parts": 3, "partition": "random", "num_blocks": 1, "eval_every": 2, "diagnose_every": 3}
    settings |= {"schedule": "constant"}
    straight = commands.train(configure(dataset, method, **settings, epochs=8), tmp_path / "straight", quiet=True)
    commands.train(configure(dataset, method, **settings, epochs=4), tmp_path / "run", quiet=True)
    if not ended:
        (tmp_path / "run" / RESULT).unlink()
    longer = commands.resume(tmp_path / "run", epochs=8, quiet=True)
    for key in ("val", "test", "epochs", "best_epoch"):
        assert longer[key] == straight[key]
    logs = [Run.open(tmp_path / name).log.read() for name in ("straight", "run")]
    assert [(line["loss"], line["lr"], line["scores"]) for line in logs[0]] == [
        (line["loss"], line["lr"], line["scores"]) for line in logs[1]
    ]
    states = [CheckpointFolder(tmp_path / name / CHECKPOINTS).load_latest() for name in ("straight", "run")]
    assert states[0] is not None
    assert states[1] is not None
    assert states[0].tensors.keys() == states[1].tensors.keys()
    differing = [name for name, value in states[0].tensors.items() if not torch.equal(value, states[1].tensors[name])]
    assert differing == []
    # the run has its new length for good
    assert commands.resume(tmp_path / "run", epochs=8, quiet=True)["epochs"] == 8


@pytest.mark.parametrize(
    ("values", "epochs", "message"),
    [
        ({"schedule": "cosine"}, 9, r"ends with its 3 epochs \(`schedule` is cosine\), .* `lazygnn train --init-from "),
        ({"eval_every": 2}, 9, r"was evaluated at its end, after 3 epochs, where a longer run .* --init-from "),
        ({}, 2, r"`epochs` is 2, but run `.*` has 3 already; give more"),
    ],
)
def test_a_run_that_cannot_go_on_is_refused_and_left_unchanged(
    dataset: Path, tmp_path: Path, configure: Configure, values: dict[str, Any], epochs: int, message: str
) -> None:
    commands.train(configure(dataset, "mlp", **values), tmp_path / "run", quiet=True)
    before = contents(tmp_path / "run")
    with pytest.raises(ConfigError, match=message):
        commands.resume(tmp_path / "run", epochs=epochs, quiet=True)
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("graph gone", "the run's graph `.*` is not in"),
        ("other graph", "has other content than when run"),
        ("device", "unknown device `tpu`"),
        ("checkpoint", "has no checkpoint to go on from"),
        ("corrupt checkpoint", "has no valid checkpoint"),
    ],
)
def test_more_epochs_change_nothing_where_the_run_cannot_go_on(
    dataset: Path, tmp_path: Path, block_arrays: Arrays, configure: Configure, wrong: str, message: str
) -> None:
    run = tmp_path / "run"
    result = commands.train(configure(dataset, "mlp", schedule="constant"), run, quiet=True)
    checkpoints = run / CHECKPOINTS
    if wrong == "graph gone":
        dataset.rename(tmp_path / "away.npz")
    elif wrong == "other graph":
        np.savez(dataset, **block_arrays | {"x": block_arrays["x"] + 1})
    elif wrong == "checkpoint":
        shutil.rmtree(checkpoints)
    elif wrong == "corrupt checkpoint":
        for path in checkpoints.iterdir():
            path.write_bytes(b"foreign")
    before = contents(run)
    with pytest.raises((CheckpointError, ConfigError, GraphError), match=message):
        commands.resume(run, epochs=9, device="tpu" if wrong == "device" else None, quiet=True)
    assert contents(run) == before
    assert commands.resume(run, quiet=True) == result


def test_the_folder_says_what_a_run_was_trained_with(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    commands.train(configure(dataset, "mlp", epochs=1), tmp_path / "run", quiet=True)
    assert Run.open(tmp_path / "run").environment() == describe_environment()


def test_a_resumed_run_removes_what_a_crash_has_left(
    dataset: Path, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.train(configure(dataset, "mlp", keep_checkpoint=False), tmp_path / "run", quiet=True)
    files = sorted(file.name for file in (tmp_path / "run").iterdir())

    def crash(names: tuple[str, ...]) -> None:
        for name in names:
            (tmp_path / "run" / name).touch()
        (tmp_path / "run" / CHECKPOINTS).mkdir()

    # at its very end, and before its result
    for lost in ((), (RESULT,)):
        for name in lost:
            (tmp_path / "run" / name).unlink()
        crash((LOCK, ".result.json.0123456789abcdef.part"))
        commands.resume(tmp_path / "run", quiet=True)
        assert sorted(file.name for file in (tmp_path / "run").iterdir()) == files
    # a folder that cannot be written can be resumed all the same
    crash((".result.json.0123456789abcdef.part",))
    monkeypatch.setattr("lazygnn.run.lock._take", refuse)
    commands.resume(tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / CHECKPOINTS).exists()


def refuse(path: Path) -> int:
    raise OSError(errno.EROFS, "read-only", str(path))


def test_a_checkpoint_need_not_stay(
    dataset: Path, tmp_path: Path, configure: Configure, caplog: pytest.LogCaptureFixture
) -> None:
    kept = commands.train(configure(dataset, "mlp"), tmp_path / "kept", quiet=True)
    assert any((tmp_path / "kept" / CHECKPOINTS).iterdir())
    config = configure(dataset, "mlp", keep_checkpoint=False, checkpoint_every=1)
    result = commands.train(config, tmp_path / "run", quiet=True)
    assert scores(result) == scores(kept)
    assert not (tmp_path / "run" / CHECKPOINTS).exists()
    caplog.clear()
    assert scores(commands.resume(tmp_path / "run", quiet=True)) == scores(result)
    assert [record.message for record in caplog.records] == [
        f"run `{tmp_path / 'run'}` has ended and is left unchanged; to train again, choose another `--out`"
    ]
    assert scores(commands.evaluate_run(tmp_path / "run", device="cpu")) == scores(result)


def test_a_resumed_run_has_every_step_once_in_tensorboard(
    dataset: Path, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    append = TensorBoardLog.append

    def stop(log: TensorBoardLog, report: EpochReport) -> None:
        append(log, report)
        if report.epoch == 3:
            raise RuntimeError("the power is off")

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(TensorBoardLog, "append", stop)
        with pytest.raises(RuntimeError, match="the power is off"):
            # the last checkpoint is in the second epoch, so that two are trained again
            commands.train(configure(dataset, "mlp", epochs=4, checkpoint_every=2, logger="tensorboard"), run)
    assert [step for step, _ in read_events(run / "tensorboard")["loss"]] == [1, 2, 3]
    commands.resume(run, quiet=True)
    found = read_events(run / "tensorboard")
    lines = Run.open(run).log.read()
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4]
    assert [value for _, value in found["loss"]] == pytest.approx([line["loss"] for line in lines])
    assert [value for _, value in found["scores/val"]] == pytest.approx([line["scores"]["val"] for line in lines])


def test_a_missing_tensorboard_is_said_before_training(
    dataset: Path, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lazygnn.run.tensorboard.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="TensorBoard is not installed"):
        commands.train(configure(dataset, "mlp", logger="tensorboard"), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
