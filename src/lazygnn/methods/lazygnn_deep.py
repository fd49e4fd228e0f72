"""LazyGNN-deep: a stack of lazy blocks, each with a near and a far view, beside simpler models. Ours."""

from typing import Annotated, Any, Literal, Self, get_args

import torch
from pydantic import Field

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import History, NoHistory
from lazygnn.methods.base import Facts, Method, Place
from lazygnn.methods.options import (
    ClusterOptions,
    HistoryOptions,
    InferenceOptions,
    LayerOptions,
    default_beta,
    load_parts,
)
from lazygnn.model import Model
from lazygnn.models import MLP, Convolution, Decoupled, LazyBlock, LazyStack, Mixture
from lazygnn.models.block import Far
from lazygnn.models.label_input import LabelInput
from lazygnn.models.layers import NormKind
from lazygnn.propagation import Drift, ExactPropagation, LazyPropagation, Mix, NoPropagation, Response
from lazygnn.propagation.response import default_level
from lazygnn.tunable import Choices, Range

# nodes from which the time of eight blocks outweighs what they gain
_LARGE = 100_000
# scarcity up to which half of the labels suffice to learn from, so that the others can be shown
_SHOWN = 0.05

Alpha = Annotated[float, Field(ge=-1, le=1)]
# a narrow stack that sees all of its input, convolutions, an MLP alone, and an MLP with lazy propagation
Beside = Literal["narrow", "convolutions", "mlp", "decoupled"]
# convolutions of the model beside the stack
_CONVOLUTIONS = 2
# the narrow stack has so many times fewer channels
_NARROWER = 4


class LazyGNNDeepOptions(LayerOptions, ClusterOptions, HistoryOptions, InferenceOptions):
    """The blocks, their views, their histories and the batches."""

    hidden_channels: Annotated[int, Choices((64, 128, 256, 512))] = Field(256, ge=1, description="width of the blocks")
    num_blocks: Annotated[int, Range(1, 8)] = Field(4, ge=1, le=10_000, description="residual blocks")
    norm: Annotated[Literal["batch", "layer", "none"], Choices()] = Field(
        "layer", description="normalization at the start of a block"
    )
    alphas: list[Alpha] = Field(
        [0.1], min_length=1, description="weight of the input in each far view; a negative one means the high-pass"
    )
    view_channels: int | None = Field(
        None, ge=1, description="width of the views, for smaller histories; empty means that of the blocks"
    )
    halo: Literal["frozen"] = Field("frozen", description="one hop of neighbors with their stored rows")
    num_layers: Annotated[int, Range(1, 4)] = Field(2, ge=1, le=10_000, description="steps of a pass")
    exact: bool = Field(False, description="start each pass from its input, without histories; needs full batch")
    beta: float | None = Field(
        None, ge=0, le=1, description="weight of fresh features in the start value; empty means 0.1 per two steps"
    )
    level: float | None = Field(
        None, gt=0, le=1, description="share of the smoothest change that a pass follows at once; empty means 0.8"
    )
    label_input: float = Field(
        0.0, ge=0, lt=1, description="share of the training labels that a step shows to the stack; 0 shows none"
    )
    beside: list[Beside] = Field(
        ["mlp", "decoupled"],
        description="models beside the stack: `narrow`, `convolutions`, `mlp`, `decoupled`; validation weights them",
    )

    def resolved(self) -> Self:
        """Fills in `beta` and `level`."""
        filled = {
            "beta": default_beta(self.num_layers) if self.beta is None else self.beta,
            "level": default_level(0) if self.level is None else self.level,
        }
        return super().resolved().model_copy(update=filled)

    def ignored(self) -> dict[str, str]:
        """Adds the options of histories and of lazy steps where steps are exact."""
        found = super().ignored()
        for name in ("beta", "level", *HistoryOptions.__annotations__):
            if self.exact and self.differs(name):
                found[name] = (
                    f"`{name}` is {getattr(self, name)}, but `exact` is true, so that no history is stored; "
                    f"set `exact=false`, or omit `{name}`"
                )
        return found

    def check(self, device: torch.device) -> None:
        """Refuses exact steps in mini-batches, and a far view without a weight."""
        if self.exact and self.num_parts > 1:
            raise ConfigError(
                f"`exact` is true, but `num_parts` is {self.num_parts}; exact steps need full batch: "
                "set `num_parts=1`, or omit `exact`"
            )
        if 0 in self.alphas:
            raise ConfigError(f"`alphas` is {self.alphas}; a weight of 0 has no fixed point: remove it")
        if len(set(self.beside)) < len(self.beside):
            raise ConfigError(f"`beside` is {self.beside}; name each model once")
        super().check(device)


def make_model(options: LazyGNNDeepOptions, graph: Graph, place: Place) -> Model:
    """Builds the blocks and the models beside them; histories and fitted steps are for training alone."""
    responses: dict[float, Response | None] = {}

    def far(alpha: float, channels: int, name: str, *, halo_inputs: bool) -> Far:
        size, sign = abs(alpha), 1 if alpha > 0 else -1
        if options.exact:
            return ExactPropagation(size, options.num_layers, sign=sign)
        assert options.beta is not None
        features: History = NoHistory()
        if place.training:
            features = options.open(graph, channels, Drift(options.beta), place, name, halo_inputs=halo_inputs)
        tolerance = options.eval_tolerance
        propagation = LazyPropagation(
            size, features, eval_layers=options.eval_layers, eval_tolerance=tolerance, sign=sign
        )
        if place.training:
            if alpha not in responses:
                responses[alpha] = propagation.fit(graph.adj, options.num_layers, level=options.level).response
            propagation.response = responses[alpha]
        return propagation

    def stack(
        channels: int,
        view_channels: int | None,
        name: str,
        *,
        input_dropout: float,
        labels: LabelInput | None = None,
    ) -> LazyStack:
        def block(index: int) -> LazyBlock:
            views = [
                far(alpha, view_channels or channels, f"{name}-{index}-{view}", halo_inputs=view == 0)
                for view, alpha in enumerate(options.alphas)
            ]
            return LazyBlock(channels, views, view_channels=view_channels, norm=options.norm, dropout=options.dropout)

        return LazyStack(
            graph.in_channels,
            graph.task.num_outputs,
            [block(index) for index in range(options.num_blocks)],
            hidden_channels=channels,
            norm=options.norm,
            dropout=options.dropout,
            input_dropout=input_dropout,
            labels=labels,
            scratch=options.scratch(place),
        )

    def convolutions() -> LazyStack:
        channels = options.hidden_channels
        # with layer normalization, two convolutions validate 2 points worse on humloc
        norm: NormKind = "none" if options.norm == "none" else "batch"

        def convolution(index: int) -> Convolution:
            history = None
            if place.training and options.num_parts > 1:
                # targets are computed, not warm-started
                history = options.open(graph, channels, Mix(1.0), place, f"convolution-{index}")
            # the stack drops what its last layer reads
            last = index == _CONVOLUTIONS - 1
            return Convolution(channels, history, norm=norm, dropout=0.0 if last else options.dropout)

        return LazyStack(
            graph.in_channels,
            graph.task.num_outputs,
            [convolution(index) for index in range(_CONVOLUTIONS)],
            hidden_channels=channels,
            norm="none",
            dropout=options.dropout,
            input_dropout=options.input_dropout,
            scratch=options.scratch(place),
        )

    def beside(kind: Beside) -> Model:
        if kind == "narrow":
            channels = -(-options.hidden_channels // _NARROWER)
            # its views are narrow by themselves
            views = options.view_channels if (options.view_channels or channels) < channels else None
            return stack(channels, views, "narrow", input_dropout=0.0)
        if kind == "convolutions":
            return convolutions()
        outputs = graph.task.num_outputs
        transform = MLP(
            graph.in_channels,
            options.hidden_channels,
            outputs,
            mlp_layers=2,
            dropout=options.dropout,
            input_dropout=options.input_dropout,
        )
        if kind == "mlp":
            return Decoupled(transform, NoPropagation(), scratch=options.scratch(place))
        propagation = far(abs(options.alphas[0]), outputs, "decoupled", halo_inputs=False)
        return Decoupled(transform, propagation, scratch=options.scratch(place))

    labels = None
    if options.label_input > 0:
        labels = LabelInput(graph.task, options.hidden_channels, options.label_input)
    main = stack(
        options.hidden_channels, options.view_channels, "block", input_dropout=options.input_dropout, labels=labels
    )
    # the model that overfits least is the last
    others = {kind: beside(kind) for kind in get_args(Beside) if kind in options.beside}
    if not others:
        return main
    return Mixture([main, *others.values()], names=["stack", *others], scratch=options.scratch(place))


def adapt(facts: Facts) -> dict[str, Any]:
    """Takes two blocks where labels are scarce and eight where they are plentiful, four on a large graph.

    Where labels are scarce, the stack drops half of its input. There, and where labels are few, a narrow stack that
    drops none is trained beside it, and two convolutions if a node may have several labels.
    Where they are plentiful, and most of the other nodes have a labeled neighbor, half of them are shown to the stack.
    Epoch and mixture are chosen by the score less the loss: by scores alone, the best of many is a lucky one.
    """
    most = 8 if facts.num_nodes <= _LARGE else 4
    beside = ["mlp", "decoupled"]
    if not facts.many:
        # the view of a node's own value overfits where labels are rare; convolutions do not have it
        beside = ["narrow", "convolutions", *beside] if facts.several_labels else ["narrow", *beside]
    return {
        "num_blocks": round(most - (most - 2) * facts.scarcity),
        "dropout": 0.5,
        "beside": beside,
        "criterion": "score-loss",
        "label_input": 0.5 if facts.scarcity <= _SHOWN and facts.near_labels >= 0.5 else 0.0,
    }


METHOD = Method(
    "residual blocks with a near and a lazily propagated far view; for accuracy",
    "this library, docs/concepts/depth.md",
    LazyGNNDeepOptions,
    make_model,
    load_parts,
    adapt=adapt,
    # a larger one gains on humloc and loses on minesweeper
    lr=0.006,
    # every block reads a history, so that what is stale adds up: smaller updates, and more of them
    lr_power=0.25,
)
