"""A model that is trained here, in this process, to look into it."""

from collections.abc import Callable

import torch
from torch import Tensor

from experiments.graphs import load
from lazygnn.config import Config
from lazygnn.methods import Built, build
from lazygnn.ops import choose_device
from lazygnn.training import Trainer


def train(config: Config, on_pass: Callable[[Tensor], None] | None = None) -> Built:
    """Trains a configuration without a run folder and returns the model with its last weights.

    Args:
        config: What to train.
        on_pass: Called with the outputs of every forward pass in training.
    """
    torch.manual_seed(config.seed)
    built = build(config, load(config.dataset, config.root), choose_device(config.device))

    def hook(_module: torch.nn.Module, _inputs: object, outputs: Tensor) -> None:
        if built.model.training and on_pass is not None:
            on_pass(outputs.detach())

    handle = built.model.register_forward_hook(hook)
    # replayed steps would not call the hook
    options = config.trainer.model_copy(update={"cuda_graphs": "off"})
    Trainer(built.model, built.loader, built.graph, options, seed=config.seed).run()
    handle.remove()
    return built
