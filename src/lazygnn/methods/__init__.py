"""The methods by name: Table 1 of the paper, and the methods it is compared with."""

from typing import Any

from lazygnn.methods import (
    appnp,
    appnp_gas,
    cluster_gcn,
    fastgcn,
    gcn,
    gcn_gas,
    gcn_graphfm,
    gcn_lmc,
    gcnii,
    gcnii_gas,
    graphsage,
    graphsaint,
    label_propagation,
    ladies,
    lazygnn,
    lazygnn_deep,
    lazygnn_paper,
    mlp,
    mvs_gnn,
    sgc,
    sign,
    vq_gnn,
    vr_gcn,
)
from lazygnn.methods.base import Method, Place
from lazygnn.methods.build import Built, build, build_model, method_options, place_graph
from lazygnn.methods.plugins import plugin_packages
from lazygnn.methods.recipes import (
    derive,
    find_method,
    methods_with,
    read_config,
    recipe,
    recipe_for,
    recipe_names,
    resolve,
)

__all__ = [
    "METHODS",
    "Built",
    "Method",
    "Place",
    "build",
    "build_model",
    "derive",
    "find_method",
    "method_options",
    "methods_with",
    "place_graph",
    "plugin_packages",
    "read_config",
    "recipe",
    "recipe_for",
    "recipe_names",
    "resolve",
]

METHODS: dict[str, Method[Any]] = {
    "mlp": mlp.METHOD,
    "appnp": appnp.METHOD,
    "lazygnn": lazygnn.METHOD,
    "lazygnn-deep": lazygnn_deep.METHOD,
    "lazygnn-paper": lazygnn_paper.METHOD,
    "gcn": gcn.METHOD,
    "gcnii": gcnii.METHOD,
    "gcn-gas": gcn_gas.METHOD,
    "gcn-graphfm": gcn_graphfm.METHOD,
    "gcn-lmc": gcn_lmc.METHOD,
    "gcnii-gas": gcnii_gas.METHOD,
    "appnp-gas": appnp_gas.METHOD,
    "graphsage": graphsage.METHOD,
    "cluster-gcn": cluster_gcn.METHOD,
    "fastgcn": fastgcn.METHOD,
    "ladies": ladies.METHOD,
    "vr-gcn": vr_gcn.METHOD,
    "mvs-gnn": mvs_gnn.METHOD,
    "graphsaint": graphsaint.METHOD,
    "vq-gnn": vq_gnn.METHOD,
    "sgc": sgc.METHOD,
    "sign": sign.METHOD,
    "label-propagation": label_propagation.METHOD,
}
