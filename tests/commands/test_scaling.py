"""Trains with ranks that are processes of their own; `make soak` kills them."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lazygnn.commands.evaluation import evaluate_run
from lazygnn.commands.scaling import resume_ranks, train_ranks
from lazygnn.data.synthetic import block_graph
from lazygnn.distributed.trainer import RankTrainer
from lazygnn.errors import CheckpointError, ConfigError, DivergenceError, GraphError
from lazygnn.run.folder import Run
from lazygnn.run.log import RunLog
from lazygnn.task import Task
from lazygnn.training import EpochReport
from tests.distributed.workers import run_command

SET = [f"--set={each}" for each in ("epochs=4", "num_parts=4", "parts_per_step=2", "hidden_channels=8", "eval_every=2")]
VALUES = {"epochs": 4, "num_parts": 4, "parts_per_step": 2, "hidden_channels": 8, "eval_every": 2}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "mine.npz"
    block_graph(120, 3, degree=6, in_channels=8, num_classes=3).save(path)
    return path


def test_two_ranks_end_like_one_and_the_first_of_them_talks(graph: Path, tmp_path: Path) -> None:
    arguments = ["train", "lazygnn", str(graph), *SET, "--out", str(tmp_path / "two")]
    first, second = run_command(2, arguments, tmp_path)
    assert second == "exit 0"
    *progress, line, status = first.splitlines()
    assert status == "exit 0"
    assert "lazygnn on 2 ranks  epoch 4/4" in progress[-1]
    result = json.loads(line)
    assert result["ranks"] == 2
    assert result["halo_bytes_per_epoch"] > 0
    assert result["allreduce_bytes_per_epoch"] > 0
    assert json.loads((tmp_path / "two" / "result.json").read_text()) == result
    alone = train_ranks("lazygnn", str(graph), VALUES, tmp_path / "one", quiet=True)
    assert alone is not None
    assert alone["halo_bytes_per_epoch"] == 0
    assert alone["test"] == pytest.approx(result["test"], abs=0.05)
    weights = load_file(tmp_path / "one" / "best.safetensors")
    for name, value in load_file(tmp_path / "two" / "best.safetensors").items():
        torch.testing.assert_close(value, weights[name], rtol=1e-3, atol=1e-4)


def test_two_ranks_show_the_labels_that_one_shows(graph: Path, tmp_path: Path) -> None:
    more = {"label_input": 0.5, "num_blocks": 1, "beside": [], "dropout": 0.0}
    options = [f"--set={name}={json.dumps(value)}" for name, value in more.items()]
    arguments = ["train", "lazygnn-deep", str(graph), *SET, *options, "--out", str(tmp_path / "two")]
    assert [text.splitlines()[-1] for text in run_command(2, arguments, tmp_path)] == ["exit 0", "exit 0"]
    train_ranks("lazygnn-deep", str(graph), VALUES | more, tmp_path / "one", quiet=True)
    weights = load_file(tmp_path / "one" / "best.safetensors")
    assert float(weights["labels.embedding.weight"].abs().max()) > 0
    for name, value in load_file(tmp_path / "two" / "best.safetensors").items():
        torch.testing.assert_close(value, weights[name], rtol=1e-3, atol=1e-4)
    # ranks show all training labels in inference, as one process does
    found = json.loads((tmp_path / "two" / "result.json").read_text())
    assert found["test"] == evaluate_run(tmp_path / "two", device="cpu")["test"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_rank_with_a_gpu_of_its_own_trains_through_nccl(graph: Path, tmp_path: Path) -> None:
    arguments = ["train", "lazygnn", str(graph), *SET, "--device=cuda", "--out", str(tmp_path / "one")]
    (text,) = run_command(1, arguments, tmp_path)
    *_, line, status = text.splitlines()
    assert status == "exit 0", text
    alone = train_ranks("lazygnn", str(graph), VALUES, tmp_path / "cpu", device="cpu", quiet=True)
    assert alone is not None
    assert json.loads(line)["test"] == pytest.approx(alone["test"], abs=0.05)


def test_an_error_before_training_is_one_line(graph: Path, tmp_path: Path) -> None:
    arguments = ["train", "lazygnn", str(graph), "--set=num_parts=2", "--out", str(tmp_path / "run")]
    found = run_command(3, arguments, tmp_path)
    assert found[0].startswith("error: 3 ranks share 2 parts, and a rank needs one at least; set `num_parts=3`")
    assert found[0].count("\n") == 1
    assert found[0].endswith("exit 2")
    assert found[1:] == ["exit 2"] * 2
    # nothing stands in the way of a second attempt
    assert not (tmp_path / "run").exists()


def test_a_run_is_resumed_with_more_epochs(graph: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = tmp_path / "run"
    values = {"parts_per_step": 2, "hidden_channels": 8, "schedule": "constant", "eval_every": 1, "patience": None}
    train_ranks("mlp", str(graph), values | {"epochs": 2}, out, quiet=True)
    found = resume_ranks(out, epochs=5, quiet=True)
    assert found is not None
    assert found["epochs"] == 5
    whole = train_ranks("mlp", str(graph), values | {"epochs": 5}, tmp_path / "other", quiet=True)
    assert whole is not None
    for name, value in load_file(out / "best.safetensors").items():
        assert torch.equal(value, load_file(tmp_path / "other" / "best.safetensors")[name])
    with caplog.at_level(logging.WARNING):
        assert resume_ranks(out) == resume_ranks(out, epochs=5) == found
    assert caplog.text.count("has ended") == 2


@pytest.mark.parametrize(
    ("lost", "message"), [("parts", "the run's graph `.*` is not in"), ("checkpoints", "has no checkpoint to go on")]
)
def test_more_epochs_change_nothing_where_the_run_cannot_go_on(
    graph: Path, tmp_path: Path, lost: str, message: str
) -> None:
    mine, out = Path(shutil.copy(graph, tmp_path / "mine.npz")), tmp_path / "run"
    train_ranks("mlp", str(mine), {"epochs": 2, "parts_per_step": 2, "schedule": "constant"}, out, quiet=True)
    shutil.rmtree(out / lost)
    if lost == "parts":
        mine.unlink()
    names = ("config.json", "result.json", "environment.json", "best.safetensors")
    before = {name: ((out / name).read_bytes(), (out / name).stat().st_mtime_ns) for name in names}
    with pytest.raises((CheckpointError, GraphError), match=message):
        resume_ranks(out, epochs=5, quiet=True)
    assert {name: ((out / name).read_bytes(), (out / name).stat().st_mtime_ns) for name in names} == before


def test_ranks_that_were_started_again_go_on(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, out = {"epochs": 2, "parts_per_step": 2}, tmp_path / "run"
    first = train_ranks("mlp", str(graph), values, out, quiet=True)
    with pytest.raises(ConfigError, match="is not empty"):
        train_ranks("mlp", str(graph), values, out, quiet=True)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    again = train_ranks("mlp", str(graph), values, out, quiet=True)
    assert first is not None
    assert again is not None
    assert (again["epochs"], again["test"]) == (first["epochs"], first["test"])


def test_ranks_that_were_started_again_find_their_run(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(graph: Path, seed: int) -> str:
        found = train_ranks("mlp", str(graph), {"epochs": 2, "parts_per_step": 2}, seed=seed, quiet=True)
        assert found is not None
        return str(found["run"])

    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere" / graph.name
    elsewhere.parent.mkdir()
    shutil.copy(graph, elsewhere)
    ended, tenth, other = start(graph, 1), start(graph, 10), start(elsewhere, 1)
    assert (ended, tenth, other) == ("runs/mine-mlp-1", "runs/mine-mlp-10", "runs/mine-mlp-1-2")
    for path in (tenth, other):
        (Path(path) / "result.json").unlink()
    before = {file: file.stat().st_mtime_ns for file in Path("runs").rglob("*") if file.is_file()}
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    # one has ended, one has another seed, and one another graph
    own = start(graph, 1)
    assert own == "runs/mine-mlp-1-3"
    assert {file: file.stat().st_mtime_ns for file in before} == before
    (Path(own) / "result.json").unlink()
    assert start(graph, 1) == own


def test_another_graph_is_refused_on_resume(graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    values = {"epochs": 1, "parts_per_step": 2, "num_parts": 2}
    train_ranks("lazygnn", str(graph), values, out, quiet=True)
    (out / "result.json").unlink()
    labels = np.load(out / "parts" / "y.npy")
    np.save(out / "parts" / "y.npy", (labels + 1) % 3)
    with pytest.raises(CheckpointError, match="other content"):
        resume_ranks(out, quiet=True)


def test_a_changed_run_is_resumed_as_it_is(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    values = {"epochs": 1, "parts_per_step": 2, "num_parts": 2}
    first = train_ranks("lazygnn", str(graph), values, out, quiet=True)
    assert first is not None
    (out / "result.json").unlink()
    with (out / "config.json").open("a") as file:
        file.write("\n")
    labels = np.load(out / "parts" / "y.npy")
    np.save(out / "parts" / "y.npy", (labels + 1) % 3)
    with pytest.raises(CheckpointError, match="has changed since lazygnn wrote it"):
        resume_ranks(out, quiet=True)
    again = resume_ranks(out, quiet=True, verify=False)
    assert again is not None
    assert again["epochs"] == 1
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(CheckpointError, match="has changed since lazygnn wrote it"):
        train_ranks("lazygnn", str(graph), values, out, quiet=True)
    assert train_ranks("lazygnn", str(graph), values, out, quiet=True, verify=False) is not None


def test_two_ranks_resume_a_changed_run_as_it_is(graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_ranks("mlp", str(graph), {"epochs": 1, "parts_per_step": 2}, out, quiet=True)
    with (out / "config.json").open("a") as file:
        file.write("\n")
    arguments = ["train", "--resume", str(out), "--quiet"]
    assert "has changed since lazygnn wrote it" in run_command(2, arguments, tmp_path)[0]
    assert [text[-6:] for text in run_command(2, [*arguments, "--no-verify"], tmp_path)] == ["exit 0"] * 2


def test_any_failure_of_ranks_keeps_the_best_weights_until_the_run_goes_on(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(log: RunLog, report: EpochReport) -> None:
        if report.epoch == 4:
            raise MemoryError
        append(log, report)

    append = RunLog.append
    values = {"epochs": 6, "parts_per_step": 2, "eval_every": 1, "patience": None}
    straight = train_ranks("mlp", str(graph), values, tmp_path / "straight", quiet=True)
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "append", fail)
        with pytest.raises(MemoryError):
            train_ranks("mlp", str(graph), values, run, quiet=True)
    assert f"are kept: `lazygnn evaluate {run}`" in caplog.text
    best = max(line["scores"]["val"] for line in Run(tmp_path / "straight").log.read()[:4])
    assert evaluate_run(run, device="cpu")["val"] == best
    with monkeypatch.context() as patch:
        patch.setattr(RankTrainer, "run", lambda _: pytest.fail("as far as this"))
        with pytest.raises(pytest.fail.Exception):
            resume_ranks(run, quiet=True)
    assert not (run / "best.safetensors").exists()
    resumed = resume_ranks(run, quiet=True)
    assert straight is not None
    assert resumed is not None
    assert resumed["test"] == straight["test"]
    with monkeypatch.context() as patch:
        patch.setattr("lazygnn.training.trainer.learning_rate", lambda _, epoch: 0.01 if epoch < 4 else 1e30)
        with pytest.raises(DivergenceError, match=r"; the best weights, of epoch \d, are kept: `lazygnn evaluate .*`$"):
            train_ranks("mlp", str(graph), values, tmp_path / "diverged", quiet=True)


@pytest.mark.parametrize("standardize", [True, False])
def test_ranks_choose_what_one_process_chooses(tmp_path: Path, standardize: bool) -> None:
    from lazygnn.commands import train
    from lazygnn.methods import resolve

    graph = block_graph(120, 3, degree=6, in_channels=8, num_classes=3)
    numbers = torch.stack((graph.y * 3 - 7.0, graph.y / 3), dim=1)
    replace(graph, y=numbers, task=Task("regression", 2)).save(tmp_path / "numbers.npz")
    values = {"epochs": 1, "standardize_targets": standardize}
    train_ranks("mlp", str(tmp_path / "numbers.npz"), values | {"parts_per_step": 2}, tmp_path / "ranks", quiet=True)
    train(resolve("mlp", str(tmp_path / "numbers.npz"), values), tmp_path / "one", quiet=True)
    chosen, alone = (json.loads((tmp_path / name / "chosen.json").read_text()) for name in ("ranks", "one"))
    # one process replays its steps on a GPU, ranks never do
    assert chosen == alone | {"cuda_graphs": "off"}
    assert ("target_center" in chosen) is standardize


def test_a_run_of_one_process_is_refused(graph: Path, tmp_path: Path) -> None:
    from lazygnn.commands import train
    from lazygnn.methods import resolve

    train(resolve("mlp", str(graph), {"epochs": 1}), tmp_path / "run", quiet=True)
    with pytest.raises(ConfigError, match="was started by one process"):
        resume_ranks(tmp_path / "run")


def test_ranks_read_their_graph_from_files(graph: Path, tmp_path: Path) -> None:
    from lazygnn.commands import resume
    from lazygnn.data import load_graph

    train_ranks("mlp", str(graph), {"epochs": 1, "parts_per_step": 2}, tmp_path / "run", quiet=True)
    with pytest.raises(ConfigError, match="is of several ranks, which read their graph from files; omit `trained_on`"):
        resume(tmp_path / "run", trained_on=load_graph(graph))


@pytest.mark.parametrize("values", [{"wire": "int8"}, {"exchange_every": 2}, {"parts_per_step": 2}])
def test_options_of_ranks_are_refused_by_one_process(graph: Path, tmp_path: Path, values: dict[str, object]) -> None:
    from lazygnn.commands import train
    from lazygnn.methods import resolve

    with pytest.raises(ConfigError, match=f"`{next(iter(values))}` is .*, which is for several ranks"):
        train(resolve("mlp", str(graph), values), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
