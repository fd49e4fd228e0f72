"""Training, evaluation and the run folder."""

from lazygnn.training.evaluation import evaluate, infer
from lazygnn.training.trainer import EpochReport, FitResult, Trainer

__all__ = ["EpochReport", "FitResult", "Trainer", "evaluate", "infer"]
