"""Spectra of graphs and the table of modes."""

from pathlib import Path

import pytest
import torch

from experiments import spectrum
from lazygnn.graph import Graph


def test_the_density_has_the_moments_of_the_matrix(block_graph: Graph) -> None:
    z, share = spectrum.density(block_graph.adj)
    values = torch.linalg.eigvalsh(block_graph.adj.to_dense()).numpy()
    assert share.sum() == pytest.approx(1)
    assert (share * z).sum() == pytest.approx(values.mean(), abs=0.06)
    assert (share * z**2).sum() == pytest.approx((values**2).mean(), abs=0.06)


def test_the_table_and_the_figure_have_every_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectrum, "DATASETS", ["wordnet-small"])
    monkeypatch.setattr(spectrum, "FITTED_TO", "wordnet-small")
    monkeypatch.setattr(spectrum, "MOMENTS", 10)
    summary = spectrum.main(None, tmp_path / "figure.png")
    noise = [cell["value"] for cell in summary.rows[0].cells[:5] if cell is not None]
    exact, _, drift, fitted, label_step = noise
    # the drift lets most noise through, and the label step brings it nearest to exact steps
    assert drift > fitted > label_step > exact
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
