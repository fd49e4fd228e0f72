"""Functions captured as CUDA graphs, one for each batch.

A step reads its batch where it is in memory and changes weights, optimizer, histories and the random state in place, so
a replay is a step like any other. The first visit of a batch is an ordinary step, which
compiles, measures and caches all that a capture needs. Capturing itself computes nothing.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from weakref import WeakSet

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError

Launch = Callable[[], object]
Capture = Callable[[Callable[[], None]], Launch]


class CapturedSteps:
    """Runs the first step on a batch normally and replays all later ones.

    Graphs share their memory. That is safe because nothing in it outlives a replay: the loss is copied out, and
    gradients are freed.

    Args:
        step: Trains on a batch and returns its loss; only contents of tensors may change between two visits.
        optimizer: The one that `step` uses; its learning rate is a tensor.
        make_capture: Makes a `CudaCapture`, or a substitute in tests.
    """

    def __init__(
        self, step: Callable[[Batch], Tensor], optimizer: torch.optim.Optimizer, make_capture: Callable[[], Capture]
    ) -> None:
        self._step, self._optimizer = step, optimizer
        self._make_capture, self._capture = make_capture, make_capture()
        # a batch that the loader never returns again must not be kept alive
        self._met: WeakSet[Batch] = WeakSet()
        self._graphs: dict[Batch, Launch] = {}
        self._loss: Tensor | None = None

    def __call__(self, batch: Batch) -> Tensor:
        """Takes one step and returns its loss."""
        if self._loss is None or batch not in self._met:
            self._met.add(batch)
            loss = self._step(batch)
            self._loss = torch.empty_like(loss) if self._loss is None else self._loss
            return loss
        if batch not in self._graphs:
            self._capture_all(self._loss)
        self._graphs[batch]()
        return self._loss.clone()

    def forget(self) -> None:
        """Drops all graphs, so that steps are captured again with the memory that they read now."""
        if self._graphs:
            self._graphs.clear()
            # a pool of memory ends with the last of its graphs
            self._capture = self._make_capture()

    def _capture_all(self, loss: Tensor) -> None:
        # the largest come first, so that the others fit in their memory
        with _without_garbage_collection():
            for batch in sorted(self._met, key=lambda batch: len(batch.x), reverse=True):
                if batch not in self._graphs:
                    self._graphs[batch] = self._capture(partial(self._body, batch, loss))

    def _body(self, batch: Batch, loss: Tensor) -> None:
        loss.copy_(self._step(batch))
        self._optimizer.zero_grad()


class CudaCapture:
    """Captures functions as CUDA graphs over one pool of memory.

    Args:
        optimizer: Its step is part of the captured functions.
        device: The GPU.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._optimizer = optimizer
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = _stream(device)

    def __call__(self, function: Callable[[], None]) -> Launch:
        """Returns a function that runs the kernels of `function` again."""
        graph = torch.cuda.CUDAGraph()
        # a loader's thread may wait for the device meanwhile
        capturing = torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local")
        try:
            self._set_capturable(True)
            # before a capture, torch sets the random offset that graphs read to zero, on this stream; an earlier replay
            # may still read it, and the next one sets it
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            with capturing:
                function()
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"a step cannot be captured as a CUDA graph ({reason}); set `cuda_graphs=off`") from error
        finally:
            # torch warns when a capturable optimizer steps outside of a graph
            self._set_capturable(False)
        torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
        return graph.replay

    def _set_capturable(self, capturable: bool) -> None:
        for group in self._optimizer.param_groups:
            group["capturable"] = capturable


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Returns one stream for all captures: libraries keep tens of megabytes for every stream they were called on."""
    return torch.cuda.Stream(device)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keeps memory and graphs from being freed during a capture, which would invalidate it."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
