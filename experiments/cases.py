"""The cases of the staleness study: warm starts, steps, responses and batches on six graphs.

One recipe for every graph and case: an MLP of 3 layers, 256 wide, dropout 0.5, alpha 0.1, with batch norm or without.
Cases are not tuned, and their options do not depend on the graph.
"""

from typing import Any, Literal

from lazygnn.config import Config
from lazygnn.methods import derive, resolve

Norm = Literal["none", "batch"]
DATASETS = ("arxiv", "wordnet", "cora", "pubmed", "amazon_computers", "coauthor_cs")
# rows of bags of words are normalized, as in the papers of these data sets
NORMALIZED = ("cora", "pubmed", "amazon_computers", "coauthor_cs")
RECIPE: dict[str, Any] = {
    "hidden_channels": 256,
    "mlp_layers": 3,
    "dropout": 0.5,
    "input_dropout": 0.0,
    "alpha": 0.1,
    "weight_decay": 0.0,
    "decay_layers": None,
    "patience": None,
    "epochs": 400,
    "eval_every": 10,
}
# without a norm, exact propagation is better at 0.01 than at 0.005 and 0.002
LEARNING_RATES: dict[Norm, float] = {"none": 0.01, "batch": 0.005}
PLAIN: dict[str, Any] = {"response": "plain"}
PAPER: dict[str, Any] = {"num_layers": 2, "beta": 0.5, "gamma": 0.5}
LABELS: dict[str, Any] = {"label_step": True}
NO_LABELS: dict[str, Any] = {"label_step": False}
FEW_PARTS: dict[str, Any] = {"num_parts": 20, "parts_per_batch": 2, "num_layers": 4, "epochs": 200}
# batches with few labels make noisy steps, which a decreasing learning rate averages
PARTS: dict[str, Any] = {
    "num_parts": 60,
    "parts_per_batch": 6,
    "num_layers": 4,
    "level": 0.8,
    "epochs": 200,
    "schedule": "cosine",
}
HALO_GRADIENTS = PARTS | {"halo_gradients": True}
LONG: dict[str, Any] = {"epochs": 400}
MEDIUM: dict[str, Any] = {"epochs": 100, "eval_every": 2}
# as many optimizer steps and evaluations as a full batch has
SHORT: dict[str, Any] = {"epochs": 40, "eval_every": 1}
# about the rate of a full batch over the square root of the number of batches
SLOW: dict[str, Any] = {"lr": 0.003}
EXACT = "exact, 10 steps"
DEFAULT = "fitted to 0.85, 2 steps, and 1 on labels"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    EXACT: ("appnp", {"num_layers": 10}),
    "exact, 2 steps": ("appnp", {"num_layers": 2}),
    "the paper: mix 0.5, 2 steps": ("lazygnn-paper", PAPER),
    "the paper: mix 0.5, 2 steps, rate 0.005": ("lazygnn-paper", PAPER | {"lr": 0.005}),
    "the paper: mix 0.5, 2 steps, rate 0.002": ("lazygnn-paper", PAPER | {"lr": 0.002}),
    "mix 0.5, no stored gradient, 2 steps": ("lazygnn", {"num_layers": 2, "start": "mix", "beta": 0.5}),
    "drift, 2 steps": ("lazygnn", PLAIN | {"num_layers": 2, "beta": 0.0}),
    "drift and mix, 2 steps": ("lazygnn", PLAIN | {"num_layers": 2}),
    "drift, stored gradient, 2 steps": ("lazygnn", PLAIN | {"num_layers": 2, "beta": 0.0, "gamma": 0.0}),
    "fitted to 0.8, no mix, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.8, "beta": 0.0}),
    "fitted to 0.6, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.6}),
    "fitted to 0.7, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.7}),
    "fitted to 0.8, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.8}),
    "fitted to 0.85, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.85}),
    "fitted to 0.9, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.9}),
    "fitted to 1.0, 2 steps": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 1.0}),
    "fitted to 0.8, 2 steps, cosine": ("lazygnn", NO_LABELS | {"num_layers": 2, "level": 0.8, "schedule": "cosine"}),
    "the paper: mix 0.5, 1 step": ("lazygnn-paper", {"num_layers": 1, "beta": 0.5, "gamma": 0.5}),
    "drift and mix, 1 step": ("lazygnn", PLAIN | {"num_layers": 1}),
    "fitted to 0.6, 1 step": ("lazygnn", NO_LABELS | {"num_layers": 1, "level": 0.6}),
    "fitted to 0.8, 1 step": ("lazygnn", NO_LABELS | {"num_layers": 1, "level": 0.8}),
    "fitted to 0.9, 1 step": ("lazygnn", NO_LABELS | {"num_layers": 1, "level": 0.9}),
    "fitted to 0.7, 1 step, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 1, "level": 0.7}),
    "fitted to 0.8, 1 step, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 1, "level": 0.8}),
    "fitted to 0.85, 1 step, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 1, "level": 0.85}),
    "fitted to 0.8, 2 steps, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 2, "level": 0.8}),
    DEFAULT: ("lazygnn", LABELS | {"num_layers": 2, "level": 0.85}),
    "fitted to 0.9, 2 steps, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 2, "level": 0.9}),
    "fitted to 1.0, 2 steps, and 1 on labels": ("lazygnn", LABELS | {"num_layers": 2, "level": 1.0}),
    "2 of 20 parts, fitted to 0.8, 4 steps": ("lazygnn", FEW_PARTS | {"level": 0.8}),
    "2 of 20 parts, fitted to 0.9, 4 steps": ("lazygnn", FEW_PARTS | {"level": 0.9}),
    "6 of 60 parts": ("lazygnn", PARTS),
    "6 of 60 parts, plain steps": ("lazygnn", PARTS | PLAIN | {"level": None}),
    "6 of 60 parts, 40 epochs": ("lazygnn", PARTS | SHORT),
    "6 of 60 parts, 40 epochs, rate 0.003": ("lazygnn", PARTS | SHORT | SLOW),
    "6 of 60 parts, halo gradients": ("lazygnn", HALO_GRADIENTS),
    "6 of 60 parts, halo gradients, 100 epochs": ("lazygnn", HALO_GRADIENTS | MEDIUM),
    "6 of 60 parts, halo gradients, 40 epochs": ("lazygnn", HALO_GRADIENTS | SHORT),
    "6 of 60 parts, halo gradients, 40 epochs, rate 0.003": ("lazygnn", HALO_GRADIENTS | SHORT | SLOW),
    "6 of 60 parts, halo gradients, 100 epochs, rate 0.003": ("lazygnn", HALO_GRADIENTS | MEDIUM | SLOW),
    "6 of 60 parts, halo gradients, rate 0.003": ("lazygnn", HALO_GRADIENTS | SLOW),
    "6 of 60 parts, halo gradients, 400 epochs, rate 0.003": ("lazygnn", HALO_GRADIENTS | LONG | SLOW),
}


def configure(
    case: str, dataset: str, norm: Norm, *, seed: int = 0, device: str = "auto", root: str | None = None
) -> Config:
    """Returns the configuration of a case, which ignores the recipe of the graph; seed 0 has diagnostics."""
    method, values = CASES[case]
    own = {"normalize_features": dataset in NORMALIZED, "diagnose_every": 20 if seed == 0 else 0}
    plain = resolve(method, dataset, seed=seed, device=device, root=root)
    # derived, since the values are meant to be the same for every graph
    return derive(plain, RECIPE | {"norm": norm, "lr": LEARNING_RATES[norm]} | own | values)
