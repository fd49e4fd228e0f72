"""Parameters of layers: how they start, how they are grouped, and the names under which they load."""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn


def glorot(in_channels: int, out_channels: int) -> nn.Parameter:
    """Draws a weight of shape [in, out] from the uniform distribution of Glorot and Bengio, as GCN and APPNP do."""
    bound = math.sqrt(6 / (in_channels + out_channels))
    return nn.Parameter(torch.empty(in_channels, out_channels).uniform_(-bound, bound))


def parameters_by_layer(layers: Iterable[nn.Module], norms: Iterable[nn.Module]) -> list[list[nn.Parameter]]:
    """Groups parameters layer by layer; a norm belongs to the layer before it."""
    groups = [list(layer.parameters()) for layer in layers]
    for group, norm in zip(groups, norms, strict=False):
        group.extend(norm.parameters())
    return groups


def load_renamed(module: nn.Module, names: Mapping[str, str]) -> None:
    """Lets a module load weights that were saved under earlier names.

    Args:
        module: The module that owns the renamed parameters.
        names: Earlier name -> current name, both relative to the module.
    """
    module.register_load_state_dict_pre_hook(partial(_rename, dict(names)))


def _rename(names: dict[str, str], _module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for earlier, current in names.items():
        if prefix + earlier in state:
            state[prefix + current] = state.pop(prefix + earlier)
