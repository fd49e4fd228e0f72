"""`RowLoader`: rows of features without edges (SGC, SIGN)."""

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.loader.nodes import NodeLoader


class RowLoader(NodeLoader):
    """Batches of feature rows without edges, for models with features that are propagated beforehand."""

    def make(self, targets: Tensor, generator: torch.Generator) -> Batch:  # noqa: ARG002
        """Takes the rows of the targets."""
        return self._batch(targets, len(targets), [])
