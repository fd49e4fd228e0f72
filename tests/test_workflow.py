import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lazygnn import workflow
from lazygnn.config import Config, TrainerOptions
from lazygnn.data import load_graph
from lazygnn.data.folder import save_folder
from lazygnn.errors import CheckpointError, ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.methods import METHODS, read_config, resolve
from lazygnn.run.folder import Run
from lazygnn.run.saving import Saver

Arrays = dict[str, Any]
KEYS = ["method", "dataset", "seed", "metric", "val", "test", "epochs", "best_epoch", "seconds_per_epoch"]
KEYS += ["peak_memory_mib", "run"]
LEARNING = [method for method in METHODS if method != "label-propagation"]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these trainings; the command is tested with its picture."""
    monkeypatch.setattr(workflow, "plot_curves", lambda *_: None)


@pytest.fixture
def dataset(tmp_path: Path, block_arrays: Arrays, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "block.npz", **block_arrays)
    return tmp_path / "block.npz"


def configure(dataset: Path | str, method: str = "lazygnn", **values: Any) -> Config:
    known = METHODS[method].options.model_fields.keys() | TrainerOptions.model_fields.keys()
    wanted = {"epochs": 3, "hidden_channels": 8} | values
    return resolve(method, str(dataset), {key: wanted[key] for key in wanted if key in known}, device="cpu")


def lines(run: Path) -> list[str]:
    return (run / "log.jsonl").read_text().splitlines()


def scores(result: dict[str, Any]) -> tuple[float, float]:
    return result["val"], result["test"]


@pytest.mark.parametrize("method", LEARNING)
def test_evaluation_reproduces_the_scores_of_training(dataset: Path, tmp_path: Path, method: str) -> None:
    config = configure(dataset, method, prop_channels=4, norm="batch", epochs=5)
    trained = workflow.train(config, tmp_path / "run", quiet=True)
    again = workflow.evaluate_run(tmp_path / "run", device="cpu")
    assert list(trained) == list(again) == KEYS
    differ = {"peak_memory_mib"}
    assert {k: v for k, v in trained.items() if k not in differ} == {k: v for k, v in again.items() if k not in differ}
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == trained
    # whatever the first epochs took
    times = [json.loads(line)["seconds"] for line in lines(tmp_path / "run")]
    assert trained["seconds_per_epoch"] == sorted(times)[2]


def test_the_same_seed_gives_the_same_scores(dataset: Path, tmp_path: Path) -> None:
    config = configure(dataset, epochs=5)
    first, second = (workflow.train(config, tmp_path / name, quiet=True) for name in ("a", "b"))
    assert scores(first) == scores(second)
    logs = [[json.loads(line)["loss"] for line in lines(tmp_path / name)] for name in ("a", "b")]
    assert logs[0] == logs[1]
    assert len(logs[0]) == 5


def test_a_graph_at_hand_is_not_loaded(tmp_path: Path, block_graph: Graph) -> None:
    result = workflow.train(configure("no-such-data-set"), tmp_path / "run", graph=block_graph, quiet=True)
    assert result["dataset"] == "no-such-data-set"
    with pytest.raises(GraphError, match=r"the run's graph `no-such-data-set` is not in `.*`; say where it is with"):
        workflow.evaluate_run(tmp_path / "run", device="cpu", root=str(tmp_path))


def test_runs_get_folders_of_their_own(dataset: Path, block_graph: Graph) -> None:
    results = [workflow.train(configure(dataset, "mlp"), graph=block_graph, quiet=True)["run"] for _ in range(3)]
    assert results == ["runs/block-mlp-0", "runs/block-mlp-0-2", "runs/block-mlp-0-3"]
    assert all((Path(path) / "best.safetensors").is_file() for path in results)


def test_a_moved_data_set_is_found_under_another_root(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    dataset.rename(tmp_path / "data" / "block.npz")
    trained = workflow.train(configure("block"), tmp_path / "run", quiet=True)
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with pytest.raises(GraphError, match=r"run's graph `block` is not in `.*/data`; say where it is with `--root`"):
        workflow.evaluate_run(tmp_path / "run", device="cpu")
    again = workflow.evaluate_run(tmp_path / "run", device="cpu", root=str(tmp_path / "elsewhere"))
    assert scores(again) == scores(trained)


def everything_of(run: Path, root: str | None = None) -> None:
    """All that can be done with a run later, which must find its graph."""
    result = json.loads((run / "result.json").read_text())
    assert scores(workflow.evaluate_run(run, device="cpu", root=root)) == scores(result)
    assert len(workflow.predict_run(run, device="cpu", root=root)[0]) == 60
    # a run that has ended would need no graph
    (run / "result.json").unlink()
    assert scores(workflow.resume(run, device="cpu", root=root, quiet=True)) == scores(result)


@pytest.mark.parametrize("given", ["block.npz", "./block.npz", "folder", "../here/block.npz"])
def test_a_run_on_a_path_is_used_from_any_folder(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    dataset.rename("block.npz")
    save_folder(load_graph("block.npz"), "folder")
    trained = workflow.train(configure(given), tmp_path / "run", quiet=True)
    monkeypatch.chdir(tmp_path)
    assert (
        trained["dataset"] == Run.open(tmp_path / "run").config(read_config).dataset == str(tmp_path / "here" / given)
    )
    everything_of(tmp_path / "run")


@pytest.mark.parametrize("where", ["root", "environment", "default"])
def test_a_run_on_a_name_is_used_from_any_folder(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    folder = "data" if where == "default" else "kept"
    (tmp_path / folder).mkdir()
    dataset.rename(tmp_path / folder / "block.npz")
    monkeypatch.delenv("LAZYGNN_DATA", raising=False)
    if where == "environment":
        monkeypatch.setenv("LAZYGNN_DATA", folder)
    config = configure("block").model_copy(update={"root": folder if where == "root" else None})
    workflow.train(config, tmp_path / "run", quiet=True)
    monkeypatch.delenv("LAZYGNN_DATA", raising=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    kept = Run.open(tmp_path / "run").config(read_config)
    assert (kept.dataset, kept.root) == ("block", str(tmp_path / folder))
    everything_of(tmp_path / "run")


def test_another_root_comes_before_the_place_of_the_run(dataset: Path, tmp_path: Path, block_arrays: Arrays) -> None:
    workflow.train(configure("block.npz"), tmp_path / "run", quiet=True)
    (tmp_path / "other").mkdir()
    assert workflow.predict_run(tmp_path / "run", device="cpu", root="other")[1].num_nodes == 60
    dataset.rename(tmp_path / "other" / "block.npz")
    with pytest.raises(GraphError, match=r"the run's graph `/.*/block.npz` is not in `/.*`; say where it is with `--r"):
        workflow.evaluate_run(tmp_path / "run", device="cpu")
    everything_of(tmp_path / "run", root="other")
    np.savez(dataset, edge_index=block_arrays["edge_index"][:, :0], x=np.ones((5, 3)))
    assert workflow.predict_run(tmp_path / "run", device="cpu", root="other")[1].num_nodes == 60


def test_a_run_on_the_embedded_graph_needs_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_graph: Graph
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAZYGNN_DATA", raising=False)
    asked: list[Any] = []

    def load(*where: Any) -> Graph:
        asked.append(where)
        return block_graph

    workflow.train(configure("wordnet-small"), tmp_path / "run", graph=block_graph, quiet=True)
    monkeypatch.setattr(workflow, "load_graph", load)
    everything_of(tmp_path / "run")
    assert asked == [("wordnet-small", tmp_path / "data")] * 3


def test_a_folder_of_the_same_name_nearby_is_not_taken_for_the_graph_of_a_run(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path_graph: Graph
) -> None:
    (tmp_path / "data").mkdir()
    dataset.rename(tmp_path / "data" / "block.npz")
    workflow.train(configure("block").model_copy(update={"root": "data"}), tmp_path / "run", quiet=True)
    save_folder(path_graph, tmp_path / "nearby" / "block")
    monkeypatch.chdir(tmp_path / "nearby")
    everything_of(tmp_path / "run")


def test_a_missing_split_has_no_score(tmp_path: Path, block_arrays: Arrays) -> None:
    del block_arrays["test_mask"]
    np.savez(tmp_path / "block.npz", **block_arrays)
    result = workflow.train(configure(tmp_path / "block.npz"), tmp_path / "run", quiet=True)
    assert result["test"] is None
    assert 0 <= result["val"] <= 1


def test_a_run_that_cannot_start_leaves_no_folder(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"metric `r2` does not fit a single-label task"):
        workflow.train(configure(dataset, metric="r2"), tmp_path / "run", quiet=True)
    with pytest.raises(ConfigError, match=r"`label-propagation` has no weights to train; set `epochs=0`"):
        workflow.train(configure(dataset, "label-propagation"), tmp_path / "run", quiet=True)
    with np.load(dataset) as file:
        np.savez(dataset, edge_index=file["edge_index"], x=file["x"])
    with pytest.raises(GraphError, match=r"graph `block` has no training nodes; give it labels `y` and a `train_mask`"):
        workflow.train(configure(dataset), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match=r"run` exists and is not empty; choose another `--out` or remove it"):
        workflow.train(configure(dataset), tmp_path / "run", quiet=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_a_diverging_loss_is_a_matter_of_options(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the loss is (nan|inf) in epoch \d+; lower `lr` or set `clip_norm`"):
        workflow.train(configure(dataset, "mlp", lr=1e30, epochs=20), tmp_path / "run", quiet=True)


def test_several_labels_and_numbers_are_trained_too(tmp_path: Path, block_arrays: Arrays) -> None:
    labels = np.eye(3)[block_arrays["y"]].astype(np.int64)
    for name, y, metric in (("several", labels, "micro-f1"), ("numbers", labels + 0.5, "r2")):
        np.savez(tmp_path / f"{name}.npz", **block_arrays | {"y": y})
        config = configure(tmp_path / f"{name}.npz", epochs=40, dropout=0.0, lr=0.1)
        result = workflow.train(config, tmp_path / name, quiet=True)
        assert result["metric"] == metric
        assert result["test"] > 0.3
        again = workflow.evaluate_run(tmp_path / name, device="cpu")
        assert scores(again) == scores(result)


def test_prediction_is_inference_on_the_graph_of_the_run(dataset: Path, tmp_path: Path) -> None:
    result = workflow.train(configure(dataset, epochs=20), tmp_path / "run", quiet=True)
    logits, graph, trained_on = workflow.predict_run(tmp_path / "run", device="cpu")
    assert graph.num_nodes == trained_on.num_nodes == len(logits) == 60
    right = logits.argmax(dim=1) == graph.y
    assert float(right[graph.masks["test"]].double().mean()) == result["test"]


def test_one_way_edges_are_warned_about_in_training_and_not_again(
    dataset: Path, tmp_path: Path, block_arrays: Arrays, caplog: pytest.LogCaptureFixture
) -> None:
    edges = block_arrays["edge_index"]
    np.savez(dataset, **block_arrays | {"edge_index": edges[:, edges[0] < edges[1]]})

    def warnings(action: Callable[[], object]) -> int:
        caplog.clear()
        action()
        return sum("led one way only" in message for message in caplog.messages)

    run = tmp_path / "run"
    assert warnings(lambda: workflow.train(configure(dataset), run, quiet=True)) == 1
    assert warnings(lambda: workflow.evaluate_run(run, device="cpu")) == 0
    assert warnings(lambda: workflow.predict_run(run, device="cpu")) == 0
    # another graph is news, training goes on, data are described
    assert warnings(lambda: workflow.predict_run(run, dataset, device="cpu")) == 1
    (run / "result.json").unlink()
    assert warnings(lambda: workflow.resume(run, device="cpu", quiet=True)) == 1
    assert warnings(lambda: workflow.prepare(str(dataset), 2, "random", 1)) == 1


@pytest.mark.parametrize("method", LEARNING)
def test_a_new_graph_needs_no_labels(dataset: Path, tmp_path: Path, block_arrays: Arrays, method: str) -> None:
    workflow.train(configure(dataset, method), tmp_path / "run", quiet=True)
    new = {name: block_arrays[name] for name in ("edge_index", "x")}
    np.savez(tmp_path / "new.npz", **new)
    own, _, _ = workflow.predict_run(tmp_path / "run", device="cpu")
    logits, graph, trained_on = workflow.predict_run(tmp_path / "run", tmp_path / "new.npz", device="cpu")
    assert torch.equal(logits, own)
    assert graph.task == trained_on.task
    np.savez(tmp_path / "part.npz", edge_index=np.array([[0, 1], [1, 0]]), x=block_arrays["x"][:5])
    logits, _, _ = workflow.predict_run(tmp_path / "run", tmp_path / "part.npz", device="cpu")
    assert logits.shape == (5, 3)


def test_a_new_graph_must_have_the_same_features(dataset: Path, tmp_path: Path) -> None:
    workflow.train(configure(dataset), tmp_path / "run", quiet=True)
    np.savez(tmp_path / "new.npz", edge_index=np.array([[0, 1], [1, 0]]), x=np.ones((2, 7)))
    with pytest.raises(
        GraphError, match=r"new.npz` has 7 features, the run was trained on 3; give a graph with the same"
    ):
        workflow.predict_run(tmp_path / "run", tmp_path / "new.npz", device="cpu")


def test_weights_of_another_model_do_not_fit(dataset: Path, tmp_path: Path) -> None:
    for name, hidden in (("a", 8), ("b", 16)):
        workflow.train(configure(dataset, hidden_channels=hidden), tmp_path / name, quiet=True)
    (tmp_path / "b" / "best.safetensors").replace(tmp_path / "a" / "best.safetensors")
    with pytest.raises(
        CheckpointError, match=r"the weights in `.*a` do not fit its configuration: .*size mismatch"
    ) as e:
        workflow.evaluate_run(tmp_path / "a", device="cpu")
    assert "\n" not in str(e.value)


def test_a_run_that_has_not_ended_says_so_before_its_graph_is_loaded(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Saver, "__call__", stop)
    with pytest.raises(KeyboardInterrupt):
        workflow.train(configure(dataset), tmp_path / "run", quiet=True)
    dataset.unlink()
    for use in (workflow.evaluate_run, workflow.predict_run):
        with pytest.raises(CheckpointError, match=r"run` has no weights yet, since its training has not ended; go on"):
            use(tmp_path / "run", device="cpu")


def test_devices() -> None:
    assert workflow.choose_device("cpu") == torch.device("cpu")
    assert workflow.choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("gpu", "mps", "meta", "cuda:x", ""):
        with pytest.raises(ConfigError, match=f"unknown device `{name}`; choose auto, cpu or cuda"):
            workflow.choose_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"device `cuda` is not there: torch .* sees no GPU; choose auto or cpu"):
        workflow.choose_device("cuda")
