"""The command line as a shell calls it: in this process, which is faster, and once as a separate program."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lazygnn.graph import Graph
from lazygnn.version import VERSION
from tests.cli.helpers import KEYS, QUICK, Arrays, Command, assert_one_line


def test_version(lazygnn: Command) -> None:
    done = lazygnn("--version")
    assert (done.status, done.out, done.err) == (0, f"lazygnn {VERSION}\n", "")


def test_an_interrupt_while_the_command_loads_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Impatient:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "lazygnn.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "lazygnn.cli")
    monkeypatch.setattr(sys, "meta_path", [Impatient, *sys.meta_path])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("lazygnn", run_name="__main__")
    assert stop.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_no_arguments_show_the_help(lazygnn: Command) -> None:
    done = lazygnn()
    assert "train" in done.out + done.err
    assert lazygnn("--help").status == 0
    assert lazygnn("train", "-h").status == 0


def test_as_a_separate_program(tmp_path: Path, block_arrays: Arrays) -> None:
    one_way = block_arrays["edge_index"][:, block_arrays["edge_index"][0] < block_arrays["edge_index"][1]]
    np.savez(tmp_path / "block.npz", **block_arrays | {"edge_index": one_way})
    call = [sys.executable, "-m", "lazygnn", "train", "lazygnn", "block.npz", *QUICK, "--quiet"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout).keys() == KEYS
    # two epochs may well predict one class alone
    told = [line for line in done.stderr.splitlines() if "predictions are nearly constant" not in line]
    # one-way edges are made undirected without a warning
    (line,) = told
    assert line.startswith("WARNING: `epochs` is 2, but the rule takes 300 for this graph")
    assert (tmp_path / "runs" / "block-lazygnn-0" / "result.json").is_file()


def test_an_unknown_flag_is_an_error_of_the_command(lazygnn: Command) -> None:
    done = lazygnn("train", "lazygnn", "block.npz", "--sed", 3)
    assert done.status == 2
    assert "No such option: --sed" in done.err
    assert "--set sed" not in done.err


def test_a_table_in_a_file_of_options_is_one_line(lazygnn: Command, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text("[model]\nalpha = 0.2\n")
    done = lazygnn("train", "lazygnn", dataset, "--config", "options.toml")
    assert_one_line(done, "`options.toml` has a table `model`; a file of options has no tables: remove the line")


def test_an_invalid_graph_is_one_line(lazygnn: Command, tmp_path: Path, block_arrays: Arrays) -> None:
    np.savez(tmp_path / "block.npz", **block_arrays | {"x": np.full((60, 3), np.nan)})
    assert_one_line(
        lazygnn("train", "mlp", "block.npz"),
        "block.npz: `x` holds nan in columns 0, 1, 2 (180 such values); replace or",
    )


def test_a_diverging_run_is_one_line(lazygnn: Command, dataset: Path) -> None:
    done = lazygnn("train", "mlp", dataset, "--set", "lr=1e30", "--set", "epochs=20", "--quiet", "--device", "cpu")
    assert_one_line(done, "lower `lr` or set `clip_norm`")


def test_unknown_kernels_are_refused(lazygnn: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "fast")
    assert_one_line(lazygnn("doctor"), "`LAZYGNN_KERNELS` must be `auto` or `reference`, got `fast`")


@pytest.mark.parametrize("place", ["before", "after"])
def test_no_verify_skips_the_checksums(lazygnn: Command, path_graph: Graph, tmp_path: Path, place: str) -> None:
    path_graph.save(tmp_path / "graph")
    file = tmp_path / "graph" / "x.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    prepare = ("prepare", "graph", "--num-parts", "2", "--partition", "random")
    assert_one_line(lazygnn(*prepare), "x.npy` is damaged: its checksum is")
    args = ("--no-verify", *prepare) if place == "before" else (*prepare, "--no-verify")
    assert lazygnn(*args).status == 0
    # for one call alone
    assert lazygnn(*prepare).status == 2
