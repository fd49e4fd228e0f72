"""Run folders with damaged, missing and foreign files, which every command must read or refuse."""

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from lazygnn import load_run
from lazygnn.commands.comparison import compare_runs
from lazygnn.commands.show import show_run
from lazygnn.methods import read_config
from lazygnn.run.folder import Run

VALUES: tuple[Any, ...] = (None, 0, -1, 10**30, 0.5, True, "", "text", [], {}, [1], {"a": 1}, "\ud800", 1e308)
TEXTS = (b"", b"{", b"[]", b"null", b"\x00", b"[" * 5000, b'{"a":' * 500, b"9" * 5000, b"\xff\xfe", b'{"a": NaN}')


def fuzz_run_folder(rng: random.Random, run: Path, scratch: Path) -> None:
    """Damages one or two files of a copy of a run, and reads it in one of several ways.

    Args:
        rng: Source of all choices.
        run: The run.
        scratch: The copy, which is replaced.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(run, scratch)
    for _ in range(rng.choice((1, 1, 2))):
        _damage(rng, rng.choice(sorted(path for path in scratch.rglob("*") if path.is_file())))
    _use(rng, scratch)


def _damage(rng: random.Random, file: Path) -> None:
    content = file.read_bytes()
    kind = rng.randrange(6)
    if kind == 0:
        file.unlink()
    elif kind == 1:
        file.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif kind == 2:
        file.write_bytes(rng.choice(TEXTS))
    elif kind == 3 and file.suffix == ".json":
        with suppress(ValueError):
            file.write_text(json.dumps(_changed(rng, json.loads(content))))
    elif kind == 4:
        file.unlink()
        file.mkdir()
    elif content:
        changed = bytearray(content)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        file.write_bytes(changed)


def _changed(rng: random.Random, content: Any) -> Any:
    """Replaces a value somewhere in parsed JSON, or removes it."""
    if not isinstance(content, dict) or not content or rng.random() < 0.1:
        return rng.choice(VALUES)
    key = rng.choice(sorted(content))
    if rng.random() < 0.2:
        return {name: value for name, value in content.items() if name != key}
    return content | {key: _changed(rng, content[key])}


def _use(rng: random.Random, path: Path) -> None:
    way = rng.randrange(6)
    if way == 0:
        load_run(path, device="cpu").outputs()
    elif way == 1:
        show_run(path, Console(quiet=True))
    elif way == 2:
        compare_runs([path, path], split="val", picture=None)
    else:
        run = Run.open(path)
        reads = (
            lambda: run.config(read_config),
            run.log.read,
            run.load_weights,
            run.result,
            run.inputs,
            run.environment,
        )
        rng.choice(reads)()
