"""The stored history: a warm start over one or two stores, and when each row was written.

`N` nodes of the graph, `V` of the batch, `T` targets, `F` rows with a fresh value, `C` channels.
"""

import math
from collections.abc import Mapping
from types import ModuleType

import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.history.base import History, Start, Store, check_state
from lazygnn.history.warmstart import WarmStart


class StoredHistory(History):
    """Warm-starts passes from stored rows; a row that was never written is a cold start.

    Args:
        warm: Combines stored and fresh rows.
        values: Stores the results of passes.
        inputs: Stores the inputs of passes, for a warm start that needs them.
        halo_inputs: Whether `start` also returns the inputs of nodes that are not targets.

    Attributes:
        stores: The stores by kind; a replayed step replaces them while it runs.
        measure: Whether `start` measures for `drift_norm`; costs a pass over the targets.
    """

    def __init__(self, warm: WarmStart, values: Store, inputs: Store | None, *, halo_inputs: bool = False) -> None:
        if warm.stores_inputs != (inputs is not None):
            raise ValueError(f"{warm} {'needs' if warm.stores_inputs else 'does not use'} a store for its inputs")
        if halo_inputs and inputs is None:
            raise ValueError(f"`halo_inputs` needs stored inputs, {warm} stores none; use `Drift(...)`")
        self.warm = warm
        self.halo_inputs = halo_inputs
        self.stores: dict[str, Store] = {"values": values} | ({} if inputs is None else {"inputs": inputs})
        self.measure = False
        # step of the last push, -1 before the first; on the compute device, so that a push does not synchronize
        self.pushed = torch.full((values.num_rows,), -1, dtype=torch.int32, device=values.device)
        # on the device too, so that every replay of a CUDA graph counts
        self.num_pushes = torch.zeros((), dtype=torch.int64, device=values.device)
        self._complete = False
        # an upper bound on the number of rows written
        self._rows_pushed = 0
        # squared norms of the drift and of the inputs it is measured against
        self._norms = torch.zeros(2, device=values.device)

    @property
    def values(self) -> Store:
        """Returns the store of the results of passes."""
        return self.stores["values"]

    @property
    def inputs(self) -> Store | None:
        """Returns the store of the inputs of passes; `None` if the warm start does not need them."""
        return self.stores.get("inputs")

    def prefetch(self, nodes: Tensor, num_targets: int) -> None:
        """Prefetches the rows that `start` reads."""
        for kind, rows in self.reads(nodes, num_targets).items():
            self.stores[kind].prefetch(rows)

    def reads(self, nodes: Tensor, num_targets: int) -> dict[str, Tensor]:
        """Returns the rows of each store that a pass over these nodes starts from."""
        return dict(zip(self.stores, (nodes, nodes if self.halo_inputs else nodes[:num_targets]), strict=False))

    def start(
        self, nodes: Tensor, num_targets: int, fresh: Tensor, weight: float = 1.0, *, with_previous: bool = True
    ) -> Start:
        """Warm-starts the rows that `fresh` covers; the others keep their stored value."""
        fresh = fresh.to(self.values.codec.compute_dtype)
        kernels = ops.history_rows(fresh) if self._complete else None
        if kernels is not None:
            return self._start_at_once(kernels, nodes, num_targets, fresh, weight, with_previous)
        rows = self.reads(nodes, num_targets)
        stored = self.values.read(rows["values"])
        inputs = None if self.inputs is None else self.inputs.read(rows["inputs"])
        previous = None if inputs is None else inputs[:num_targets]
        halo = inputs[len(fresh) :] if inputs is not None and len(inputs) > len(fresh) else None
        known = None if self._complete else self._known(nodes[: len(fresh)])
        if self.measure and previous is not None:
            self._measure(fresh[:num_targets], previous, known)
        warm = self.warm.targets(fresh[:num_targets], stored[:num_targets], previous, weight)
        previous = previous if with_previous else None
        if known is not None:
            # a first input is a change from zero, so that the first pass is linear in it, as its backward pass is
            warm = torch.where(known[:num_targets], warm, weight * fresh[:num_targets])
            previous = None if previous is None else torch.where(known[:num_targets], previous, 0)
        if len(fresh) > num_targets:
            below = self.warm.halo(fresh[num_targets:], stored[num_targets : len(fresh)])
            if known is not None:
                below = torch.where(known[num_targets:], below, fresh[num_targets:])
            warm = torch.cat((warm, below))
            previous = None if previous is None else torch.cat((previous, fresh[num_targets:]))
        if len(fresh) == len(nodes):
            return Start(warm, previous, halo)
        # a read returns a copy, so the halo below can stay in place
        stored[: len(fresh)] = warm
        return Start(stored, previous, halo)

    def push(self, targets: Tensor, values: Tensor, fresh: Tensor) -> None:
        """Stores the result and the input of a pass, and records the step."""
        if not self._push_at_once(targets, values.detach(), fresh.detach()):
            self.values.write(targets, values[: len(targets)])
            if self.inputs is not None:
                self.inputs.write(targets, fresh[: len(targets)])
            step = self.num_pushes.to(self.pushed.dtype).expand(len(targets))
            self.pushed.index_copy_(0, targets.to(self.pushed.device), step)
        self.num_pushes += 1
        self._rows_pushed += len(targets)
        self._complete = self._complete or self._covers_all(len(targets))

    @property
    def copies_at_once(self) -> bool:
        """Returns whether every store copies at once."""
        return all(store.copies_at_once for store in self.stores.values())

    @property
    def complete(self) -> bool:
        """Returns whether every row has been written."""
        return self._complete

    @property
    def prefetches(self) -> bool:
        """Returns whether rows are not on the compute device, so that prefetching saves time."""
        return self.values.parts["rows"].device.type != self.values.device.type

    @property
    def age(self) -> Tensor:
        """Returns the pushes since each row was written, [N]; a row that was never written is as old as the history."""
        return self.num_pushes - self.pushed - 1

    def mean_age(self) -> float:
        """Returns the mean of `age`."""
        return float(self.age.to(torch.float32).mean())

    def drift_norm(self) -> float | None:
        """Returns how far inputs moved between two visits, relative to their norm, since the last call.

        Returns `None` if nothing was measured, or if the warm start stores no inputs.
        """
        moved, size = self._norms.tolist()
        self._norms.zero_()
        return math.sqrt(moved / size) if size > 0 else None

    @property
    def num_bytes(self) -> int:
        """Returns the bytes of the stored rows."""
        return sum(store.num_bytes for store in self.stores.values())

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the state to resume training from; the rows are live tensors, not copies."""
        state = {f"{kind}.{name}": t for kind, store in self.stores.items() for name, t in store.state().items()}
        complete = torch.tensor(int(self._complete))
        return state | {
            "pushed": self.pushed,
            "norms": self._norms,
            "num_pushes": self.num_pushes,
            "complete": complete,
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copies a state of `state_dict` into this history."""
        check_state(self.state_dict(), state)
        for kind, store in self.stores.items():
            store.load({name: state[f"{kind}.{name}"] for name in store.parts})
        self.pushed.copy_(state["pushed"])
        self._norms.copy_(state["norms"])
        self.num_pushes.copy_(state["num_pushes"])
        self._complete = bool(state["complete"])
        self._rows_pushed = int((self.pushed >= 0).sum())

    def _start_at_once(
        self, kernels: ModuleType, nodes: Tensor, num_targets: int, fresh: Tensor, weight: float, with_previous: bool
    ) -> Start:
        rows = self.reads(nodes, num_targets)
        values = self.values.locate(rows["values"])
        inputs = None if self.inputs is None else self.inputs.locate(rows["inputs"])
        near = None if inputs is None else inputs.between(0, num_targets)
        blend = self.warm.blend(weight)._asdict()
        x, previous = kernels.gather(
            values, near, fresh, num_targets, **blend, with_previous=with_previous or self.measure
        )
        if self.measure and previous is not None:
            self._measure(fresh[:num_targets], previous[:num_targets], None)
        halo = None
        if inputs is not None and self.halo_inputs and len(fresh) < len(nodes):
            # a copy, since the next write may change what was located
            halo, _ = kernels.gather(inputs.between(len(fresh), len(nodes)), None, fresh[:0], 0, beta=0.0)
        return Start(x, previous if with_previous else None, halo)

    def _push_at_once(self, targets: Tensor, values: Tensor, fresh: Tensor) -> bool:
        """Writes everything with one kernel, if there is one for these types."""
        tables = [table for store in self.stores.values() if (table := store.writable()) is not None]
        new = [values, fresh][: len(self.stores)]
        kernels = ops.history_rows(*tables, *new) if len(tables) == len(new) else None
        if kernels is None:
            return False
        pairs = list(zip(tables, new, strict=True))
        kernels.scatter(targets.to(self.pushed.device), pairs, self.pushed, self.num_pushes)
        return True

    def _known(self, nodes: Tensor) -> Tensor:
        return (self.pushed[nodes.to(self.pushed.device)] >= 0).unsqueeze(1)  # [F, 1]

    def _covers_all(self, num_targets: int) -> bool:
        num_rows = self.values.num_rows
        if num_targets == num_rows or self._rows_pushed < num_rows:
            return num_targets == num_rows
        # synchronizes with the device; only once if the targets of an epoch are disjoint
        return bool((self.pushed >= 0).all())

    def _measure(self, fresh: Tensor, previous: Tensor, known: Tensor | None) -> None:
        moved = fresh - previous
        if known is not None:
            # the stored value of the other rows is zero
            moved = torch.where(known[: len(moved)], moved, 0)
        self._norms += torch.stack((moved.square().sum(), previous.square().sum()))
