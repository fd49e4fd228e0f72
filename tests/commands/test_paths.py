"""Paths of the commands may be text or `Path`; other types are refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from lazygnn import commands, load_run
from lazygnn.commands.comparison import compare_runs
from lazygnn.commands.embedding import write_embeddings
from lazygnn.commands.exporting import export_run
from lazygnn.commands.paths import as_optional_path, as_path, as_paths
from lazygnn.commands.prediction import write_predictions
from lazygnn.commands.reporting import show_report, write_page
from lazygnn.commands.show import show_run
from lazygnn.config import Config
from lazygnn.errors import ConfigError


def test_paths_are_made_of_text() -> None:
    assert as_path("a/b", "out") == as_path(Path("a/b"), "out") == Path("a/b")
    assert as_optional_path(None, "out") is None
    assert as_paths("a", "paths") == as_paths(["a"], "paths") == as_paths([Path("a")], "paths") == [Path("a")]
    wrong: Any = 3
    with pytest.raises(ConfigError, match=r"`out` is 3, of type int; give a path"):
        as_optional_path(wrong, "out")
    with pytest.raises(ConfigError, match=r"`paths` is 3, of type int; give a list of paths"):
        as_paths(wrong, "paths")
    with pytest.raises(ConfigError, match=r"`path` is None, of type NoneType; give a path"):
        load_run(None)  # type: ignore[arg-type]


def test_every_command_takes_text(
    dataset: Path, tmp_path: Path, configure: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Path] = []
    monkeypatch.setattr("lazygnn.commands.comparison.plot_comparison", lambda _, path: drawn.append(path))
    config = configure(dataset, "mlp", epochs=1)
    commands.train(config, "run", quiet=True)
    commands.train_seeds(config, 2, "seeds", quiet=True)
    commands.resume_seeds("seeds", quiet=True)
    commands.resume("run", epochs=2, quiet=True)
    commands.fine_tune("run", {"epochs": 1}, "tuned", quiet=True)
    commands.evaluate_run("run", graph_file=str(dataset), device="cpu")
    commands.predict_run("run", str(dataset), device="cpu")
    commands.prepare(str(dataset), 2, "random", 1, out="folder")
    write_predictions("run", "rows.csv", str(dataset), device="cpu")
    write_embeddings("run", "rows.npy", str(dataset), device="cpu")
    export_run("run", "exported")
    compare_runs(["run", "tuned"], picture="curves.png")
    write_page("run", "page.html", device="cpu")
    show_run("run", Console(quiet=True))
    written = ("rows.csv", "rows.npy", "exported/model.py", "page.html", "folder/graph.json")
    assert drawn == [Path("curves.png")]
    assert all((tmp_path / name).is_file() for name in written)
    # the rest takes text until it finds that something is missing
    with pytest.raises(RuntimeError, match=r"`lazygnn evaluate run --report`"):
        show_report("run", Console(quiet=True))
    with pytest.raises(RuntimeError, match=r"study.json"):
        commands.resume_tuning("run")
    (tmp_path / "nodes.csv").write_text("id,size\na,1\nb,2\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    assert commands.import_graph("nodes.csv", "edges.csv", "tables.npz", {}, console=Console(quiet=True))["nodes"] == 2
    assert np.load("tables.npz")["x"].shape == (2, 1)
