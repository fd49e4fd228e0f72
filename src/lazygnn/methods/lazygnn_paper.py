"""LazyGNN as the paper describes it: the same model, with the paper's defaults."""

from typing import Annotated, Literal

from pydantic import Field

from lazygnn.methods.base import Method
from lazygnn.methods.lazygnn import LazyGNNOptions, make_loader, make_model
from lazygnn.methods.mlp import adapt
from lazygnn.tunable import Range


class PaperOptions(LazyGNNOptions):
    """Momentum in both passes and a halo of as many hops as steps."""

    start: Literal["drift", "mix"] = Field("mix", description="warm start")
    beta: Annotated[float | None, Range(0.1, 1.0, step=0.1)] = Field(
        0.5, ge=0, le=1, description="weight of fresh features in the start value"
    )
    gamma: Annotated[float, Range(0.1, 1.0, step=0.1)] = Field(
        0.5, ge=0, le=1, description="weight of fresh gradients in the start value"
    )
    halo: Literal["frozen", "paper", "none"] = Field("paper", description="neighbors around a batch")


METHOD = Method(
    "MLP, then lazy propagation with the paper's momentum, forward and backward",
    "Xue et al., LazyGNN, ICML 2023",
    PaperOptions,
    make_model,
    make_loader,
    adapt=adapt,
)
