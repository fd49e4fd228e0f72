"""Models; the `forward` of each is its equation."""

from lazygnn.models.block import LazyBlock
from lazygnn.models.cluster_gcn import ClusterGCN
from lazygnn.models.convolution import Convolution
from lazygnn.models.decoupled import Decoupled
from lazygnn.models.deep import LazyStack
from lazygnn.models.gcn import GCN
from lazygnn.models.gcnii import GCNII
from lazygnn.models.graphfm import GraphFM
from lazygnn.models.label_propagation import LabelPropagation
from lazygnn.models.layers import MLP
from lazygnn.models.lmc import LMC
from lazygnn.models.mixture import Mixture
from lazygnn.models.mvs_gcn import MVSGCN
from lazygnn.models.precomputed import PrecomputedGCN
from lazygnn.models.sage import SAGE
from lazygnn.models.sgc import SGC
from lazygnn.models.sign import SIGN
from lazygnn.models.stack import Stack
from lazygnn.models.standardized import Standardized
from lazygnn.models.vq_gnn import VQGNN
from lazygnn.models.vr_gcn import VRGCN

__all__ = [
    "GCN",
    "GCNII",
    "LMC",
    "MLP",
    "MVSGCN",
    "SAGE",
    "SGC",
    "SIGN",
    "VQGNN",
    "VRGCN",
    "ClusterGCN",
    "Convolution",
    "Decoupled",
    "GraphFM",
    "LabelPropagation",
    "LazyBlock",
    "LazyStack",
    "Mixture",
    "PrecomputedGCN",
    "Stack",
    "Standardized",
]
