"""Graph neural networks with long reach on large graphs, by lazy propagation."""

from lazygnn.batch import Batch
from lazygnn.commands.loading import LoadedRun, load_run
from lazygnn.config import Config, TrainerOptions
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.data import load_graph
from lazygnn.errors import CheckpointError, ConfigError, DivergenceError, GraphError
from lazygnn.fixed_point import solve
from lazygnn.graph import Graph
from lazygnn.history import History, open_history
from lazygnn.loader import ClusterLoader, FullLoader
from lazygnn.methods import build, resolve
from lazygnn.models.decoupled import LazyGNN
from lazygnn.ops import Csr
from lazygnn.partitioning import partition
from lazygnn.propagation import Drift, LazyPropagation, Mix, diffuse
from lazygnn.propagation.response import Response, fit_response
from lazygnn.training import Trainer, evaluate, infer
from lazygnn.version import VERSION

__version__ = VERSION
__all__ = [
    "Batch",
    "CheckpointError",
    "ClusterLoader",
    "Config",
    "ConfigError",
    "CorrectAndSmooth",
    "Csr",
    "DivergenceError",
    "Drift",
    "FullLoader",
    "Graph",
    "GraphError",
    "History",
    "LazyGNN",
    "LazyPropagation",
    "LoadedRun",
    "Mix",
    "Response",
    "Trainer",
    "TrainerOptions",
    "build",
    "diffuse",
    "evaluate",
    "fit_response",
    "infer",
    "load_graph",
    "load_run",
    "open_history",
    "partition",
    "resolve",
    "solve",
]
