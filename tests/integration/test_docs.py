"""The docs run: Python blocks are executed, commands parse, links lead somewhere, named code and options exist."""

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from lazygnn.cli import app
from lazygnn.config import Options, TrainerOptions
from lazygnn.methods import METHODS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(program: str) -> list[Any]:
    """Every `$ program ...` line of the docs, as a test case named after its page."""
    lines = [(page, line) for page in PAGES for block in blocks(page, "console") for line in block.splitlines()]
    wanted = [(page, shlex.split(line[2:], comments=True)) for page, line in lines if line.startswith(f"$ {program} ")]
    return [pytest.param(words[1:], id=f"{page.stem}: {' '.join(words)}") for page, words in wanted]


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=page_id)
def test_python_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if any("torch_geometric" in block for block in blocks(page, "python")):
        pytest.importorskip("torch_geometric")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page, "python"), 1):
        exec(compile(block, f"{page_id(page)}, Python block {number}", "exec"), namespace)
    if page.name == "README.md":  # a comment there says 0.97
        assert namespace["result"].scores["test"] == pytest.approx(0.97, abs=0.015)


@pytest.mark.parametrize("words", commands("lazygnn"))
def test_command_parses(words: list[str]) -> None:
    name, *arguments = words
    context = COMMANDS[name].make_context(name, arguments)
    if name == "train" and context.params["method"] is not None:
        assert context.params["method"] in METHODS
        known = METHODS[context.params["method"]].options.model_fields.keys() | TrainerOptions.model_fields.keys()
        assert {assignment.partition("=")[0] for assignment in context.params["set_"] or []} <= known


@pytest.mark.parametrize("words", commands("make"))
def test_make_target_exists(words: list[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert words[0] in targets


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_relative_links_lead_to_files(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text) + re.findall(r'\b(?:src|srcset)="([^":]+)"', text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_code_named_beside_the_equations_exists() -> None:
    named = re.findall(r"`([\w/]+)\.py`:\s`([\w.]+)`", (ROOT / "docs" / "paper.md").read_text())
    assert len(named) > 20
    for file, path in named:
        module = f"lazygnn.{file.replace('/', '.')}"
        found: Any = import_module(module)
        for index, attribute in enumerate(path.split(".")):
            found = getattr(found, attribute)
            # and not only imported there
            assert index > 0 or found.__module__ == module


def test_every_command_and_option_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    groups: list[type[Options]] = [TrainerOptions, *(method.options for method in METHODS.values())]
    options = {name for group in groups for name in group.model_fields}
    flags = {flag for command in COMMANDS.values() for option in command.params for flag in option.opts if "--" in flag}
    wanted = [f"`{name}`" for name in sorted(options | flags)] + [f"## `{name}`" for name in COMMANDS]
    assert [name for name in wanted if name not in text] == []
