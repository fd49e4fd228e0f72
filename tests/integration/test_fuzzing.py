"""Thousands of drawn graphs, configurations, tables and run folders: each gives a result or an error of the library.

`make soak` draws a hundred thousand of them and prints what became of them.
"""

import logging
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn import commands, resolve
from lazygnn.errors import CheckpointError, ConfigError, GraphError
from tests.fuzzing.configurations import fuzz_assignment, fuzz_configuration
from tests.fuzzing.graphs import fuzz_graph
from tests.fuzzing.run_folders import fuzz_run_folder
from tests.fuzzing.tables import fuzz_table

Fuzz = Callable[[random.Random], None]
# cases in the suite, and those in `make soak`
COUNTS = {
    "graphs": (2500, 50_000),
    "configurations": (1200, 20_000),
    "assignments": (700, 15_000),
    "tables": (300, 7500),
    "run folders": (300, 7500),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, module_arrays: dict[str, Any]) -> Path:
    """A run with checkpoint, log and weights."""
    folder = tmp_path_factory.mktemp("fuzzed")
    np.savez(folder / "block.npz", **module_arrays)
    config = resolve("lazygnn", folder / "block.npz", {"epochs": 2, "hidden_channels": 4}, device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lazygnn.commands.conclusion.plot_curves", lambda *_: None)
        commands.train(config, folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Keeps the warnings about drawn input out of the log of a failed test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def fuzzers(run: Path, tmp_path: Path) -> dict[str, Fuzz]:
    return {
        "graphs": fuzz_graph,
        "configurations": fuzz_configuration,
        "assignments": fuzz_assignment,
        "tables": fuzz_table,
        "run folders": lambda rng: fuzz_run_folder(rng, run, tmp_path / "copy"),
    }


def outcomes(fuzz: Fuzz, seeds: range) -> Counter[str]:
    """Counts results and the errors of the library; fails with the first few seeds of anything else."""
    found: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in seeds:
        try:
            fuzz(random.Random(seed))
            found["result"] += 1
        except (GraphError, ConfigError, CheckpointError) as error:
            found[type(error).__name__] += 1
        except Exception:
            wrong.append(f"seed {seed}: {traceback.format_exc(limit=-3)}")
    assert not wrong, f"{len(wrong)} of {len(seeds)}:\n" + "\n".join(wrong[:5])
    return found


@pytest.mark.parametrize("kind", COUNTS)
def test_drawn_input_gives_a_result_or_an_error_of_the_library(kind: str, fuzzers: dict[str, Fuzz]) -> None:
    found = outcomes(fuzzers[kind], range(COUNTS[kind][0]))
    # the draws are neither all sound nor all wrong
    assert found["result"] > 0.05 * found.total()
    assert found["result"] < 0.95 * found.total()


@pytest.mark.soak
@pytest.mark.parametrize("kind", COUNTS)
def test_a_hundred_thousand_draws(kind: str, fuzzers: dict[str, Fuzz], capsys: pytest.CaptureFixture[str]) -> None:
    seeds = range(10**6, 10**6 + COUNTS[kind][1])
    found = outcomes(fuzzers[kind], seeds)
    with capsys.disabled():
        print(f"\n{len(seeds):,} {kind} from seed {seeds.start:,} on: {dict(found)}")  # noqa: T201
