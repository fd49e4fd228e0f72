"""Steps captured once and replayed: on a CPU with functions in place of graphs."""

import gc
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader
from lazygnn.training.capture import CapturedSteps, CudaCapture, Launch

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def some_optimizer() -> torch.optim.Optimizer:
    return torch.optim.Adam([torch.nn.Parameter(torch.zeros(()))])


def test_the_first_visit_is_a_step_and_all_later_ones_are_replays(block_graph: Graph, recorder: Any) -> None:
    seen = list[int]()
    optimizer = some_optimizer()

    def step(batch: Batch) -> Tensor:
        seen.append(id(batch))
        return torch.tensor(float(len(seen)))

    step_on = CapturedSteps(step, optimizer, lambda: recorder)
    one, two = (Batch.full(block_graph, 1) for _ in range(2))
    assert [float(step_on(batch)) for batch in (one, two)] == [1, 2]
    assert recorder.captured == 0
    losses = [step_on(batch) for batch in (two, one, two)]
    # a returned loss is not overwritten by the next replay
    assert [float(loss) for loss in losses] == [3, 4, 5]
    assert seen == [id(batch) for batch in (one, two, two, one, two)]
    assert (recorder.captured, recorder.replayed) == (2, 3)


def test_the_largest_batch_is_captured_first(block_graph: Graph) -> None:
    sizes: list[int] = []
    optimizer = some_optimizer()

    def capture(function: Callable[[], None]) -> Launch:
        function()
        return lambda: None

    def step(batch: Batch) -> Tensor:
        sizes.append(len(batch.x))
        return torch.zeros(())

    step_on = CapturedSteps(step, optimizer, lambda: capture)
    batches = list(ClusterLoader(block_graph, torch.tensor([0, 15, 25, 48, 60]), 2))
    for batch in [*batches, batches[0]]:
        step_on(batch)
    assert sizes[len(batches) :] == sorted(sizes[: len(batches)], reverse=True)


def test_a_batch_that_never_comes_again_is_not_kept(block_graph: Graph, recorder: Any) -> None:
    step_on = CapturedSteps(lambda _: torch.zeros(()), some_optimizer(), lambda: recorder)
    for _ in range(3):
        step_on(Batch.full(block_graph, 1))
    gc.collect()
    assert len(step_on._met) == 0


def test_gradients_are_freed_after_a_replay(block_graph: Graph, recorder: Any) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([weight])

    def step(_: Batch) -> Tensor:
        loss = weight.sum()
        loss.backward()
        return loss.detach()

    step_on, batch = CapturedSteps(step, optimizer, lambda: recorder), Batch.full(block_graph, 1)
    step_on(batch)
    assert weight.grad is not None
    step_on(batch)
    assert weight.grad is None


def test_what_is_forgotten_is_captured_again(block_graph: Graph, recorder: Any) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(type(recorder)())
        return made[-1]

    step_on = CapturedSteps(lambda _: torch.zeros(()), some_optimizer(), make)
    one, two = (Batch.full(block_graph, 1) for _ in range(2))
    # nothing is captured yet
    step_on.forget()
    for batch in (one, two, one):
        step_on(batch)
    step_on.forget()
    for batch in (two, one):
        step_on(batch)
    # the memory of one capture is not that of the other
    assert [(recorder.captured, recorder.replayed) for recorder in made] == [(2, 1), (2, 2)]


def test_no_garbage_is_collected_while_a_step_is_captured(block_graph: Graph) -> None:
    collecting = list[bool]()

    def capture(function: Callable[[], None]) -> Launch:
        collecting.append(gc.isenabled())
        return function

    optimizer = some_optimizer()
    step_on, batch = CapturedSteps(lambda _: torch.zeros(()), optimizer, lambda: capture), Batch.full(block_graph, 1)
    step_on(batch)
    step_on(batch)
    assert collecting == [False]
    assert gc.isenabled()


@pytest.mark.gpu
@gpu
def test_a_failed_capture_names_the_remedy() -> None:
    # a capture that fails leaves torch in a state that no other test should see
    script = """
import torch
from lazygnn.training.capture import CudaCapture
optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(2, device="cuda"))])
CudaCapture(optimizer, torch.device("cuda"))(lambda: float(torch.ones((), device="cuda")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert re.search(r"ConfigError: a step cannot be captured as a CUDA graph .*; set `cuda_graphs=off`", done.stderr)


class Named:
    """Stands in for a stream that records what waits for it."""

    device = torch.device("cpu")

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_stream(self, other: "Named") -> None:
        self.log.append(f"{self.name} waits for {other.name}")


@pytest.mark.parametrize("fails", [False, True])
def test_replays_and_captures_wait_for_each_other(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    log = list[str]()

    class Graph:
        def replay(self) -> None:
            log.append("replay")

    def function() -> None:
        log.append("capture")
        if fails:
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Named("main", log))
    monkeypatch.setattr("lazygnn.training.capture._stream", lambda _: Named("side", log))
    capture = CudaCapture(some_optimizer(), Named.device)
    if fails:
        with pytest.raises(ConfigError, match="not permitted"):
            capture(function)
        # the stream may still be capturing
        assert log == ["side waits for main", "capture"]
    else:
        capture(function)()
        assert log == ["side waits for main", "capture", "main waits for side", "replay"]


@pytest.mark.gpu
@gpu
def test_the_first_replay_draws_what_a_launch_would(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(torch.cuda.CUDAGraph):
        def capture_begin(self, *args: Any, **named: Any) -> None:
            # as if others used the device: what torch does before a capture comes late
            torch.cuda._sleep(10**8)
            super().capture_begin(*args, **named)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Late)
    drawn = torch.empty(8, device="cuda")
    torch.manual_seed(0)
    # the first draws are not those of a new generator
    drawn.uniform_()
    state = torch.cuda.get_rng_state()
    expected = torch.empty(8, device="cuda").uniform_()
    torch.cuda.set_rng_state(state)

    def draw() -> None:
        # keeps the offset from being read before torch has cleared it
        torch.cuda._sleep(10**9)
        drawn.uniform_()

    parameter = torch.nn.Parameter(torch.zeros((), device="cuda"))
    CudaCapture(torch.optim.Adam([parameter]), torch.device("cuda"))(draw)()
    assert torch.equal(drawn, expected)
