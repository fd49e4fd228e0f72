"""The site of the docs: it builds without a warning, needs no other server, and shows every public name."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lazygnn
from scripts.draw_idea import COLORS, draw

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if any(importlib.util.find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings")):
        pytest.skip("needs the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_part_of_the_site(site: Path) -> None:
    pages = [page.relative_to(DOCS) for page in DOCS.rglob("*.md")]
    assert len(pages) > 20
    built = [page.parent if page.stem == "index" else page.with_suffix("") for page in pages]
    assert [page for page in built if not (site / page / "index.html").is_file()] == []
    linked = (site / "index.html").read_text()
    assert [page for page in built if f'href="{page}/"' not in linked and page != Path()] == []


def test_a_page_loads_nothing_from_another_server(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]+)"', text)
        loaded += re.findall(r'<link[^>]* rel="(?:stylesheet|preconnect)"[^>]* href="(https?:[^"]+)"', text)
        assert loaded == [], page


def test_docstrings_are_on_the_pages_of_the_api(site: Path) -> None:
    text = (site / "reference" / "api" / "graphs" / "index.html").read_text()
    assert 'id="lazygnn.Graph.from_edges"' in text
    assert "Training nodes, [N] bool" in text


def test_every_public_name_is_in_the_reference_of_the_api() -> None:
    text = "\n".join(page.read_text() for page in (DOCS / "reference" / "api").glob("*.md"))
    named = set(re.findall(r"^::: lazygnn(?:\.\w+)*\.(\w+)$", text, re.MULTILINE))
    errors = {name for name in lazygnn.__all__ if name.endswith("Error")}
    assert "::: lazygnn.errors" in text
    assert errors <= set(vars(lazygnn.errors))
    assert set(lazygnn.__all__) - errors - named == set()


@pytest.mark.parametrize("theme", COLORS)
def test_the_picture_of_the_idea_is_that_of_its_script(theme: str) -> None:
    assert (DOCS / "images" / f"idea-{theme}.svg").read_text() == draw(COLORS[theme]), "run scripts/draw_idea.py"
