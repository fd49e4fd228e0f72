import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from lazygnn import commands
from lazygnn.cli import main
from lazygnn.commands.importing import import_graph, parse_ratio
from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.errors import ConfigError, GraphError
from tests.tables.helpers import EDGES, NODES, write

Configure = Callable[..., Config]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, NODES), write(tmp_path, EDGES, "edges.csv")


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> object:
    monkeypatch.setattr(sys, "argv", ["lazygnn", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


@pytest.mark.parametrize("out", ["mine", "mine.npz"])
def test_tables_become_a_graph_on_disk(tables: tuple[Path, Path], out: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = import_graph(*tables, Path(out), {"ratio": (50, 25, 25)})
    graph = load_graph(out)
    assert facts == facts | {"graph": out, "dry_run": False, "nodes": 5, "edges": 2, "train": 2}
    assert (graph.name, graph.num_nodes, graph.in_channels) == ("mine", 5, 5)
    assert graph.schema is not None
    said = capsys.readouterr().err
    assert "- 5 nodes from" in said
    assert f"wrote {out}" in said


def test_a_dry_run_says_the_same_and_writes_nothing(
    tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    facts = import_graph(*tables, None, {}, dry_run=True)
    assert (facts["graph"], facts["dry_run"], facts["nodes"]) == (None, True, 5)
    assert "- 2 classes from label" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(ConfigError, match=r"give the graph to write with `--out`, or `--dry-run` to write nothing"):
        import_graph(*tables, None, {})


def test_a_terminal_shows_bars(tables: tuple[Path, Path], tmp_path: Path) -> None:
    with (tmp_path / "screen").open("w+") as screen:
        console = Console(file=screen, force_terminal=True, width=100)
        import_graph(*tables, None, {}, dry_run=True, console=console)
        screen.seek(0)
        shown = screen.read()
    assert "reading nodes.csv" in shown
    assert "reading edges.csv" in shown
    assert "100%" in shown


def test_every_option_arrives(
    tables: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {}

    def capture(nodes: Path, edges: Path, out: Path | None, values: dict[str, Any], **rest: Any) -> dict[str, Any]:
        given.update(nodes=nodes, edges=edges, out=out, **values, **rest)
        return {}

    monkeypatch.setattr("lazygnn.commands.import_graph", capture)
    words = (
        "--out o --id i --label l --label m --source s --target t --weight w --features f --ignore g --categorical c "
    )
    words += "--numeric n --task regression --split random --ratio 70/10/20 --split-column p --split-time q --seed 3 "
    words += "--structural --drop-unknown --max-categories 7 --like k --dry-run"
    assert call(monkeypatch, "import", "a.csv", "b.csv", *words.split()) in (0, None)
    assert given == {
        "nodes": Path("a.csv"),
        "edges": Path("b.csv"),
        "out": Path("o"),
        "id": "i",
        "label": ["l", "m"],
        "source": "s",
        "target": "t",
        "weight": "w",
        "features": ["f"],
        "ignore": ["g"],
        "categorical": ["c"],
        "numeric": ["n"],
        "task": "regression",
        "split": "random",
        "ratio": (70, 10, 20),
        "split_column": "p",
        "split_time": "q",
        "seed": 3,
        "structural": True,
        "drop_unknown": True,
        "max_categories": 7,
        "like": "k",
        "dry_run": True,
    }


def test_the_command_prints_numbers_or_one_line_of_error(
    tables: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "import", *tables, "--out", "mine") in (0, None)
    assert json.loads(capsys.readouterr().out)["nodes"] == 5
    assert call(monkeypatch, "import", *tables, "--out", "mine", "--id", "age") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "line 3, column `age`: the id is missing" in error
    assert call(monkeypatch, "train", "lazygnn", "edges.csv") == 2
    assert "`edges.csv` is a table, not a graph; import a table" in capsys.readouterr().err


def test_an_earlier_graph_gives_the_encoding(tables: tuple[Path, Path], path_graph: Any) -> None:
    import_graph(*tables, Path("mine"), {})
    import_graph(*tables, Path("again"), {}, like="mine")
    first, again = load_graph("mine"), load_graph("again")
    assert first.schema is not None
    assert again.schema == first.schema.model_copy(update={"split": "as in the earlier graph"})
    assert all(torch.equal(again.masks[split], first.masks[split]) for split in first.masks)
    path_graph.save("plain")
    with pytest.raises(
        GraphError, match=r"graph `plain` has no schema, since it was not imported from tables; give one"
    ):
        import_graph(*tables, Path("other"), {}, like="plain")


def test_shares_are_numbers() -> None:
    assert parse_ratio("0.5/0.25/0.25") == (0.5, 0.25, 0.25)
    for text in ("half", "60/20", "60/20/10/10", "60/x/20"):
        with pytest.raises(ConfigError, match=rf"`--ratio` is `{text}`; give three shares, such as 60/20/20"):
            parse_ratio(text)


def test_without_arrow_the_extra_is_named(tables: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    with pytest.raises(ConfigError, match=r"tables need `pyarrow`; install `lazygnn\[tables\]`"):
        import_graph(*tables, Path("mine"), {})


def test_new_rows_are_predicted_with_the_graph_of_the_run(
    tables: tuple[Path, Path], tmp_path: Path, configure: Configure
) -> None:
    import_graph(*tables, Path("mine"), {"ratio": (50, 25, 25)})
    commands.train(configure("mine"), tmp_path / "run", quiet=True)
    nodes = write(tmp_path, "id,plan,age\nx,pro,50\ny,basic,\n", "new.csv")
    edges = write(tmp_path, "source,target\nx,a\ny,x\n", "new_edges.csv")
    logits, graph, trained_on = commands.predict_run(tmp_path / "run", nodes=nodes, edges=edges, device="cpu")
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["x", "y"]
    assert (graph.num_nodes, trained_on.num_nodes) == (2, 5)
    # the same rows within a whole graph, encoded like the first
    everything = write(tmp_path, NODES + "x,50,pro,\ny,,basic,\n", "all.csv")
    import_graph(everything, write(tmp_path, EDGES + "x,a\ny,x\n", "all_edges.csv"), Path("all"), {}, like="mine")
    whole, _, _ = commands.predict_run(tmp_path / "run", Path("all"), device="cpu")
    torch.testing.assert_close(logits, whole[5:])
    with pytest.raises(ConfigError, match=r"`--edges` are edges of new nodes; give these with `--nodes`"):
        commands.predict_run(tmp_path / "run", edges=edges)
    with pytest.raises(ConfigError, match=r"`--drop-unknown` has no effect without `--edges`; omit it"):
        commands.predict_run(tmp_path / "run", nodes=nodes, drop_unknown=True)
    with pytest.raises(ConfigError, match=r"`--nodes` adds to the graph of the run, so that `--graph` has no effect"):
        commands.predict_run(tmp_path / "run", Path("all"), nodes=nodes)
