"""Time and memory of a partition: `lazygnn prepare` on folders, and the same constants at the size of papers100M."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from common.provenance import provenance
from common.summary import Cell, Column, Row, Summary
from experiments.scale_out import PAPERS
from lazygnn.data.folder import load_folder

_GB, _PERIOD = 1e9, 0.1


@dataclass(frozen=True)
class Measured:
    """One run of `lazygnn prepare`.

    Attributes:
        engine: Package and version that found the parts.
        num_parts: Number of parts.
        entries: Stored entries of the graph.
        cut: Share of the edges between parts, if it was measured.
        seconds: Time of the processor, with reading the graph and measuring the halos.
        resident: Most bytes of resident memory, of all processes together, with mapped pages of files.
    """

    engine: str
    num_parts: int
    entries: int
    cut: float | None
    seconds: float
    resident: int


def main(folders: list[Path], engines: list[str], parts: list[int]) -> Summary:
    """Returns a table with a row for every folder, engine and number of parts, and one of arithmetic for each last."""
    rows, source = [], [0]
    for engine in engines:
        measured = []
        for folder in folders:
            for number in parts:
                measured.append(prepare(folder, engine, number))
                rows.append(_row(folder.name, measured[-1], source))
        rows.append(_row("papers100M, by these constants", at_papers100m(measured), source))
    return Summary(
        origin=f"python -m experiments partition-memory {' '.join(folder.name for folder in folders)}",
        label="graph",
        columns=[
            Column(title="engine", format="{text}"),
            Column(title="parts", format="{value}"),
            Column(title="stored entries, millions", format="{value:,.0f}"),
            Column(title="cut", format="{value:.3f}"),
            Column(title="minutes of one core", format="{value:.1f}"),
            Column(title="resident, GB", format="{value:.1f}"),
            Column(title="bytes per entry", format="{value:.0f}"),
        ],
        rows=rows,
        sources=[provenance()],
    )


def at_papers100m(measured: list[Measured]) -> Measured:
    """Returns what the costliest of these runs would take on papers100M, in proportion to the entries."""
    worst = max(measured, key=lambda one: one.resident / one.entries)
    times = PAPERS.entries / worst.entries
    seconds, resident = worst.seconds * times, round(worst.resident * times)
    return Measured(worst.engine, worst.num_parts, PAPERS.entries, None, seconds, resident)


def prepare(folder: Path, engine: str, num_parts: int) -> Measured:
    """Runs `lazygnn prepare` without a cache and watches its memory."""
    words = ["prepare", str(folder), "--num-parts", str(num_parts), "--partition", engine, "--num-layers", "1"]
    with tempfile.TemporaryDirectory(dir=folder.absolute().parent) as cache:
        before = _seconds()
        printed, resident = watch([sys.executable, "-m", "lazygnn", *words], {"LAZYGNN_CACHE": cache})
    found, seconds = json.loads(printed), _seconds() - before
    entries = len(load_folder(folder).adj.col)
    return Measured(found["partition_engine"], num_parts, entries, found["edge_cut"], seconds, resident)


def watch(words: list[str], environment: dict[str, str]) -> tuple[str, int]:
    """Runs a command; returns what it prints, and the most resident bytes of its processes together."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | environment
    ) as running:
        resident = 0
        while running.poll() is None:
            resident = max(resident, sum(map(_resident, _family(running.pid))))
            time.sleep(_PERIOD)
        assert running.stdout is not None
        printed = running.stdout.read()
    if running.returncode != 0:
        raise RuntimeError(f"`{' '.join(words)}` has ended with status {running.returncode}")
    return printed, resident


def _seconds() -> float:
    """Returns the time of the processor that ended processes have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _family(number: int) -> list[int]:
    """Returns a process and those that it has started."""
    found = [number]
    try:
        for task in Path(f"/proc/{number}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _family(int(child))
    except OSError:
        # it has just ended
        pass
    return found


def _resident(number: int) -> int:
    try:
        return int(Path(f"/proc/{number}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _row(name: str, found: Measured, source: list[int]) -> Row:
    cells: list[Cell | None] = [
        {"text": found.engine, "sources": source},
        {"value": found.num_parts, "sources": source},
        {"value": found.entries / 1e6, "sources": source},
        {"value": found.cut, "sources": source},
        {"value": found.seconds / 60, "sources": source},
        {"value": found.resident / _GB, "sources": source},
        {"value": found.resident / found.entries, "sources": source},
    ]
    return Row(label=name, cells=cells)
