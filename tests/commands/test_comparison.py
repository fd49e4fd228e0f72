import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from lazygnn.commands.comparison import check_split, compare_runs
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.methods import resolve
from lazygnn.run.folder import LOG, Run
from lazygnn.run.seeds import SeedRuns

Scores = list[float]


def write_run(path: Path, method: str, seed: int, test: float | None, **other: Any) -> None:
    """Writes the run folder of a training that has ended, without training."""
    config = resolve(method, "cora", other.pop("values", {}), seed=seed)
    run = Run.create(path, config)
    result = {"method": method, "dataset": "cora", "seed": seed, "metric": "accuracy", "val": 0.5, "test": test}
    timing = {"epochs": 2, "best_epoch": 2, "seconds_per_epoch": 0.1, "peak_memory_mib": 1.0, "run": str(path)}
    run.save_result(result | timing | other)
    line = {"epoch": 1, "loss": 1.0, "seconds": 0.1, "scores": {"val": 0.5}}
    (path / LOG).write_text(json.dumps(line) + "\n")


def write_seeds(path: Path, method: str, scores: Scores, first: int = 0) -> Path:
    seeds = SeedRuns.create(path, resolve(method, "cora", seed=first), len(scores))
    for seed, score in zip(seeds.seeds(), scores, strict=True):
        write_run(seeds.run_path(seed), method, seed, score)
    return path


def test_two_seeds_of_noise_are_no_difference(tmp_path: Path) -> None:
    one = write_seeds(tmp_path / "one", "mlp", [0.81, 0.80])
    other = write_seeds(tmp_path / "other", "gcn", [0.83, 0.81])
    found = compare_runs([one, other])
    assert found.verdicts() == ["no difference"]
    (sentence,) = found.sentences()
    assert "other against " in sentence
    assert (
        "no difference that is more than noise on test (+0.0150, 95 % interval -0.0485 to +0.0785, p = 0.2" in sentence
    )


def test_a_long_name_is_complete_in_a_narrow_table(tmp_path: Path) -> None:
    paths = [tmp_path / f"a-graph-of-products-and-customers-by-method-{name}" for name in ("one", "other")]
    for seed, path in enumerate(paths):
        write_run(path, "mlp", 0, 0.5, values={"hidden_channels": 8 + seed})
    shown = StringIO()
    Console(file=shown, width=80).print(compare_runs(paths).table())
    rows = [line.split("│") for line in shown.getvalue().splitlines() if "│" in line]
    assert "".join(row[1].strip() for row in rows) == "".join(map(str, paths))


def test_a_difference_on_every_seed_is_found_in_both_directions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.02, 5)
    one = write_seeds(tmp_path / "one", "mlp", list(0.7 + noise))
    better = write_seeds(tmp_path / "better", "gcn", list(0.75 + noise + rng.normal(0, 0.005, 5)))
    worse = write_seeds(tmp_path / "worse", "appnp", list(0.65 + noise + rng.normal(0, 0.005, 5)))
    found = compare_runs([one, better, worse])
    assert found.verdicts() == ["better", "worse"]
    # two comparisons are judged more strictly than one
    alone = [compare_runs([one, other]).probabilities[0] for other in (better, worse)]
    smallest = min(p for p in alone if p is not None)
    assert min(p for p in found.probabilities if p is not None) == pytest.approx(2 * smallest)


def test_run_folders_that_differ_in_their_seed_alone_are_one_candidate(tmp_path: Path) -> None:
    paths = []
    for method in ("mlp", "gcn"):
        for seed in (0, 1, 2):
            paths.append(tmp_path / f"{method}-{seed}")
            write_run(paths[-1], method, seed, 0.7 + 0.01 * seed)
    write_run(tmp_path / "wide", "mlp", 0, 0.9, values={"hidden_channels": 256})
    found = compare_runs([*paths, tmp_path / "wide"])
    assert [sorted(one.results) for one in found.candidates] == [[0, 1, 2], [0, 1, 2], [0]]
    assert found.verdicts() == ["no difference", "unknown"]
    assert "unknown, since they have 1 seed in common; train both with the same `--seeds`" in found.sentences()[1]


def test_a_seed_that_was_extended_alone_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, other = (write_seeds(tmp_path / name, "mlp", [0.7, 0.8]) for name in ("one", "other"))
    compare_runs([one, other])
    assert not caplog.records
    run = Run.open(one / "seed-1")
    config = resolve("mlp", "cora", {"epochs": 999}, seed=1)
    result = run.result()
    run.change_config(config)
    run.save_result(result)
    compare_runs([one, other])
    (record,) = caplog.records
    assert record.message.startswith(f"seed 1 of `{one}` was changed since the others were started, and is compared")
    assert record.message.endswith("extend all seeds alike")


def test_a_graph_that_has_changed_between_runs_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, other = (write_seeds(tmp_path / method, method, [0.5, 0.6]) for method in ("mlp", "gcn"))
    for folder in (one, other):
        Run.open(folder / "seed-0").save_inputs({"graph": "a"})
    compare_runs([one, other])
    assert not caplog.records
    Run.open(other / "seed-1").save_inputs({"graph": "b"})
    compare_runs([one, other])
    (record,) = caplog.records
    assert "the graph has changed between these runs, so that their scores may be of other nodes" in record.message


def test_runs_without_a_common_seed_are_not_judged(tmp_path: Path) -> None:
    one = write_seeds(tmp_path / "one", "mlp", [0.5, 0.6])
    other = write_seeds(tmp_path / "other", "gcn", [0.9, 0.9], first=2)
    found = compare_runs([one, other])
    assert found.verdicts() == ["unknown"]
    assert "unknown, since they have no seeds in common" in found.sentences()[0]


def test_validation_scores_count_where_a_run_has_no_test_score(tmp_path: Path) -> None:
    write_run(tmp_path / "one", "mlp", 0, None)
    write_run(tmp_path / "other", "gcn", 0, 0.9)
    assert compare_runs([tmp_path / "one", tmp_path / "other"]).split == "val"
    assert compare_runs([tmp_path / "one", tmp_path / "other"], split="test").verdicts() == ["unknown"]


def test_seeds_that_have_not_ended_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = write_seeds(tmp_path / "one", "mlp", [0.5, 0.6])
    other = write_seeds(tmp_path / "other", "gcn", [0.5, 0.6])
    (other / "seed-1" / "result.json").unlink()
    found = compare_runs([one, other])
    assert sorted(found.candidates[1].results) == [0]
    assert "seed 1 of " in caplog.text
    (other / "seed-0" / "result.json").unlink()
    with pytest.raises(CheckpointError, match=r"no training in `.*other` has ended; resume it with `lazygnn train --"):
        compare_runs([one, other])


def test_table_picture_and_record_hold_every_run(tmp_path: Path) -> None:
    one = write_seeds(tmp_path / "one", "mlp", [0.5, 0.6])
    write_run(tmp_path / "other", "gcn", 0, 0.7)
    found = compare_runs([one, tmp_path / "other"], picture=tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    console = Console(width=300, file=StringIO())
    with console.capture() as printed:
        console.print(found.table())
    assert "0.5500 ± 0.0707" in printed.get()
    record = json.loads(json.dumps(found.record()))
    assert record["reference"] == str(one)
    assert [run["test"] for run in record["runs"]] == [pytest.approx(0.55), 0.7]
    assert record["runs"][1]["verdict"] == "unknown"
    assert record["runs"][1]["common_seeds"] == [0]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "one", "mlp", 0, 0.5)
    write_run(tmp_path / "far", "gcn", 0, 0.5, dataset="pubmed")
    write_run(tmp_path / "odd", "gcn", 0, 0.5, metric="roc-auc")
    with pytest.raises(ConfigError, match=r"found 1 configuration to compare; give at least two"):
        compare_runs([tmp_path / "one"])
    with pytest.raises(ConfigError, match=r"one` has dataset `cora`, but `.*far` has `pubmed`; compare runs on the"):
        compare_runs([tmp_path / "one", tmp_path / "far"])
    with pytest.raises(ConfigError, match=r"has metric `accuracy`, but `.*odd` has `roc-auc`; train them with the"):
        compare_runs([tmp_path / "one", tmp_path / "odd"])
    with pytest.raises(ConfigError, match=r"cannot draw `curves.txt`; choose a name that ends in .png"):
        compare_runs([tmp_path / "one", tmp_path / "far"], picture=Path("curves.txt"))
    with pytest.raises(ConfigError, match=r"`split` is `train`; choose val or test"):
        check_split("train")
    assert check_split("val") == "val"


def test_a_lower_error_is_better(tmp_path: Path) -> None:
    for name, method, level in (("one", "mlp", 3.0), ("other", "gcn", 2.0)):
        for seed in range(4):
            write_run(tmp_path / f"{name}-{seed}", method, seed, level + 0.1 * (seed % 3), metric="rmse")
    found = compare_runs([tmp_path / f"{name}-{seed}" for name in ("one", "other") for seed in range(4)])
    assert found.verdicts() == ["no difference"]
    write_run(tmp_path / "one-4", "mlp", 4, 3.2, metric="rmse")
    write_run(tmp_path / "other-4", "gcn", 4, 2.3, metric="rmse")
    found = compare_runs([tmp_path / f"{name}-{seed}" for name in ("one", "other") for seed in range(5)])
    assert found.verdicts() == ["better"]
