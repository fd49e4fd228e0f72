"""What the tests of the command line share."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Arrays = dict[str, Any]
KEYS = {"method", "dataset", "seed", "metric", "val", "test", "epochs", "best_epoch", "seconds_per_epoch"}
KEYS |= {"seconds", "eval_seconds", "peak_memory_mib", "run"}
QUICK = ("--set", "epochs=2", "--set", "hidden_channels=4", "--device", "cpu")


@dataclass(frozen=True)
class Done:
    status: object
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The last line on stdout."""
        parsed: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return parsed


Command = Callable[..., Done]


def assert_one_line(done: Done, message: str) -> None:
    assert done.status == 2
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
