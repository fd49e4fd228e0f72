"""LazyGNN: an MLP, then a few steps from the stored result of the last pass; https://arxiv.org/abs/2302.01503."""

from typing import Annotated, Literal, Self

import torch
from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import History, NoHistory
from lazygnn.history.warmstart import WarmStart
from lazygnn.methods.appnp import APPNPOptions
from lazygnn.methods.base import Cut, Method, Place
from lazygnn.methods.loaders import LoaderOptions
from lazygnn.methods.mlp import adapt, transform_and
from lazygnn.methods.options import HistoryOptions, InferenceOptions, default_beta
from lazygnn.model import Model
from lazygnn.propagation import Drift, LazyPropagation, Mix
from lazygnn.propagation.response import default_level
from lazygnn.tunable import Range


class LazyGNNOptions(APPNPOptions, LoaderOptions, HistoryOptions, InferenceOptions):
    """The MLP, the steps, the histories and the batches; the defaults are ours."""

    halo: Literal["frozen", "paper", "none"] = Field("frozen", description="neighbors around a batch")
    num_layers: Annotated[int, Range(1, 4)] = Field(2, ge=1, le=10_000, description="steps of a pass")
    start: Literal["drift", "mix"] = Field("drift", description="warm start; mix is the paper's")
    beta: float | None = Field(
        None, ge=0, le=1, description="weight of fresh features in the start value; empty means 0.1 per two steps"
    )
    gamma: float = Field(
        1.0, ge=0, le=1, description="weight of fresh gradients in the start value; 1 stores no gradients"
    )
    halo_gradients: bool = Field(False, description="store gradients for the halo, to carry them over cut edges")
    response: Literal["auto", "fitted", "plain"] = Field(
        "auto", description="response to a change of the input; auto means fitted with a drift, plain with a mix"
    )
    label_step: bool | None = Field(
        None, description="one more step on labeled rows; empty means in full batch with a fitted response"
    )
    level: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of the smoothest change that a fitted response follows at once; "
        "empty means 0.8, with a label step 0.85",
    )

    def resolved(self) -> Self:
        """Fills in `beta`, `response`, `label_step` and, for a fitted response, `level`."""
        beta = default_beta(self.num_layers) if self.beta is None else self.beta
        drifts: Literal["fitted", "plain"] = "fitted" if self.start == "drift" else "plain"
        response = drifts if self.response == "auto" else self.response
        label_step, level = self.label_step, self.level
        if label_step is None:
            stores_no_gradient = self.gamma == 1 and not self.halo_gradients
            label_step = response == "fitted" and self.full_batch and stores_no_gradient
        if level is None and response == "fitted":
            level = default_level(label_step)
        filled = {"beta": beta, "response": response, "label_step": label_step, "level": level}
        return super().resolved().model_copy(update=filled)

    def ignored(self) -> dict[str, str]:
        """Adds a level without a fitted response, gradients without a halo and a label step that cannot be taken."""
        found = super().ignored()
        if (conflict := self._label_step_conflict()) is not None:
            found["label_step"] = conflict
        if self.level is not None and (self.start == "mix" or self.response == "plain"):
            name, value, remedy = ("start", "mix", "drift") if self.start == "mix" else ("response", "plain", "fitted")
            found["level"] = (
                f"`level` is {self.level}, but `{name}` is {value}, with which no response is fitted; "
                f"set `{name}={remedy}`, or omit `level`"
            )
        if self.halo_gradients and self.full_batch:
            found["halo_gradients"] = self.needs_parts("halo_gradients")
        elif self.halo_gradients and self.loader == "cluster" and self.halo == "none":
            found["halo_gradients"] = (
                "`halo_gradients` is true, but `halo` is none, so batches have no halo to store gradients for; "
                "set `halo=frozen`, or omit `halo_gradients`"
            )
        return found

    def check(self, device: torch.device) -> None:
        """Refuses a label step that cannot be taken, and a response that cannot be fitted."""
        if (conflict := self._label_step_conflict()) is not None:
            raise ConfigError(conflict)
        if self.response == "fitted" and self.start != "drift":
            raise ConfigError(
                f"`response` is fitted, but `start` is {self.start}, which does not store the last input; "
                "set `start=drift`, or omit `response`"
            )
        super().check(device)

    def _label_step_conflict(self) -> str | None:
        if not self.label_step:
            return None
        if self.loader != "cluster":
            return (
                f"`label_step` is true, but `loader` is {self.loader}; it needs full batch: "
                "set `loader=cluster`, or omit `label_step`"
            )
        if self.num_parts > 1:
            return (
                f"`label_step` is true, but `num_parts` is {self.num_parts}; it needs full batch: "
                "set `num_parts=1`, or omit `label_step`"
            )
        if self.gamma < 1:
            return (
                f"`label_step` is true, but `gamma` is {self.gamma}; it stores no gradients: "
                "set `gamma=1`, or omit `label_step`"
            )
        if self.halo_gradients:
            return (
                "`label_step` is true, but `halo_gradients` is true; it stores no gradients: "
                "omit `halo_gradients` or `label_step`"
            )
        return None


def make_model(options: LazyGNNOptions, graph: Graph, place: Place) -> Model:
    """Builds the MLP with lazy propagation; histories and a fitted response are for training alone."""
    assert options.beta is not None

    def history(name: str, start: WarmStart) -> History:
        return options.open(graph, options.channels(graph), start, place, name) if place.training else NoHistory()

    start = Drift if options.start == "drift" else Mix
    gradients: History = NoHistory()
    if options.gamma < 1:
        gradients = history("gradients", start(options.gamma))
    elif options.halo_gradients:
        # targets start from the fresh gradient; only the halo reads stored rows
        gradients = history("gradients", Mix(1.0))
    propagation = LazyPropagation(
        options.alpha,
        history("features", start(options.beta)),
        gradients,
        eval_layers=options.eval_layers,
        eval_tolerance=options.eval_tolerance,
    )
    if place.training and options.response == "fitted":
        propagation.fit(graph.adj, options.num_layers, label_step=options.label_step is True, level=options.level)
    return transform_and(propagation, options, graph, scratch=options.scratch(place))


def make_loader(options: LazyGNNOptions, cut: Cut, place: Place) -> Loader:
    """Builds a loader of parts, of the whole graph, or of samples."""
    return options.load(cut, place, options.num_layers, label_step=options.label_step is True)


METHOD = Method(
    "MLP, then lazy propagation from a drifting history; for speed",
    "Xue et al., LazyGNN, ICML 2023, with the warm start of docs/paper.md",
    LazyGNNOptions,
    make_model,
    make_loader,
    adapt=adapt,
)
