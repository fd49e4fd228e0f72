"""Trains configurations with several ranks, each as a command that `torchrun` starts, several at a time."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event

from experiments.grid import Result, remember, stored_runs
from lazygnn.config import Config
from lazygnn.errors import RankError
from lazygnn.graph import Graph
from lazygnn.methods import resolve
from lazygnn.run.folder import Run

# seconds: the longest run, the time that ranks have to end, and between two looks at them
TIMEOUT, GRACE, PERIOD = 3600.0, 60.0, 0.2
_SHOWN_LINES = 10


def run_ranks(name: str, wanted: Sequence[tuple[Config, Graph]], ranks: int, workers: int) -> list[Result]:
    """Trains the configurations without a result in `<name>.jsonl` and returns the results of all.

    The first run that fails ends the others.

    Args:
        name: Of the store.
        wanted: Configurations from `for_ranks`, each with its graph.
        ranks: Number of ranks of every run.
        workers: Runs at a time.
    """
    configs = [config for config, _ in wanted]
    missing = [pair for pair, line in zip(wanted, stored_runs(name, configs), strict=True) if line is None]
    print(f"{len(configs) - len(missing)} of {len(configs)} runs are stored; {len(missing)} to train", flush=True)
    stop = Event()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(workers) as pool:
        futures = {
            pool.submit(train, arguments(config, graph), Path(scratch) / str(number), ranks, stop): config
            for number, (config, graph) in enumerate(missing)
        }
        try:
            for future in as_completed(futures):
                remember(name, futures[future], future.result)
        except BaseException:
            # each thread ends its own ranks
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [line for line in stored_runs(name, configs) if line is not None]


def arguments(config: Config, graph: Graph) -> list[str]:
    """Returns the arguments of `lazygnn` that train exactly this configuration, whatever the recipe of the graph."""
    usual = resolve(config.method, config.dataset, graph=graph).model
    # an option without effect may come from a rule, but not from a user
    model = {option: value for option, value in config.model if value != getattr(usual, option)}
    values = config.trainer.model_dump() | model
    given = ["none" if value is None else json.dumps(value) for value in values.values()]
    options = [f"--set={option}={value}" for option, value in zip(values, given, strict=True)]
    place = ["--seed", str(config.seed), "--device", config.device]
    place += [] if config.root is None else ["--root", config.root]
    return ["train", config.method, config.dataset, *options, *place, "--quiet"]


def train(words: Sequence[str], folder: Path, ranks: int, stop: Event) -> Result:
    """Runs `lazygnn` with several ranks and returns the result of the run.

    Args:
        words: From `arguments`.
        folder: Where the run and its messages are written.
        ranks: Number of ranks.
        stop: Ends the run early.

    Raises:
        RankError: The run has failed; the message has the reason that it gave, or its last lines.
    """
    folder.mkdir()
    launch(ranks, [*words, "--out", str(folder / "run")], folder, stop)
    result = Run.open(folder / "run").result()
    del result["run"]
    return result


def launch(ranks: int, words: Sequence[str], folder: Path, stop: Event) -> None:
    """Starts ranks and waits for them; their messages are in `messages.txt` of the folder."""
    starter = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m", "lazygnn"]
    messages, deadline = folder / "messages.txt", time.monotonic() + TIMEOUT
    with (
        messages.open("wb") as file,
        subprocess.Popen([sys.executable, "-m", *starter, *words], stdout=subprocess.DEVNULL, stderr=file) as process,
    ):
        late = False
        while process.poll() is None and not late:
            late = stop.wait(PERIOD) or time.monotonic() > deadline
        if late:
            # `torchrun` ends the ranks
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
    about = f"{ranks} ranks that train `{words[1]}` on `{words[2]}`"
    if late:
        raise RankError(f"{about} did not end within {TIMEOUT:.0f} seconds; train fewer epochs with `--epochs`")
    if process.returncode != 0:
        raise RankError(f"{about} have failed: {_reason(messages.read_text(errors='replace'))}")


def _reason(messages: str) -> str:
    """Returns the error that `lazygnn` has reported, or the last lines of all messages."""
    lines = messages.splitlines()
    told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return told[0] if told else "\n".join(lines[-_SHOWN_LINES:])
