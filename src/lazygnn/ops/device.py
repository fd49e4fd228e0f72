"""The device to compute on."""

import torch

from lazygnn.errors import ConfigError


def choose_device(name: torch.device | str) -> torch.device:
    """Returns the device of that name; `auto` is a GPU if there is one, else the CPU.

    Raises:
        ConfigError: The name is unknown, or there is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device: torch.device | None = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"unknown device `{name}`; choose auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device `{name}` is not available: torch {torch.__version__} finds no GPU; choose auto or cpu"
        )
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        raise ConfigError(f"device `{name}` is not available: the last GPU is `cuda:{torch.cuda.device_count() - 1}`")
    return device
