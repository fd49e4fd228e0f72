import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from lazygnn import commands
from lazygnn.commands.evaluation import evaluate_by_metrics
from lazygnn.commands.loading import load_run
from lazygnn.config import Config
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.errors import CheckpointError, ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.methods import METHODS
from lazygnn.model import Model
from lazygnn.run.folder import HISTORIES, Run
from lazygnn.run.saving import Saver
from lazygnn.training import infer

Configure = Callable[..., Config]
KEYS = ["method", "dataset", "seed", "metric", "val", "test", "epochs", "best_epoch", "seconds_per_epoch"]
KEYS += ["seconds", "eval_seconds"]
KEYS += ["peak_memory_mib", "run"]
LEARNING = [method for method in METHODS if method != "label-propagation"]


def keys_of(method: str) -> list[str]:
    return [*KEYS, "shares"] if method == "lazygnn-deep" else KEYS


@pytest.mark.parametrize("method", LEARNING)
def test_evaluation_reproduces_the_scores_of_training(
    dataset: Path, tmp_path: Path, method: str, configure: Configure
) -> None:
    config = configure(dataset, method, prop_channels=4, norm="batch", epochs=5)
    trained = commands.train(config, tmp_path / "run", quiet=True)
    again = commands.evaluate_run(tmp_path / "run", device="cpu")
    assert list(trained) == list(again) == keys_of(method)
    assert trained | {"peak_memory_mib": 0} == again | {"peak_memory_mib": 0}
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == trained
    # the median, since the first epochs may take longer
    times = [line["seconds"] for line in Run.open(tmp_path / "run").log.read()]
    assert trained["seconds_per_epoch"] == sorted(times)[2]


def test_another_metric_than_that_of_the_run_can_be_chosen(
    dataset: Path, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    trained = commands.train(configure(dataset, metric="macro-f1", epochs=5), run, quiet=True)
    logits, graph, _ = commands.predict_run(run, device="cpu")
    test = graph.masks["test"]
    areas = commands.evaluate_run(run, metric="roc-auc", device="cpu")
    probability = logits[test].double().softmax(dim=1)
    assert areas["metric"] == "roc-auc"
    assert areas["test"] == pytest.approx(roc_auc_score(graph.y[test], probability, multi_class="ovr"), abs=1e-12)
    assert commands.evaluate_run(run, device="cpu")["metric"] == trained["metric"] == "macro-f1"
    # several metrics need the outputs once
    computed: list[Graph] = []

    def counted(model: Model, graph: Graph) -> Tensor:
        computed.append(graph)
        return infer(model, graph)

    monkeypatch.setattr("lazygnn.commands.evaluation.infer", counted)
    several = evaluate_by_metrics(run, ["auto", "roc-auc", "macro-f1"], device="cpu")
    assert [result["metric"] for result in several] == ["accuracy", "roc-auc", "macro-f1"]
    assert several[0]["test"] == float((logits.argmax(dim=1) == graph.y)[test].double().mean())
    assert [result["test"] for result in several[1:]] == [areas["test"], trained["test"]]
    assert all(result["best_epoch"] == trained["best_epoch"] for result in several)
    assert len(computed) == 1


def test_a_metric_that_does_not_fit_is_refused_before_the_outputs_are_computed(
    dataset: Path, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.train(configure(dataset), tmp_path / "run", quiet=True)
    monkeypatch.delattr("lazygnn.commands.evaluation.infer")
    with pytest.raises(ConfigError, match=r"metric `r2` does not fit a single-label task; choose one of: auto, accur"):
        evaluate_by_metrics(tmp_path / "run", ["accuracy", "r2"], device="cpu")


def test_weights_of_another_model_do_not_fit(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    for name, hidden in (("a", 8), ("b", 16)):
        commands.train(configure(dataset, hidden_channels=hidden), tmp_path / name, quiet=True)
    (tmp_path / "b" / "best.safetensors").replace(tmp_path / "a" / "best.safetensors")
    with pytest.raises(
        CheckpointError, match=r"the weights in `.*a` do not fit its configuration: .*size mismatch"
    ) as e:
        commands.evaluate_run(tmp_path / "a", device="cpu", verify=False)
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


@pytest.mark.parametrize("method", METHODS)
def test_correct_and_smooth_improves_the_scores_of_any_method(
    dataset: Path, tmp_path: Path, method: str, configure: Configure
) -> None:
    epochs = 0 if method == "label-propagation" else 5
    trained = commands.train(configure(dataset, method, epochs=epochs), tmp_path / "run", quiet=True)
    result = commands.evaluate_run(tmp_path / "run", device="cpu", correct_and_smooth=CorrectAndSmooth(0.3))
    values = {"correct_alpha": 0.3, "smooth_alpha": 0.2, "scaling": "auto", "tolerance": 1e-6}
    assert list(result) == [*keys_of(method), "correct_and_smooth"]
    assert result["correct_and_smooth"] == values
    # chance is a third, and five epochs are few for a deep model
    assert result["test"] >= max(trained["test"], 0.5)
    # the stored result is that of training
    assert Run.open(tmp_path / "run").result() == trained


def test_correct_and_smooth_scores_what_it_predicts(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    commands.train(configure(dataset, "mlp"), tmp_path / "run", quiet=True)
    change = CorrectAndSmooth(0.1, 0.4)
    result = commands.evaluate_run(tmp_path / "run", device="cpu", correct_and_smooth=change)
    logits, graph, _ = commands.predict_run(tmp_path / "run", device="cpu", correct_and_smooth=change)
    right = (logits.argmax(dim=1) == graph.y).double()
    for split in ("val", "test"):
        assert result[split] == float(right[graph.masks[split]].mean())


def test_correct_and_smooth_scores_several_labels(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure
) -> None:
    y = block_arrays["y"]
    np.savez(dataset, **block_arrays | {"y": np.stack((y == 0, y < 2), axis=1).astype(float)}, task="multi-label")
    trained = commands.train(configure(dataset, "mlp"), tmp_path / "run", quiet=True)
    result = commands.evaluate_run(tmp_path / "run", device="cpu", correct_and_smooth=CorrectAndSmooth())
    assert result["metric"] == "micro-f1"
    assert result["test"] > max(trained["test"], 0.8)


def test_correct_and_smooth_is_scored_by_every_metric(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    commands.train(configure(dataset, "mlp"), tmp_path / "run", quiet=True)
    metrics, change = ["accuracy", "roc-auc", "macro-f1"], CorrectAndSmooth()
    plain = evaluate_by_metrics(tmp_path / "run", metrics, device="cpu")
    changed = evaluate_by_metrics(tmp_path / "run", metrics, device="cpu", correct_and_smooth=change)
    assert [result["metric"] for result in changed] == metrics
    for before, after in zip(plain, changed, strict=True):
        assert after["test"] > max(before["test"], 0.8)
        assert after["correct_and_smooth"]["smooth_alpha"] == 0.2
        assert "correct_and_smooth" not in before
    alone = commands.evaluate_run(tmp_path / "run", metric="roc-auc", device="cpu", correct_and_smooth=change)
    assert alone["test"] == changed[1]["test"]


def test_correct_and_smooth_needs_classes_and_training_labels(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure
) -> None:
    change = CorrectAndSmooth()
    commands.train(configure(dataset, "mlp"), tmp_path / "run", quiet=True)
    np.savez(dataset, **{name: block_arrays[name] for name in ("edge_index", "x")})
    with pytest.raises(GraphError, match="`block` has no training nodes; give it labels `y` and a `train_mask`"):
        commands.evaluate_run(tmp_path / "run", device="cpu", correct_and_smooth=change, verify=False)
    np.savez(dataset, **block_arrays | {"y": block_arrays["x"][:, 0]}, task="regression")
    commands.train(configure(dataset, "mlp"), tmp_path / "numbers", quiet=True)
    with pytest.raises(ConfigError, match="has a regression task, but Correct and Smooth needs classes; leave it out"):
        commands.evaluate_run(tmp_path / "numbers", device="cpu", correct_and_smooth=change)


def test_another_graph_is_scored_with_the_weights_of_the_run(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure
) -> None:
    result = commands.train(configure(dataset, epochs=40, lr=0.05), tmp_path / "run", quiet=True)
    same = commands.evaluate_run(tmp_path / "run", device="cpu", graph_file=dataset)
    assert (same["val"], same["test"], same["graph"]) == (result["val"], result["test"], str(dataset))
    # the same blocks, with other features and fewer labels
    rng = np.random.default_rng(7)
    y = np.where(rng.random(60) < 0.5, block_arrays["y"], -1)
    x = (np.eye(3)[block_arrays["y"]] + 0.8 * rng.normal(size=(60, 3))).astype(np.float32)
    np.savez("other.npz", edge_index=block_arrays["edge_index"], x=x, y=y, train_mask=y >= 0)
    other = commands.evaluate_run(tmp_path / "run", device="cpu", graph_file=Path("other.npz"))
    logits, graph, _ = commands.predict_run(tmp_path / "run", Path("other.npz"), device="cpu")
    labeled = graph.y >= 0
    assert other["labeled"] == float((logits.argmax(dim=1) == graph.y)[labeled].double().mean())
    assert (other["val"], other["test"]) == (None, None)
    assert other["labeled"] > 0.6


@pytest.mark.parametrize("kind", ["labels as input", "correct and smooth", "neither"])
def test_labels_that_predictions_read_are_not_scored(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure, kind: str
) -> None:
    share = 0.5 if kind == "labels as input" else 0.0
    config = configure(dataset, "lazygnn-deep", label_input=share, beside=[], epochs=20, lr=0.05)
    commands.train(config, tmp_path / "run", quiet=True)
    change = CorrectAndSmooth() if kind == "correct and smooth" else None
    known = np.arange(60) % 3 > 0
    # labels of known nodes are wrong, so that they would spoil the score
    y = np.where(known, (block_arrays["y"] + 1) % 3, block_arrays["y"])
    arrays = {"edge_index": block_arrays["edge_index"], "x": block_arrays["x"], "y": y}
    np.savez("later.npz", **arrays, train_mask=known)
    found = commands.evaluate_run(tmp_path / "run", device="cpu", graph_file="later.npz", correct_and_smooth=change)
    logits, graph, _ = commands.predict_run(tmp_path / "run", "later.npz", device="cpu", correct_and_smooth=change)
    scored = torch.from_numpy(~known) if kind != "neither" else torch.ones(60, dtype=torch.bool)
    assert found["labeled"] == float((logits.argmax(dim=1) == graph.y)[scored].double().mean())
    assert found["labeled_nodes"] == int(scored.sum())
    np.savez("all.npz", **arrays, train_mask=np.ones(60, dtype=bool))
    if kind == "neither":
        # without a use of known labels, all nodes are scored
        again = commands.evaluate_run(tmp_path / "run", device="cpu", graph_file="all.npz")
        assert again["labeled"] == found["labeled"]
        return
    with pytest.raises(GraphError, match=r"`all` has no label outside of its `train_mask`, .* take the nodes to score"):
        commands.evaluate_run(tmp_path / "run", device="cpu", graph_file="all.npz", correct_and_smooth=change)


TWITCH = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.skipif(not (TWITCH / "twitch_engb.npz").is_file(), reason="needs the Twitch graphs")
def test_what_was_learned_in_one_country_is_scored_in_another(tmp_path: Path, configure: Configure) -> None:
    config = configure(TWITCH / "twitch_de.npz", "mlp", epochs=10, eval_every=5)
    commands.train(config, tmp_path / "run", quiet=True)
    found = commands.evaluate_run(
        tmp_path / "run", metric="roc-auc", device="cpu", graph_file=TWITCH / "twitch_engb.npz"
    )
    assert found["labeled"] > 0.5


def test_a_report_is_about_the_graph_of_the_run_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`--report` is about the graph of the run; omit `--report` or `--graph`"):
        evaluate_by_metrics(tmp_path / "run", report=True, graph_file=tmp_path / "other.npz")


@pytest.mark.parametrize("method", ["lazygnn", "lazygnn-deep"])
def test_rows_of_inference_on_disk_leave_no_file(
    dataset: Path, tmp_path: Path, configure: Configure, method: str
) -> None:
    result = commands.train(configure(dataset, method, eval_storage="disk"), tmp_path / "run", quiet=True)
    before = sorted(tmp_path.rglob("*"))
    assert commands.evaluate_run(tmp_path / "run", device="cpu")["test"] == result["test"]
    commands.predict_run(tmp_path / "run", device="cpu")
    assert sorted(tmp_path.rglob("*")) == before
    assert not list(tmp_path.rglob("*.rows"))
    assert not (tmp_path / "run" / HISTORIES).exists()


def test_a_graph_that_has_changed_is_refused(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure
) -> None:
    result = commands.train(configure(dataset, "mlp", epochs=20, lr=0.05), tmp_path / "run", quiet=True)
    np.savez(dataset, **block_arrays | {"x": block_arrays["x"][::-1]})
    message = r"graph `block` has other content than when run `.*run` was started; restore it, give its folder with"
    for use in (commands.evaluate_run, commands.predict_run, load_run):
        with pytest.raises(CheckpointError, match=message):
            use(tmp_path / "run", device="cpu")
        use(tmp_path / "run", device="cpu", verify=False)
    # given by name, it is another graph on purpose
    other = commands.evaluate_run(tmp_path / "run", device="cpu", graph_file=dataset)
    assert other["test"] != result["test"]
