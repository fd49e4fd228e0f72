"""Features of a node's place in the graph: the logarithm of its degree, and random signs of the nodes around it.

Two nodes with the same neighbors have nearly the same propagated signs. The signs of a node follow from its id, so that
they are the same in any order of the nodes and in a graph with more nodes.

`N` nodes, `S` signs.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn import ops
from lazygnn.ops import Adjacency
from lazygnn.tables.schema import Structural


def fit_structural(degree: Tensor) -> Structural:
    """Decides how degrees are scaled."""
    logarithm = degree.double().log1p()
    scale = float(logarithm.std(correction=0))
    return Structural(mean=float(logarithm.mean()), scale=scale if scale > 1e-12 else 1.0)


def structural_features(ids: Sequence[str], adj: Adjacency, degree: Tensor, settings: Structural) -> Tensor:
    """Returns the features, [N, 1 + S] float32.

    The signs are propagated several times. Every result is scaled to rows of the same length, and they are averaged.
    """
    logarithm = ((degree.double().log1p() - settings.mean) / settings.scale).float()
    signs = random_signs(ids, settings.signs)
    total = torch.zeros_like(signs)
    for _ in range(settings.hops):
        signs = ops.spmm(adj, signs)
        total += F.normalize(signs, dim=1)
    return torch.cat((logarithm[:, None], total * (settings.signs**0.5 / settings.hops)), dim=1)


def random_signs(ids: Sequence[str], num_signs: int) -> Tensor:
    """Returns -1 or 1 by the bits of a digest of every id, [N, S] float32."""
    size = -(-num_signs // 8)
    digests = b"".join(hashlib.blake2b(one.encode(), digest_size=size).digest() for one in ids)
    bits = np.unpackbits(np.frombuffer(digests, dtype=np.uint8).reshape(len(ids), size), axis=1)[:, :num_signs]
    return torch.from_numpy(bits.astype(np.float32) * 2 - 1)
