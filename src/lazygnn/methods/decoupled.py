"""Transform, then propagate: the MLP alone, APPNP, and LazyGNN with our defaults and with the paper's."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import History, NoHistory
from lazygnn.history.warmstart import Drift, Mix, WarmStart
from lazygnn.methods.base import ClusterOptions, Cut, HistoryOptions, Method, MethodOptions, Place, make_loader
from lazygnn.model import Model
from lazygnn.models import MLP, Decoupled
from lazygnn.models.layers import Linear
from lazygnn.propagation import ExactPropagation, LazyPropagation, NoPropagation, Propagation
from lazygnn.propagation.response import default_level


class MLPOptions(MethodOptions):
    """The transform every decoupled model shares."""

    hidden_channels: int = Field(64, ge=1, description="width of the MLP")
    mlp_layers: int = Field(2, ge=1, description="depth of the MLP")
    norm: Literal["batch", "layer", "none"] = Field("none", description="normalisation between the layers")
    dropout: float = Field(0.5, ge=0, lt=1, description="share of hidden units dropped in training")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="share of input entries dropped in training")
    prop_channels: int | None = Field(None, ge=1, description="width of what is propagated; empty means the outputs")


class APPNPOptions(MLPOptions):
    """Exact propagation."""

    alpha: float = Field(0.1, gt=0, le=1, description="weight of the transformed features in every step")
    num_layers: int = Field(10, ge=1, description="steps of a pass")


class LazyGNNOptions(APPNPOptions, ClusterOptions, HistoryOptions):
    """Lazy propagation; the defaults are ours."""

    halo: Literal["frozen", "paper", "none"] = Field("frozen", description="neighbours around a batch; see the docs")
    num_layers: int = Field(2, ge=1, description="steps of a pass")
    start: Literal["drift", "mix"] = Field("drift", description="warm start; mix is the paper's")
    beta: float | None = Field(
        None, ge=0, le=1, description="weight of fresh features in the start value; empty is 0.1 for every two steps"
    )
    gamma: float = Field(1.0, ge=0, le=1, description="weight of fresh gradients; 1 keeps no gradient history")
    halo_gradients: bool = Field(False, description="keep gradients for the halo, which carries them over cut edges")
    response: Literal["auto", "fitted", "plain"] = Field(
        "auto", description="answer to a change of the input; auto is fitted, but plain for a mix, which sees no change"
    )
    label_step: bool | None = Field(
        None, description="one step more on labelled rows, where the loss looks; empty means in a full batch"
    )
    level: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of the smoothest change that a fitted answer follows; empty is 0.8, with a label step 0.85",
    )
    eval_layers: int | None = Field(None, ge=0, description="exact steps in inference; empty means the fixed point")
    eval_tolerance: float = Field(1e-4, gt=0, lt=1, description="relative error of that fixed point")
    eval_storage: Literal["memory", "disk"] = Field("memory", description="where inference keeps a row per node")

    def ignored(self) -> dict[str, str]:
        """A level without a fitted answer, gradients for a halo that there is not, a label step out of place."""
        found = super().ignored()
        if (reason := self.no_label_step()) is not None:
            found["label_step"] = reason
        if self.level is not None and not self.is_fitted:
            name, value, remedy = ("start", "mix", "drift") if self.start == "mix" else ("response", "plain", "fitted")
            found["level"] = (
                f"`level` is {self.level}, `{name}` {value}, with which no answer is fitted to a level; "
                f"set `{name}={remedy}`, or leave `level` out"
            )
        if self.halo_gradients and self.num_parts == 1:
            found["halo_gradients"] = self.needs_parts("halo_gradients")
        elif self.halo_gradients and self.halo == "none":
            found["halo_gradients"] = (
                "`halo_gradients` is true, `halo` none; gradients are kept for the halo alone: "
                "set `halo=frozen`, or leave `halo_gradients` out"
            )
        return found

    def no_label_step(self) -> str | None:
        """Why a step on labelled rows cannot be taken, and what to do; None where it can, or is not asked for."""
        remedy = "or leave `label_step` out"
        if self.label_step and self.num_parts > 1:
            return (
                f"`label_step` needs the whole graph in a batch, `num_parts` is {self.num_parts}; set it to 1, {remedy}"
            )
        if self.label_step and self.gamma < 1:
            return f"`label_step` keeps no gradient, `gamma` is {self.gamma}; set `gamma=1`, {remedy}"
        if self.label_step and self.halo_gradients:
            return f"`label_step` keeps no gradient, `halo_gradients` is true; leave that out, {remedy}"
        return None

    def chosen(self) -> dict[str, Any]:
        """The start value's mix, whether and to what the answer is fitted, whether a step is taken on labelled rows."""
        beta = round(mix_of(self), 6) if self.beta is None else self.beta
        chosen = {"beta": beta, "response": "plain", "label_step": self.has_label_step}
        if self.is_fitted:
            level = default_level(self.has_label_step) if self.level is None else self.level
            chosen |= {"response": "fitted", "level": level}
        return super().chosen() | chosen

    @property
    def is_fitted(self) -> bool:
        """Whether the answer to a change is fitted to the graph; a mix sees no change."""
        return self.start == "drift" and self.response != "plain"

    @property
    def has_label_step(self) -> bool:
        """Whether a pass takes a step on labelled rows: as asked, or else where an answer is fitted and it can."""
        if self.label_step is not None:
            return self.label_step
        return self.is_fitted and self.num_parts == 1 and self.gamma == 1 and not self.halo_gradients


class PaperOptions(LazyGNNOptions):
    """Lazy propagation as the paper describes it."""

    start: Literal["drift", "mix"] = Field("mix", description="warm start")
    beta: float | None = Field(0.5, ge=0, le=1, description="weight of fresh features in the start value")
    gamma: float = Field(0.5, ge=0, le=1, description="weight of fresh gradients")
    halo: Literal["frozen", "paper", "none"] = Field("paper", description="neighbours around a batch")


def transform_and(propagation: Propagation, options: MLPOptions, graph: Graph, *, scratch: Path | None = None) -> Model:
    """The MLP of the options with a propagation behind it."""
    channels = channels_of(options, graph)
    transform = MLP(
        graph.in_channels,
        options.hidden_channels,
        channels,
        mlp_layers=options.mlp_layers,
        norm=options.norm,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
    )
    head = None if options.prop_channels is None else Linear(channels, graph.task.num_outputs)
    return Decoupled(transform, propagation, head, scratch=scratch)


def channels_of(options: MLPOptions, graph: Graph) -> int:
    """Width of what is propagated."""
    return options.prop_channels or graph.task.num_outputs


def _mlp(options: MLPOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    return transform_and(NoPropagation(), options, graph)


def _appnp(options: APPNPOptions, graph: Graph, place: Place) -> Model:  # noqa: ARG001
    return transform_and(ExactPropagation(options.alpha, options.num_layers), options, graph)


def mix_of(options: LazyGNNOptions) -> float:
    """Weight of fresh features in the start value: the option, or what reaches as far as ten exact steps do."""
    return 1 - 0.9 ** (options.num_layers / 2) if options.beta is None else options.beta


def _lazygnn(options: LazyGNNOptions, graph: Graph, place: Place) -> Model:
    def history(name: str, start: WarmStart) -> History:
        return options.open(graph, channels_of(options, graph), start, place, name) if place.training else NoHistory()

    def start(weight: float) -> WarmStart:
        return Drift(weight) if options.start == "drift" else Mix(weight)

    gradients: History = NoHistory()
    if options.gamma < 1:
        gradients = history("gradients", start(options.gamma))
    elif options.halo_gradients:
        # targets start from the fresh gradient; only the halo stands at what was kept
        gradients = history("gradients", Mix(1.0))

    if (reason := options.no_label_step()) is not None:
        raise ConfigError(reason)
    if options.response == "fitted" and options.start != "drift":
        raise ConfigError("`response=fitted` looks at changes of the input, which `start=drift` keeps; set that too")
    propagation = LazyPropagation(
        options.alpha,
        history("features", start(mix_of(options))),
        gradients,
        eval_layers=options.eval_layers,
        eval_tolerance=options.eval_tolerance,
    )
    if place.training and options.is_fitted:
        propagation.fit(graph.adj, options.num_layers, label_step=options.has_label_step, level=options.level)
    return transform_and(propagation, options, graph, scratch=place.folder if options.eval_storage == "disk" else None)


def _rows(options: MLPOptions, cut: Cut, place: Place) -> Loader:
    return make_loader(options, cut, place, num_layers=0)


def _layers(options: APPNPOptions, cut: Cut, place: Place) -> Loader:
    label_step = isinstance(options, LazyGNNOptions) and options.has_label_step
    return make_loader(options, cut, place, options.num_layers, label_step=label_step)


MLP_ALONE = Method("a multi-layer perceptron that does not see the graph", "-", MLPOptions, _mlp, _rows)
APPNP = Method(
    "MLP, then exact propagation in every pass",
    "Gasteiger et al., Predict then Propagate, ICLR 2019",
    APPNPOptions,
    _appnp,
    _layers,
)
LAZYGNN = Method(
    "MLP, then lazy propagation from a drifting history; our default",
    "Xue et al., LazyGNN, ICML 2023, with the warm start of docs/paper.md",
    LazyGNNOptions,
    _lazygnn,
    _layers,
)
LAZYGNN_PAPER = Method(
    "MLP, then lazy propagation with the paper's momentum, forward and backward",
    "Xue et al., LazyGNN, ICML 2023",
    PaperOptions,
    _lazygnn,
    _layers,
)
