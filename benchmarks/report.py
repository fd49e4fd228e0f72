"""Results of a benchmark as JSON and Markdown, with their provenance."""

import json
import statistics
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from common.measure import settle
from common.provenance import provenance
from common.summary import markdown_table
from lazygnn.errors import ConfigError

# not tracked by git
RESULTS = Path(__file__).parents[1] / "runs" / "benchmarks"
OK, WRONG, OUT_OF_MEMORY, FAILED = "ok", "wrong", "out of memory", "failed"

Row = dict[str, Any]
T = TypeVar("T")


@dataclass
class Report:
    """The rows of one benchmark on one device; `run` measures and stores a row, `write` returns the file.

    Attributes:
        name: Benchmark and shape.
        keys: Fields that identify a row.
        times: Fields that are removed if the result is wrong.
        columns: Titles and fields of the columns of the table.
        facts: Descriptions that apply to all rows.
    """

    name: str
    device: torch.device
    keys: Sequence[str]
    times: Sequence[str]
    columns: Mapping[str, str]
    folder: Path = RESULTS
    facts: Row = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def run(self, key: Row, measure: Callable[[], Row]) -> Row:
        """Measures one row; out of memory is a result, and an error does not prevent the other measurements."""
        settle(self.device)
        try:
            row = key | {"status": OK} | measure()
        except torch.OutOfMemoryError:
            row = key | {"status": OUT_OF_MEMORY}
        except Exception as error:
            traceback.print_exc()
            row = key | {"status": FAILED, "reason": f"{type(error).__name__}: {error}"}
        if row["status"] != OK:
            row |= dict.fromkeys(self.times)
        self.rows.append(row)
        # a later measurement may be interrupted
        self._store()
        print(", ".join(f"{name} {_show(row.get(name))}" for name in (*self.keys, *self.times, "status")), flush=True)
        return row

    def write(self) -> Path:
        """Writes `<name>-<device>-<date>.json` and `.md`; rows of the same commit and machine are merged."""
        path = self._store()
        print(f"wrote {path} and {path.with_suffix('.md').name}")
        return path

    def _store(self) -> Path:
        made_by = provenance()
        path = self.folder / f"{self.name}-{device_name(self.device)}-{made_by['date']}.json"
        head = {"benchmark": self.name, **made_by, "facts": self.facts}
        rows = {self._key(row): row for row in [*_known(path, made_by), *self.rows]}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(head | {"rows": list(rows.values())}, indent=1) + "\n")
        path.with_suffix(".md").write_text(self._page(head, list(rows.values())))
        return path

    def failed(self) -> bool:
        """Returns whether a result is wrong or missing."""
        return any(row["status"] in (WRONG, FAILED) for row in self.rows)

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.keys)

    def _page(self, head: Row, rows: Sequence[Row]) -> str:
        about = [f"{name}: {head[name]}" for name in head if name not in ("benchmark", "facts")]
        facts = [f"- {name}: {_show(value)}" for name, value in self.facts.items()]
        cells = [[_show(row.get(name)) for name in self.columns.values()] for row in rows]
        table = markdown_table(list(self.columns), cells)
        return "\n".join([f"# {self.name}", "", " · ".join(about), "", *facts, "", table, ""])


def choose(names: Sequence[str], known: Mapping[str, T], kind: str) -> dict[str, T]:
    """Returns the values of `names`, or all if there are no names."""
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown {kind} `{name}`; choose one of: {', '.join(known)}")
    return {name: known[name] for name in names} or dict(known)


def verdict(**claims: bool) -> Row:
    """Returns the status of a row: ok, or wrong with the claims that do not hold."""
    broken = [name.replace("_", " ") for name, holds in claims.items() if not holds]
    return {"status": WRONG, "reason": f"fails: {', '.join(broken)}"} if broken else {"status": OK}


def median(seconds: Sequence[float]) -> Row:
    """Returns the median and all repetitions."""
    return {"seconds": statistics.median(seconds), "all_seconds": list(seconds)}


def device_name(device: torch.device) -> str:
    """Returns `cpu`, or the last word of the name of a GPU, such as `h200`."""
    return torch.cuda.get_device_name(device).split()[-1].lower() if device.type == "cuda" else "cpu"


def _known(path: Path, made_by: Mapping[str, str]) -> list[Row]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return []
    same = all(content.get(name) == value for name, value in made_by.items())
    if not same:
        sys.stderr.write(f"{path.name} was made by another commit or machine and is replaced\n")
    return list(content["rows"]) if same else []


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return "-" if value is None else f"{value}"
