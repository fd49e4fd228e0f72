"""The commands as Python functions: import, train, resume, tune, evaluate, predict and prepare."""

from lazygnn.commands.evaluation import evaluate_run
from lazygnn.commands.fine_tuning import fine_tune
from lazygnn.commands.importing import import_graph
from lazygnn.commands.prediction import predict_run
from lazygnn.commands.preparation import prepare
from lazygnn.commands.repeating import resume_seeds, train_seeds
from lazygnn.commands.training import resume, train
from lazygnn.commands.tuning import resume_tuning, tune
from lazygnn.ops import choose_device

__all__ = [
    "choose_device",
    "evaluate_run",
    "fine_tune",
    "import_graph",
    "predict_run",
    "prepare",
    "resume",
    "resume_seeds",
    "resume_tuning",
    "train",
    "train_seeds",
    "tune",
]
