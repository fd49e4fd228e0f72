"""Commands about data."""

from pathlib import Path

from tests.cli.helpers import Command, assert_one_line


def test_list_shows_methods_or_the_options_of_one(lazygnn: Command) -> None:
    assert "graphsage" in lazygnn("list").out
    done = lazygnn("list", "lazygnn", "cora")
    assert done.status == 0
    assert "lazygnn, recipe for cora" in done.out
    assert "checkpoint_minutes" not in done.out
    assert "checkpoint_minutes" in lazygnn("list", "lazygnn", "cora", "--all").out
    assert_one_line(lazygnn("list", "lazygnn", "nosuch.npz"), "no file `nosuch.npz`; give the path of an .npz file or ")


def test_prepare_prints_json_on_stdout_and_a_sentence_on_stderr(lazygnn: Command, dataset: Path) -> None:
    done = lazygnn("prepare", dataset, "--num-parts", 4, "--partition", "random", "--num-layers", 3)
    assert done.status == 0
    assert (done.result["num_parts"], done.result["num_layers"]) == (4, 3)
    (words,) = done.err.splitlines()
    assert words.startswith(f"60 nodes, {done.result['edges']} edges, in 4 parts")
