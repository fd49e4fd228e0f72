"""The page of `lazygnn report` in a headless browser, by its DOM; skipped where there is no browser."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn import commands
from lazygnn.commands.reporting import write_page
from lazygnn.methods import resolve
from tests.conftest import Arrays

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
# a frame as wide as a phone; what it holds is measured from outside, since the page itself runs no script
PROBE = """<!DOCTYPE html>
<html><body><iframe id="phone" width="390" height="844"></iframe><pre id="found"></pre><script>
const frame = document.getElementById("phone");
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  const seen = one => { const box = one.getBoundingClientRect(); return box.width > 100 && box.height > 50; };
  document.getElementById("found").textContent = JSON.stringify({
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    back: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    overflow: root.scrollWidth - root.clientWidth,
    figures: page.querySelectorAll("figure").length,
    drawn: [...page.querySelectorAll("svg")].filter(seen).length,
    captions: [...page.querySelectorAll("figcaption")].map(one => one.textContent),
    headings: [...page.querySelectorAll("h1, h2, h3")].map(one => one.textContent),
    scripts: page.scripts.length,
    requests: frame.contentWindow.performance.getEntriesByType("resource").length,
    smallest: Math.min(...[...page.querySelectorAll("p, li, td, th")]
      .map(one => parseFloat(frame.contentWindow.getComputedStyle(one).fontSize))),
  });
};
frame.srcdoc = PAGE;
</script></body></html>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, module_arrays: Arrays) -> str:
    folder = tmp_path_factory.mktemp("page")
    np.savez(folder / "block.npz", **module_arrays)
    config = resolve("mlp", folder / "block.npz", {"epochs": 3, "hidden_channels": 8}, device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        # drawing takes longer than the training
        patch.setattr("lazygnn.commands.conclusion.plot_curves", lambda *_: None)
        commands.train(config, folder / "run", quiet=True)
    write_page([folder / "run"], folder / "report.html", device="cpu")
    return (folder / "report.html").read_text()


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
@pytest.mark.parametrize(("scheme", "back"), [(1, "rgb(255, 255, 255)"), (0, "rgb(20, 24, 28)")], ids=["light", "dark"])
def test_the_page_is_whole_on_a_phone_in_both_themes(page: str, tmp_path: Path, scheme: int, back: str) -> None:
    assert BROWSER is not None
    # a closing tag would end the script that holds the page
    (tmp_path / "probe.html").write_text(PROBE.replace("PAGE", json.dumps(page).replace("</", "<\\/")))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=5000"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", f"--blink-settings=preferredColorScheme={scheme}"]
    command = [BROWSER, *flags, "--dump-dom", (tmp_path / "probe.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    match = re.search(r'<pre id="found">(.+?)</pre>', done.stdout)
    assert match is not None
    found: dict[str, Any] = json.loads(html.unescape(match[1]))
    assert (found["dark"], found["back"]) == (scheme == 0, back)
    assert (found["overflow"], found["scripts"], found["requests"]) == (0, 0, 0)
    assert found["figures"] == found["drawn"] == 5
    assert found["captions"][:4] == ["Training loss", "Accuracy over epochs", "Accuracy over time", "As predicted"]
    assert found["headings"][0] == "mlp on block.npz"
    assert {"Classes", "Confusion", "Calibration", "Where it errs", "Settings"} <= set(found["headings"])
    assert found["smallest"] >= 14
