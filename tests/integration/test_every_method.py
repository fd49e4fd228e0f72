"""Every method trains, resumes bit for bit, evaluates and predicts, with the functions of the commands."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lazygnn import commands
from lazygnn.config import RENAMED, Config, TrainerOptions
from lazygnn.data import load_graph
from lazygnn.graph import Graph
from lazygnn.methods import METHODS, resolve
from lazygnn.ops import Csr
from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.run.digests import DIGESTS
from lazygnn.run.folder import CHECKPOINTS, CONFIG, RESULT, WEIGHTS, Run
from lazygnn.run.saving import Interrupted, Saver
from lazygnn.training.trainer import Trainer

DATA = Path(__file__).parents[3] / "shared" / "data"
NUM_NODES = 800
LEARNING = [method for method in METHODS if method != "label-propagation"]
# a further training of a method, with another loader
LOADERS: dict[str, dict[str, Any]] = {
    "lazygnn, neighbor": {"loader": "neighbor", "batch_size": 200},
    "lazygnn, saint": {"loader": "saint", "num_samples": 200, "coverage": 5},
}
# values that keep the recipes small
SMALL: dict[str, Any] = {"epochs": 3, "eval_every": 3, "diagnose_every": 0, "num_layers": 2, "hidden_channels": 16}
IN_PARTS: dict[str, Any] = SMALL | {"num_parts": 6, "parts_per_batch": 2, "partition": "random", "batch_size": 200}


class StopsAfterTwo(Saver):
    """Receives a signal in the second batch."""

    def __call__(self, trainer: Trainer) -> None:
        if trainer.num_batches == 2:
            self.signum = signal.SIGTERM
        super().__call__(trainer)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nodes nearest to the one with the most neighbors, of the embedded graph and of Cora."""
    folder = tmp_path_factory.mktemp("graphs")
    for name, file in (("piece", "wordnet-small"), ("cora", DATA / "cora.npz")):
        if name == "piece" or (DATA / "cora.npz").is_file():
            graph = load_graph(file)
            np.savez(folder / f"{name}.npz", **_induced(graph, _ball(graph, NUM_NODES)))
    return folder


@pytest.fixture(params=["piece", "cora"])
def dataset(request: pytest.FixtureRequest, pieces: Path) -> str:
    path = pieces / f"{request.param}.npz"
    if not path.is_file():
        pytest.skip("there is no `cora.npz` beside this checkout")
    return str(path)


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", lambda *_: None)


def configure(name: str, dataset: str, wanted: dict[str, Any]) -> Config:
    method = name.split(",")[0]
    if name in LOADERS:
        wanted = SMALL | LOADERS[name]
    elif "loader" in METHODS[method].options.model_fields:
        # by default its batches are parts
        wanted = {key: value for key, value in wanted.items() if key != "batch_size"}
    known = METHODS[method].options.model_fields.keys() | TrainerOptions.model_fields.keys()
    return resolve(method, dataset, {key: value for key, value in wanted.items() if key in known}, device="cpu")


@pytest.mark.parametrize("method", [*LEARNING, *LOADERS])
def test_a_method_trains_resumes_evaluates_and_predicts(
    dataset: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(method, dataset, IN_PARTS if Path(dataset).stem == "piece" else SMALL)
    straight = commands.train(config, tmp_path / "straight", quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr("lazygnn.commands.training.Saver", StopsAfterTwo)
        with pytest.raises(Interrupted):
            commands.train(config, tmp_path / "stopped", quiet=True)
    resumed = commands.resume(tmp_path / "stopped", quiet=True)
    for split in ("val", "test"):
        assert resumed[split] == straight[split]
    assert _log(tmp_path / "stopped") == _log(tmp_path / "straight")
    for read in (_weights, _final_state):
        expected, found = read(tmp_path / "straight"), read(tmp_path / "stopped")
        assert expected.keys() == found.keys()
        assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    _evaluates_and_predicts(tmp_path / "stopped", resumed)


def test_label_propagation_has_nothing_to_resume(dataset: str, tmp_path: Path) -> None:
    result = commands.train(configure("label-propagation", dataset, {}), tmp_path / "run", quiet=True)
    _evaluates_and_predicts(tmp_path / "run", result)


def test_a_run_folder_with_old_names_of_options_still_works(block_arrays: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "block.npz", **block_arrays)
    wanted = SMALL | {"num_neighbors": [2, 3], "batch_size": 6}
    result = commands.train(configure("graphsage", str(tmp_path / "block.npz"), wanted), tmp_path / "run", quiet=True)
    stored = json.loads((tmp_path / "run" / CONFIG).read_text())
    stored["model"] = {old_name(name): value for name, value in stored["model"].items()}
    assert stored["model"]["fanout"] == [2, 3]
    (tmp_path / "run" / CONFIG).write_text(json.dumps(stored))
    # a run of that version has no digests
    (tmp_path / "run" / DIGESTS).unlink()
    _evaluates_and_predicts(tmp_path / "run", result)
    # as if the run had been stopped before its end
    (tmp_path / "run" / RESULT).unlink()
    assert commands.resume(tmp_path / "run", quiet=True)["test"] == result["test"]


def old_name(name: str) -> str:
    return {new: old for old, new in RENAMED.items()}.get(name, name)


def _log(run: Path) -> list[dict[str, Any]]:
    return [line | {"seconds": 0} for line in Run.open(run).log.read()]


def _weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / WEIGHTS)


def _final_state(run: Path) -> dict[str, torch.Tensor]:
    """Weights, optimizer, histories and random state at the end of training."""
    saved = CheckpointFolder(run / CHECKPOINTS).load_latest()
    assert saved is not None
    return saved.tensors


def _evaluates_and_predicts(run: Path, result: dict[str, Any]) -> None:
    again = commands.evaluate_run(run, device="cpu")
    assert (again["val"], again["test"]) == (result["val"], result["test"])
    outputs, graph, _ = commands.predict_run(run, device="cpu")
    test = graph.masks["test"]
    right = (outputs.argmax(dim=1) == graph.y)[test]
    assert float(right.double().mean()) == pytest.approx(result["test"], abs=1e-6)


def _ball(graph: Graph, size: int) -> torch.Tensor:
    """Returns the first `size` nodes of a breadth-first search."""
    met = graph.adj.rowptr.diff().argmax().reshape(1).long()
    while len(met) < size:
        reached = graph.adj.select(met).col.long().unique()
        fresh = reached[~torch.isin(reached, met)]
        assert len(fresh) > 0
        met = torch.cat((met, fresh))
    return met[:size]


def _induced(graph: Graph, nodes: torch.Tensor) -> dict[str, Any]:
    """Returns the arrays of an .npz file for `nodes` and the edges between them."""
    rows = graph.adj.select(nodes)
    place = torch.full((graph.num_nodes,), -1)
    place[nodes] = torch.arange(len(nodes))
    edges = torch.stack((rows.row_index(), place[rows.col.long()]))
    edges = edges[:, (edges[1] >= 0) & (edges[0] != edges[1])]
    assert isinstance(graph.x, Csr)
    x = graph.x.select(nodes)
    masks = {f"{name}_mask": mask[nodes].numpy() for name, mask in graph.masks.items()}
    return masks | {
        "edge_index": edges.numpy(),
        "y": graph.y[nodes].numpy(),
        "x_indptr": x.rowptr.numpy(),
        "x_indices": x.col.numpy(),
        "x_data": x.value.numpy(),
        "x_shape": np.array(x.shape),
    }
