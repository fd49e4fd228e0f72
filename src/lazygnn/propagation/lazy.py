"""Lazy propagation: a few steps per pass, from the result of the last pass."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.batch import Batch, check_batch
from lazygnn.errors import ConfigError, wrong_type
from lazygnn.graph import check_num_nodes
from lazygnn.history import History, NoHistory, StoredHistory
from lazygnn.history.device import DeviceStore
from lazygnn.history.pinned import PinnedStore
from lazygnn.ops import Adjacency
from lazygnn.propagation.base import Diffusion, exact_views, whole_matrix
from lazygnn.propagation.diagnostics import Diagnostics
from lazygnn.propagation.passes import Mix, Rule, propagate
from lazygnn.propagation.response import Response, fit_response
from lazygnn.propagation.views import near_and_far


class LazyPropagation(Diffusion):
    """Propagates a few steps and lets training iterations do the rest (LazyGNN, Eqs. 5-7, 13-21).

    Starts from the features stored for these nodes, corrected by the fresh ones, and differentiates through the fixed
    point instead of the steps taken, so nothing is kept for the backward pass. Takes plain steps until `fit` is called.

    Args:
        alpha: Weight of `x_in` in every step, in (0, 1].
        features: History of the forward pass; its warm start holds `beta`.
        gradients: History of the backward pass; its warm start holds `gamma`. `None` stores nothing and starts from the
            fresh gradient.
        eval_layers: Exact steps in inference; `None` solves for the fixed point.
        eval_tolerance: Tolerance of that fixed point, relative to its input.
        sign: 1 for the low-pass of the paper; -1 for the high-pass, `x <- -(1 - alpha) A x + alpha x_in`.

    Attributes:
        response: Weights of a change of the input, in the start value and in every step; `None` takes plain steps.
    """

    def __init__(
        self,
        alpha: float,
        features: History,
        gradients: History | None = None,
        *,
        eval_layers: int | None = None,
        eval_tolerance: float = 1e-4,
        sign: int = 1,
    ) -> None:
        super().__init__(alpha, eval_layers=eval_layers, eval_tolerance=eval_tolerance, sign=sign)
        self.features = features
        self.gradients: History = NoHistory() if gradients is None else gradients
        self.response: Response | None = None
        self._diagnostics = Diagnostics()
        for name, history in {"features": self.features, "gradients": self.gradients}.items():
            if not isinstance(history, History):
                remedy = "open one with `open_history(num_nodes, channels, Drift())`"
                raise ConfigError(wrong_type(name, history, remedy))

    def fit(
        self, adj: Adjacency, num_layers: int, *, label_step: bool = False, level: float | None = None, seed: int = 0
    ) -> Self:
        """Fits the response to a graph, for this `alpha` and the `beta` of the feature history.

        Args:
            adj: Normalized and symmetric.
            num_layers: Steps of a pass.
            label_step: Whether batches take one more step on labeled rows.
            level: Share of the smoothest change that a pass follows, in (0, 1]; see `fit_response`.
            seed: Seed of the random probes.
        """
        for history in (self.features, self.gradients):
            _check_stores_inputs(history)
        beta = self.features.warm.beta if isinstance(self.features, StoredHistory) else 0.0
        self.response = fit_response(
            adj,
            self.alpha,
            num_layers,
            further=int(label_step),
            beta=beta,
            level=level,
            seed=seed,
            sign=self.sign,
        )
        return self

    def fill(self, x_in: Tensor, batch: Batch) -> None:
        """Stores the input of the targets as their first solution, so that no halo row is ever empty."""
        self.features.push(batch.targets, x_in, x_in)

    def diagnose(self, adj: Adjacency, x_in: Callable[[], Tensor]) -> dict[str, float]:
        """Returns the error of the stored solution, and of the last gradient of a full batch, against exact ones."""
        return self._diagnostics.report(self.features, adj, self.alpha, x_in, sign=self.sign)

    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """Propagates the batch lazily in training mode, and exactly in evaluation mode, which needs a full batch."""
        if not self.training:
            return self.infer(x_in, whole_matrix(batch))
        return propagate(x_in, batch, self._rule(x_in, batch))

    def views(self, x_in: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns `A x_in` and the propagated rows of the targets, exact in evaluation mode, [T, C] each."""
        if not self.training:
            return exact_views(self, x_in, batch)
        return near_and_far(x_in, batch, self._rule(x_in, batch))

    def stored_rows(self, x_in: Tensor) -> list[Tensor]:
        """Returns the stored solution of every node, and the input it belongs to where the history stores it.

        These are the tables of the history where it stores such numbers: read them, do not change them. Returns nothing
        if a row was never written, or if the history is not in the memory of the compute device.
        """
        history = self.features
        if not isinstance(history, StoredHistory) or not history.complete:
            return []
        if not isinstance(history.values, DeviceStore) or isinstance(history.values, PinnedStore):
            return []
        if history.values.device.type != x_in.device.type or history.values.num_rows != len(x_in):
            return []
        nodes = torch.arange(len(x_in), device=x_in.device)
        # a copy of all rows would be as large as the history; rows of this process are the first of its tables
        tables = [store.locate(nodes).table[: len(nodes)] for store in history.stores.values()]
        return [table.to(x_in.dtype) for table in tables]

    def near_solution(self, adj: Adjacency, x_in: Tensor, *stored: Tensor) -> Tensor:
        """Returns the stored solution after the steps of a pass, which stores nothing here."""
        if not isinstance(self.features, StoredHistory) or len(stored) == 1:
            # without the input of the stored solution, its change is not known; the result may not be the table itself
            return super().near_solution(adj, x_in, *stored).clone()
        response = Response.plain(1) if self.response is None else self.response
        values, inputs = stored
        return ops.run_steps(
            [adj] * len(response.sources),
            self.features.warm.targets(x_in, values, inputs, response.start),
            x_in,
            self.alpha,
            weights=response.sources,
            previous=None if response.is_plain else inputs,
            sign=self.sign,
        )

    def _rule(self, x_in: Tensor, batch: Batch) -> Rule:
        check_batch(batch)
        self._check_batch(x_in, batch)
        measuring = batch.whole and isinstance(self.features, StoredHistory) and self.features.measure
        return Rule(
            self.alpha,
            self.features,
            self.gradients,
            self._response(batch),
            observe=self._diagnostics.observe if measuring else None,
            sign=self.sign,
        )

    def _check_batch(self, x_in: Tensor, batch: Batch) -> None:
        """Refuses a batch that does not fit the histories."""
        if batch.labeled is not None and not isinstance(self.gradients, NoHistory):
            raise ConfigError(
                "a step on labeled rows stores no gradient; build the batch with `label_step=False`, or store no "
                "gradients: `gradients=None`, or `gradient_start=None` of `LazyGNN`"
            )
        for history in (self.features, self.gradients):
            if not isinstance(history, StoredHistory):
                continue
            stored, given = history.values.channels, x_in.shape[1]
            if stored != given:
                raise ConfigError(
                    f"the history stores {stored} columns, {given} are propagated; open it with `channels={given}`"
                )
            if batch.whole:
                check_num_nodes(history.values.num_rows, len(batch.nodes))

    def _response(self, batch: Batch) -> Response:
        num_layers, further = len(batch.adjs), int(batch.labeled is not None)
        if self.response is None:
            return Response.plain(num_layers, further)
        fitted = self.response
        if (fitted.num_layers, fitted.further) != (num_layers, further):
            raise ConfigError(
                f"the response is fitted to {fitted.num_layers} steps and {fitted.further} on labeled rows, this batch "
                f"takes {num_layers} and {further}; call `fit(adj, num_layers={num_layers}, label_step={further == 1})`"
            )
        return self.response


def _check_stores_inputs(history: History) -> None:
    # a warm start that ignores its history has nothing to compare with
    if isinstance(history, StoredHistory) and history.inputs is None and history.warm != Mix(1.0):
        raise ConfigError(
            f"a fitted response needs a history that stores inputs, {history.warm} stores none; "
            "open it with `Drift(...)`, or do not call `fit`"
        )
