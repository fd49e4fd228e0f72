"""What the parts of a graph have equal amounts of: a weight for every node."""

from typing import Literal, get_args

import numpy as np

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph

Balance = Literal["nodes", "labels", "edges"]
# weight of all training nodes beside that of all nodes, which bounds the sizes of the parts
_LABELS_TO_NODES = 9


def node_weights(graph: Graph, balance: Balance) -> np.ndarray | None:
    """Returns the weight of every node, [N] int64; parts of equal weight are balanced. `None` means one each.

    Args:
        graph: The graph.
        balance: `nodes`; `labels`: training nodes, beside which nodes count a tenth; `edges`: stored entries.
    """
    if balance not in get_args(Balance):
        raise ConfigError(f"`balance` is `{balance}`; choose one of: {', '.join(get_args(Balance))}")
    if balance == "nodes":
        return None
    if balance == "edges":
        return np.diff(graph.adj.rowptr.cpu().numpy().astype(np.int64))
    train = graph.masks["train"].cpu().numpy() if "train" in graph.masks else np.zeros(graph.num_nodes, dtype=bool)
    num_train = int(train.sum())
    if num_train == 0:
        raise ConfigError(
            f"`balance` is `labels`, but graph `{graph.name}` has no training nodes; give a `train_mask`, or omit "
            "`balance`"
        )
    extra = -(-_LABELS_TO_NODES * graph.num_nodes // num_train)
    return 1 + extra * train.astype(np.int64)
