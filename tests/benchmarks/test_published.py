"""Tables of the docs from result files."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.published import Results, epoch_cpu, epoch_deep, epoch_profile, history
from lazygnn.errors import ConfigError
from tests.benchmarks.helpers import invoke

CONTENDERS = ("ours-full", "ours", "appnp", "appnp-pyg-csr", "appnp-pyg-edge_index")


def write(path: Path, commit: str, rows: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"commit": commit, "machine": "some", "rows": rows}))
    return path


def row(name: str, seconds: float, status: str = "ok") -> dict[str, Any]:
    times = [seconds, 2 * seconds, seconds / 2]
    return {"contender": name, "status": status, "seconds": seconds, "all_seconds": times}


def test_the_first_file_with_a_row_counts_and_ratios_stay_within_a_file(tmp_path: Path) -> None:
    new = write(tmp_path / "new.json", "b", [row("ours", 1.0), row("appnp-pyg-csr", 4.0)])
    old = write(tmp_path / "old.json", "a", [row("ours", 3.0), row("appnp", 6.0), row("appnp-pyg-csr", 8.0)])
    results = Results([new, old])
    assert results.cell("seconds", {"contender": "ours"}) == {
        "value": 1.0,
        "sources": [0],
        "lowest": 0.5,
        "highest": 2.0,
        "repeats": 3,
    }
    assert results.ratio("seconds", {"contender": "appnp"}, {"contender": "ours"}) == {"value": 2.0, "sources": [1]}
    # the first file has one of these rows alone
    assert results.ratio("seconds", {"contender": "ours"}, {"contender": "appnp"}) == {"value": 0.5, "sources": [1]}
    with pytest.raises(
        ConfigError, match=r"^no result with .*'ours'.* and one with .*'gas'.*; give a file that has them"
    ):
        results.ratio("seconds", {"contender": "ours"}, {"contender": "gas"})
    assert results.sources.found == [{"commit": "b", "machine": "some"}, {"commit": "a", "machine": "some"}]


def test_a_wrong_result_has_no_value(tmp_path: Path) -> None:
    results = Results([write(tmp_path / "a.json", "a", [row("ours", 1.0, "wrong")])])
    assert results.cell("seconds", {"contender": "ours"})["value"] is None


def test_a_table_has_a_row_for_every_contender(tmp_path: Path) -> None:
    rows = [row(name, float(number)) for number, name in enumerate(CONTENDERS, 1)]
    page = epoch_cpu(Results([write(tmp_path / "a.json", "a", rows)])).markdown().splitlines()
    assert len(page) == 2 + len(CONTENDERS)
    assert page[-1] == "| APPNP, 10 steps, PyG, edge_index | 5.00 | 1.25 | 1.00 |"


def test_the_deep_model_is_compared_with_layered_ones_and_profiled(tmp_path: Path) -> None:
    names = ("deep", "deep-host-narrow", "gcnii-gas-our-kernels", "gcn-gas-our-kernels")
    memory = {"step peak MiB": 100.0, "resident MiB": 2000.0}
    rows = [row(name, 1.0 / number) | memory for number, name in enumerate(names, 1)]
    for each in rows:
        each["profile"] = {"dense products": 3.0}
    rows[0]["profile"] |= {"optimizer": 1.0}
    file = write(tmp_path / "a.json", "a", rows)
    page = epoch_deep(Results([file])).markdown().splitlines()
    assert page[-1] == "| GCN (GAS), 4 layers | 0.250 | 4.00 | 100 | 2,000 |"
    assert epoch_profile(Results([file])).markdown().splitlines()[2:] == [
        "| dense products | 3 | 3 | 3 | 3 |",
        "| optimizer | 1 |  |  |  |",
    ]


def test_a_missing_row_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^no result with .*'tier': 'device'.*; give a file that has them"):
        history(Results([write(tmp_path / "a.json", "a", [])]))


def test_an_unknown_table_is_one_line_and_a_status(tmp_path: Path) -> None:
    done = invoke("summarize", "speed", write(tmp_path / "a.json", "a", []))
    assert done.exit_code == 2
    assert done.stderr.startswith("error: unknown table `speed`; choose one of: step, propagation")
