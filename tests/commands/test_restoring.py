import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn import commands
from lazygnn.commands.embedding import write_embeddings
from lazygnn.commands.evaluation import evaluate_by_metrics
from lazygnn.commands.exporting import export_run
from lazygnn.commands.loading import load_run
from lazygnn.commands.prediction import write_predictions
from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.data.folder import save_folder
from lazygnn.errors import CheckpointError, ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.methods import read_config
from lazygnn.run.folder import Run

Arrays = dict[str, Any]
Configure = Callable[..., Config]


def scores(result: dict[str, Any]) -> tuple[float, float]:
    return result["val"], result["test"]


def check_every_use(run: Path, root: str | None = None) -> None:
    """Evaluates, predicts with and resumes a run, which must find its graph."""
    result = json.loads((run / "result.json").read_text())
    assert scores(commands.evaluate_run(run, device="cpu", root=root)) == scores(result)
    assert len(commands.predict_run(run, device="cpu", root=root)[0]) == 60
    # a run that has ended would not load its graph
    (run / "result.json").unlink()
    assert scores(commands.resume(run, device="cpu", root=root, quiet=True)) == scores(result)


def test_a_moved_data_set_is_found_under_another_root(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    (tmp_path / "data").mkdir()
    dataset.rename(tmp_path / "data" / "block.npz")
    trained = commands.train(configure("block"), tmp_path / "run", quiet=True)
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with pytest.raises(GraphError, match=r"run's graph `block` is not in `.*/data`; give the folder that has a file"):
        commands.evaluate_run(tmp_path / "run", device="cpu")
    again = commands.evaluate_run(tmp_path / "run", device="cpu", root=str(tmp_path / "elsewhere"))
    assert scores(again) == scores(trained)


@pytest.mark.parametrize("given", ["block.npz", "./block.npz", "folder", "../here/block.npz"])
def test_a_run_on_a_path_is_used_from_any_folder(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, configure: Configure
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    dataset.rename("block.npz")
    save_folder(load_graph("block.npz"), "folder")
    trained = commands.train(configure(given), tmp_path / "run", quiet=True)
    monkeypatch.chdir(tmp_path)
    assert (
        trained["dataset"] == Run.open(tmp_path / "run").config(read_config).dataset == str(tmp_path / "here" / given)
    )
    check_every_use(tmp_path / "run")


@pytest.mark.parametrize("where", ["root", "environment", "default"])
def test_a_run_on_a_name_is_used_from_any_folder(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, configure: Configure
) -> None:
    folder = "data" if where == "default" else "kept"
    (tmp_path / folder).mkdir()
    dataset.rename(tmp_path / folder / "block.npz")
    if where == "environment":
        monkeypatch.setenv("LAZYGNN_DATA", folder)
    config = configure("block").model_copy(update={"root": folder if where == "root" else None})
    commands.train(config, tmp_path / "run", quiet=True)
    monkeypatch.delenv("LAZYGNN_DATA", raising=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    kept = Run.open(tmp_path / "run").config(read_config)
    assert (kept.dataset, kept.root) == ("block", str(tmp_path / folder))
    check_every_use(tmp_path / "run")


def test_another_root_has_priority_over_the_original_path(
    dataset: Path, tmp_path: Path, block_arrays: Arrays, configure: Configure
) -> None:
    commands.train(configure("block.npz"), tmp_path / "run", quiet=True)
    (tmp_path / "other").mkdir()
    assert commands.predict_run(tmp_path / "run", device="cpu", root="other")[1].num_nodes == 60
    dataset.rename(tmp_path / "other" / "block.npz")
    with pytest.raises(GraphError, match=r"the run's graph `/.*/block.npz` is not in `/.*`; give the folder that"):
        commands.evaluate_run(tmp_path / "run", device="cpu")
    check_every_use(tmp_path / "run", root="other")
    np.savez(dataset, edge_index=block_arrays["edge_index"][:, :0], x=np.ones((5, 3)))
    assert commands.predict_run(tmp_path / "run", device="cpu", root="other")[1].num_nodes == 60


def test_a_run_on_the_embedded_graph_needs_no_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_graph: Graph, configure: Configure
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[Any] = []

    def load(*where: Any) -> Graph:
        asked.append(where)
        return block_graph

    commands.train(configure("wordnet-small"), tmp_path / "run", graph=block_graph, quiet=True)
    monkeypatch.setattr("lazygnn.commands.restoring.load_graph", load)
    check_every_use(tmp_path / "run")
    assert asked == [("wordnet-small", tmp_path / "data")] * 3


def test_a_folder_of_the_same_name_nearby_is_not_taken_for_the_graph_of_a_run(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path_graph: Graph, configure: Configure
) -> None:
    (tmp_path / "data").mkdir()
    dataset.rename(tmp_path / "data" / "block.npz")
    commands.train(configure("block").model_copy(update={"root": "data"}), tmp_path / "run", quiet=True)
    save_folder(path_graph, tmp_path / "nearby" / "block")
    monkeypatch.chdir(tmp_path / "nearby")
    check_every_use(tmp_path / "run")


def test_a_run_without_a_file_of_its_graph_takes_the_graph_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_graph: Graph, path_graph: Graph, configure: Configure
) -> None:
    monkeypatch.chdir(tmp_path)
    config, run = configure("label", schedule="constant"), tmp_path / "run"
    trained = commands.train(config, run, graph=block_graph, quiet=True)
    place: dict[str, Any] = {"device": "cpu", "trained_on": block_graph}
    assert scores(commands.evaluate_run(run, **place)) == scores(trained)
    assert evaluate_by_metrics(run, ["macro-f1"], **place)[0]["metric"] == "macro-f1"
    assert commands.predict_run(run, **place)[2].adj is block_graph.adj
    assert write_predictions(run, "table.csv", **place) == len(load_run(run, **place).predict()["node"]) == 60
    assert write_embeddings(run, "rows.npy", **place)[0] == 60
    assert export_run(run, "exported", trained_on=block_graph)["num_outputs"] == 3
    assert commands.fine_tune(run, out="tuned", **place, quiet=True)["epochs"] == 3
    assert commands.resume(run, epochs=5, **place, quiet=True)["epochs"] == 5
    # another graph beside it is a file, as ever
    block_graph.save("other.npz")
    assert commands.evaluate_run(run, **place, graph_file="other.npz")["graph"] == "other.npz"
    for use in (commands.evaluate_run, commands.predict_run, load_run):
        with pytest.raises(CheckpointError, match="has other content than when run"):
            use(run, device="cpu", trained_on=path_graph)
    (run / "result.json").unlink()
    with pytest.raises(CheckpointError, match="has other content than when run"):
        commands.resume(run, trained_on=path_graph)
    with pytest.raises(GraphError, match=r"`trained_on` is 'other\.npz', of type str; give the graph itself that the"):
        commands.evaluate_run(run, trained_on="other.npz")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="`dataset` is another graph, so that `trained_on` has no effect; omit one"):
        commands.fine_tune(run, dataset="other.npz", trained_on=block_graph)


def test_seeds_without_a_file_of_their_graph_take_the_graph_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_graph: Graph, configure: Configure
) -> None:
    monkeypatch.chdir(tmp_path)
    trained = commands.train_seeds(configure("label", "mlp"), 2, "runs", graph=block_graph, quiet=True)
    # the first seed stopped at its end, the second one before its start
    (tmp_path / "runs" / "seed-0" / "result.json").unlink()
    (tmp_path / "runs" / "seed-1").rename(tmp_path / "away")
    again = commands.resume_seeds("runs", trained_on=block_graph, quiet=True)
    assert scores(again) == scores(trained)


def test_one_way_edges_are_told_of_in_training_and_not_again(
    dataset: Path, tmp_path: Path, block_arrays: Arrays, caplog: pytest.LogCaptureFixture, configure: Configure
) -> None:
    edges = block_arrays["edge_index"]
    np.savez(dataset, **block_arrays | {"edge_index": edges[:, edges[0] < edges[1]]})

    caplog.set_level(logging.INFO, logger="lazygnn")

    def times_told(action: Callable[[], object]) -> int:
        caplog.clear()
        action()
        return sum("edges undirected" in message for message in caplog.messages)

    run = tmp_path / "run"
    assert times_told(lambda: commands.train(configure(dataset), run, quiet=True)) == 1
    assert times_told(lambda: commands.evaluate_run(run, device="cpu")) == 0
    assert times_told(lambda: commands.predict_run(run, device="cpu")) == 0
    # a new graph, a training that continues, and data that are described
    assert times_told(lambda: commands.predict_run(run, dataset, device="cpu")) == 1
    (run / "result.json").unlink()
    assert times_told(lambda: commands.resume(run, device="cpu", quiet=True)) == 1
    assert times_told(lambda: commands.prepare(str(dataset), 2, "random", 1)) == 1
