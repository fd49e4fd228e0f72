"""Errors of the command line."""

from pathlib import Path

import pytest

from tests.benchmarks.helpers import invoke


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["step", "--shape", "huge"], "unknown shape `huge`; choose one of: products, arxiv, reddit, flickr"),
        (["step", "--shape", "tiny", "--only", "dgl"], "unknown contender `dgl`; choose one of: ours, ours-narrow"),
        (["epoch", "--shape", "tiny", "--only", "ours,dgl"], "unknown contender `dgl`; choose one of: ours-full, ours"),
        (["fit", "--only", "gcn"], "unknown method `gcn`; choose one of: appnp, lazygnn"),
        (["sampling", "--shape", "tiny", "--only", "dgl"], "unknown sampler `dgl`; choose one of: fastgcn, ladies"),
        (["scaling", "--shape", "tiny", "--only", "time"], "unknown axis `time`; choose one of: nodes, edges"),
        (["scaling", "--shape", "tiny", "--contender", "dgl"], "unknown contender `dgl`"),
        (["history", "--shape", "tiny", "--device", "tpu"], "unknown device `tpu`; choose auto, cpu or cuda"),
    ],
)
def test_unknown_names_are_one_line_and_a_status(words: list[str], message: str) -> None:
    outcome = invoke(*words)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith(f"error: {message}")
    assert outcome.stderr.count("\n") == 1


def test_results_that_cannot_be_written_are_rejected_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in ("file", "file/folder"):
        done = invoke("epoch", "--shape", "tiny", "--device", "cpu", "--only", "ours", "--out", str(tmp_path / out))
        assert done.exit_code == 2
        assert "give a folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
