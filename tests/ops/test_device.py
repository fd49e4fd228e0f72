import pytest
import torch

from lazygnn.errors import ConfigError
from lazygnn.ops import choose_device


def test_a_device_is_chosen_by_name_or_automatically() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert choose_device(torch.device("cpu")) == torch.device("cpu")
    for name in ("gpu", "mps", "meta", "cuda:x", "", None):
        with pytest.raises(ConfigError, match=f"unknown device `{name}`; choose auto, cpu or cuda"):
            choose_device(name)  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"device `cuda` is not available: torch .* finds no GPU; choose auto or cpu"):
        choose_device("cuda")


def test_a_gpu_beyond_the_last_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    assert choose_device("cuda") == torch.device("cuda")
    with pytest.raises(ConfigError, match="device `cuda:2` is not available: the last GPU is `cuda:1`"):
        choose_device("cuda:2")
