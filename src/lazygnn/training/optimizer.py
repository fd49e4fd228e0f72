"""The optimizer of a training run and its learning rate."""

import math

import torch
from torch import Tensor, nn

from lazygnn.config import TrainerOptions


def learning_rate(options: TrainerOptions, epoch: int) -> float:
    """Returns the learning rate of an epoch, counted from zero."""
    if epoch < options.warmup_epochs:
        return options.lr * (epoch + 1) / (options.warmup_epochs + 1)
    if options.schedule == "constant":
        return options.lr
    length = max(options.epochs - options.warmup_epochs, 1)
    return options.lr * (1 + math.cos(math.pi * (epoch - options.warmup_epochs) / length)) / 2


def make_optimizer(layers: list[list[nn.Parameter]], options: TrainerOptions) -> torch.optim.Optimizer:
    """Makes the optimizer; `decay_layers` limits `weight_decay` to the first layers."""
    decayed = len(layers) if options.decay_layers is None else options.decay_layers
    groups = [
        {"params": [p for layer in layers[:decayed] for p in layer], "weight_decay": options.weight_decay},
        {"params": [p for layer in layers[decayed:] for p in layer], "weight_decay": options.rest_weight_decay},
    ]
    groups = [group for group in groups if group["params"]]
    kind = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.Adam
    device = next((p.device for layer in layers for p in layer), torch.device("cpu"))
    # a captured step reads its learning rate from memory
    read = device.type == "cuda" and options.cuda_graphs == "auto"
    lr = torch.tensor(options.lr, device=device) if read else options.lr
    # a method without weights has a learning rate too
    return kind(groups or [{"params": []}], lr=lr, fused=True)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of all weights, in place where it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
