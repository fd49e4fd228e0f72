"""Training and evaluation."""

from lazygnn.training.evaluation import evaluate, infer
from lazygnn.training.trainer import EpochReport, FitResult, Trainer

__all__ = ["EpochReport", "FitResult", "Trainer", "evaluate", "infer"]
