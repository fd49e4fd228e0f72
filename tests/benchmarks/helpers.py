"""What the tests of the benchmarks share: a tiny shape, the command line, result files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from typer.testing import CliRunner

from benchmarks.cli import app
from common.shapes import Shape, find_shape

CPU = torch.device("cpu")
CARRIED = {"commit", "date", "machine", "torch", "torch_geometric", "python", "triton", "facts", "rows"}


def tiny(**changes: Any) -> Shape:
    return replace(find_shape("tiny"), **changes)


def read_result(folder: Path) -> tuple[dict[str, Any], str]:
    """Returns the only result of a folder, as JSON and as Markdown."""
    (file,) = folder.glob("*.json")
    return json.loads(file.read_text()), file.with_suffix(".md").read_text()


def invoke(*words: object) -> Any:
    return CliRunner().invoke(app, list(map(str, words)))
