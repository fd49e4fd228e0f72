"""Settings of the released code for ogbn-arxiv (RXPHD/Lazy_GNN, Multi_Class/args.py), for the tables that vary them.

One setting for every graph and system. It has 200 epochs in place of 2000.
"""

from typing import Any

TRANSFORM: dict[str, Any] = {
    "hidden_channels": 512,
    "mlp_layers": 3,
    "norm": "batch",
    "dropout": 0.7,
    "alpha": 0.1,
}
TRAINING: dict[str, Any] = {"lr": 0.001, "weight_decay": 0.0, "epochs": 200, "eval_every": 5, "precision": "tf32"}
PARTS: dict[str, Any] = {"num_parts": 60, "parts_per_batch": 30}
SETTINGS = TRANSFORM | TRAINING | PARTS
ABOUT = (
    "Settings are those of the released code for ogbn-arxiv, the same for every system and graph: an MLP of 3 layers, "
    "512 wide, batch norm, dropout 0.7, alpha 0.1, learning rate 0.001, 60 parts, 30 a batch; 200 epochs in place of "
    "2000, matrix products in tf32."
)
# the store of the runs with these settings, so that no table trains a run of another
STORE = "paper"
