"""The commands as Python functions: import, train, resume, evaluate, predict and prepare."""

from lazygnn.commands.device import choose_device
from lazygnn.commands.evaluation import evaluate_run
from lazygnn.commands.importing import import_graph
from lazygnn.commands.prediction import predict_run
from lazygnn.commands.preparation import prepare
from lazygnn.commands.training import resume, train

__all__ = ["choose_device", "evaluate_run", "import_graph", "predict_run", "prepare", "resume", "train"]
