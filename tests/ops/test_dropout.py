import pytest
import torch

from lazygnn.ops.dropout import dropout_


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.0, 0.25, 0.5, 0.6, 0.8, 0.99])
def test_a_share_of_the_entries_is_dropped_and_the_rest_scaled(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.full((400, 501), 1.0, dtype=dtype)
    out, scale = dropout_(x, p)
    assert out is x
    kept = out != 0
    # four standard deviations of the mean, and the rounding of `p`
    assert float(kept.double().mean()) == pytest.approx(1 - p, abs=4 * (p * (1 - p) / x.numel()) ** 0.5 + 2**-16)
    # all kept entries are equal, and the scale preserves the mean up to rounding
    assert len(out[kept].unique()) == 1
    assert out[kept][0] == torch.tensor(scale, dtype=dtype)
    assert scale == pytest.approx(1 / (1 - p), rel=0.01)


def test_entries_are_dropped_independently() -> None:
    torch.manual_seed(1)
    kept = (dropout_(torch.ones(2000, 64), 0.5)[0] != 0).double()
    columns = torch.corrcoef(kept.T) - torch.eye(64, dtype=torch.float64)
    assert float(columns.abs().max()) < 6 / 2000**0.5
    shifted = torch.corrcoef(torch.stack((kept.flatten()[:-1], kept.flatten()[1:])))[0, 1]
    assert abs(float(shifted)) < 4 / kept.numel() ** 0.5


def test_torchs_generator_determines_the_mask() -> None:
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(dropout_(torch.ones(100, 7), 0.3)[0])
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(dropout_(torch.ones(100, 7), 0.3)[0], draws[2])


def test_odd_shapes_and_views() -> None:
    for shape in ((0, 3), (1, 1), (3, 5)):
        assert dropout_(torch.ones(shape), 0.5)[0].shape == shape
    wide = torch.ones(50, 8)
    dropout_(wide[:, :3], 0.5)
    assert bool((wide[:, 3:] == 1).all())
    assert 0 < int((wide[:, :3] == 0).sum()) < 150


def test_a_share_outside_of_its_range_is_refused() -> None:
    for p in (-0.1, 1.0):
        with pytest.raises(ValueError, match=rf"`p` must be in \[0, 1\), got {p}"):
            dropout_(torch.ones(2), p)
