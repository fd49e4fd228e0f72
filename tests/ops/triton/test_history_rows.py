"""Rows of a history through the kernels, compiled on a device and in the interpreter elsewhere.

Uninitialized memory is NaN.
"""

import re
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory, open_history
from lazygnn.history.warmstart import Blend, WarmStart
from lazygnn.ops.triton import history_rows
from lazygnn.ops.triton.alignment import aligned
from lazygnn.ops.triton.history_row_kernels import gather_rows, scatter_rows
from lazygnn.propagation import Drift, LazyPropagation, Mix
from lazygnn.propagation.response import Response
from tests.helpers import needs_cuda, pairwise
from tests.ops.triton.helpers import DTYPES, INTERPRETED, draw, only_interpreted

ROWS = pytest.mark.parametrize(
    ("columns", "stored", "dtype"), pairwise([1, 3, 47, 48, 100, 130], DTYPES, DTYPES), ids=str
)
# a move and a mix, then only one of them, with small and large weights
BLENDS = [Blend(0.1, move=0.7), Blend(0.6, move=1.0), Blend(0.3), Blend(1.0, scale=0.7)]


def random_rows(
    num_rows: int,
    columns: int,
    device: str,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    used: Tensor | None = None,
) -> Tensor:
    """Returns normally distributed numbers; rows that are not used are NaN."""
    x = draw(num_rows, columns, device, dtype, seed)
    if used is None:
        return x
    keep = torch.zeros(num_rows, 1, dtype=torch.bool, device=device).index_fill_(0, used.long(), True)
    return torch.where(keep, x, torch.nan)


def some_nodes(device: str, size: int, of: int = 60, seed: int = 7) -> Tensor:
    return torch.randperm(of, generator=torch.Generator().manual_seed(seed))[:size].to(device)


def expected_start(stored: Tensor, previous: Tensor | None, fresh: Tensor, num_targets: int, blend: Blend) -> Tensor:
    """Returns the start values by their definition, in float64."""
    out, fresh = stored.double(), fresh.double()
    halo = slice(num_targets, len(fresh))
    moved = out[:num_targets]
    if previous is not None:
        moved = moved + blend.move * (fresh[:num_targets] - previous.double())
    out[halo] = (1 - blend.beta) * out[halo] + blend.beta * fresh[halo]
    out[:num_targets] = blend.scale * ((1 - blend.beta) * moved + blend.beta * fresh[:num_targets])
    return out


def check(out: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Compares with float64: a few roundings in float32, and one more for 16-bit results."""
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=torch.finfo(dtype).eps, atol=2e-6)


def check_converted(out: Tensor, expected: Tensor) -> None:
    """Compares bits, except that the interpreter truncates to bfloat16 instead of rounding."""
    error = 2**-7 if INTERPRETED and torch.bfloat16 in (out.dtype, expected.dtype) else 0
    torch.testing.assert_close(out, expected, rtol=error, atol=0)


@ROWS
def test_start_values_are_gathered_and_blended(
    device: str, columns: int, stored: torch.dtype, dtype: torch.dtype
) -> None:
    nodes = some_nodes(device, 40)
    values = random_rows(60, columns, device, stored, used=nodes)
    inputs = random_rows(60, columns, device, stored, seed=1, used=nodes[:23])
    fresh = random_rows(31, columns, device, dtype, seed=2)
    before = values.clone(), inputs.clone(), fresh.clone()
    for blend in BLENDS if stored == dtype else BLENDS[:1]:
        kept = inputs if blend.move else None
        out, previous = history_rows.gather(
            (values, nodes),
            None if kept is None else (kept, nodes[:23]),
            fresh,
            23,
            **blend._asdict(),
            with_previous=True,
        )
        check(out, expected_start(values[nodes], None if kept is None else kept[nodes[:23]], fresh, 23, blend), dtype)
        check_converted(out[31:], values[nodes[31:]].to(dtype))
        assert (previous is None) == (kept is None)
        if previous is not None and kept is not None:
            check_converted(previous, torch.cat((kept[nodes[:23]].to(dtype), fresh[23:])))
    for now, previous in zip((values, inputs, fresh), before, strict=True):
        torch.testing.assert_close(now, previous, rtol=0, atol=0, equal_nan=True)


def test_the_arithmetic_is_that_of_the_warm_start(device: str) -> None:
    """Compares bits if nothing is multiplied; otherwise a fused multiply-add may round once less."""
    values, previous, fresh = (random_rows(50, 47, device, seed=seed) for seed in range(3))
    for warm, ulps in ((Drift(), 0), (Mix(0.0), 0), (Mix(1.0), 0), (Mix(0.3), 2), (Mix(0.9), 2), (Drift(0.2), 2)):
        kept = previous if warm.stores_inputs else None
        out, _ = history_rows.gather(
            (values, None), None if kept is None else (kept, None), fresh, 30, **warm.blend()._asdict()
        )
        expected = torch.cat((warm.targets(fresh[:30], values[:30], None if kept is None else kept[:30]), fresh[30:]))
        expected[30:] = warm.halo(fresh[30:], values[30:])
        torch.testing.assert_close(out, expected, rtol=ulps * 2**-23, atol=ulps * 2**-23)


def test_start_values_have_aligned_rows(device: str) -> None:
    for dtype, columns, stride in ((torch.float32, 47, 48), (torch.bfloat16, 47, 48), (torch.float32, 1, 4)):
        values = random_rows(5, columns, device, dtype)
        out, _ = history_rows.gather((values, None), None, values[:2], 2, beta=0.5)
        assert (out.shape, out.stride()) == ((5, columns), (stride, 1))
        assert aligned(out) is out
        # The padding is written too.
        assert bool(out.as_strided((5, stride), (stride, 1)).isfinite().all())


@pytest.mark.parametrize("values_in_order", [False, True])
@pytest.mark.parametrize("inputs_in_order", [False, True])
def test_rows_may_have_been_gathered_before(device: str, values_in_order: bool, inputs_in_order: bool) -> None:
    nodes = some_nodes(device, 40).to(torch.int32)
    values, inputs = (random_rows(60, 5, device, seed=seed) for seed in range(2))
    fresh = random_rows(20, 5, device, seed=2)
    stored, previous = values[nodes], inputs[nodes[:20]]
    out, _ = history_rows.gather(
        (stored, None) if values_in_order else (values, nodes),
        (previous, None) if inputs_in_order else (inputs, nodes[:20]),
        fresh,
        20,
        beta=0.25,
        move=1.0,
    )
    check(out, expected_start(stored, previous, fresh, 20, Blend(0.25, move=1.0)), torch.float32)


@pytest.mark.parametrize(
    ("num_nodes", "num_fresh", "num_targets", "columns"),
    [(0, 0, 0, 5), (4, 0, 0, 5), (4, 3, 0, 5), (4, 4, 4, 5), (1, 1, 1, 1), (16, 16, 16, 64)],
)
def test_smallest_shapes(device: str, num_nodes: int, num_fresh: int, num_targets: int, columns: int) -> None:
    nodes = some_nodes(device, num_nodes, of=20)
    values, inputs = (random_rows(20, columns, device, seed=seed) for seed in range(2))
    fresh = random_rows(num_fresh, columns, device, seed=2)
    blend, targets = Blend(0.25, move=1.0), nodes[:num_targets]
    out, previous = history_rows.gather(
        (values, nodes), (inputs, targets), fresh, num_targets, **blend._asdict(), with_previous=True
    )
    check(out, expected_start(values[nodes], inputs[targets], fresh, num_targets, blend), torch.float32)
    assert previous is not None
    assert previous.shape == fresh.shape
    pushed, before = torch.full((20,), -1, dtype=torch.int32, device=device), values.clone()
    history_rows.scatter(targets, [(values, fresh)], pushed, torch.tensor(3, device=device))
    before[targets] = fresh[:num_targets]
    assert torch.equal(values, before)
    assert int((pushed == 3).sum()) == num_targets


def test_views_are_read_as_they_are(device: str, view: Callable[[Tensor], Tensor]) -> None:
    fresh, new = view(random_rows(30, 48, device)), view(random_rows(30, 48, device, seed=1))
    values, inputs = (random_rows(60, fresh.shape[1], device, seed=seed) for seed in (2, 3))
    nodes = some_nodes(device, 55).repeat_interleave(2)[::2]
    targets = nodes[: len(fresh)]
    blend = Blend(0.25, move=1.0)
    out, _ = history_rows.gather((values, nodes), (inputs, targets), fresh, len(fresh), **blend._asdict())
    check(out, expected_start(values[nodes], inputs[targets], fresh, len(fresh), blend), torch.float32)
    expected = values.index_copy(0, targets, new), inputs.index_copy(0, targets, fresh)
    pushed = torch.zeros(60, dtype=torch.int32, device=device)
    history_rows.scatter(targets, [(values, new), (inputs, fresh)], pushed, torch.tensor(1, device=device))
    assert torch.equal(values, expected[0])
    assert torch.equal(inputs, expected[1])


@ROWS
def test_results_of_a_pass_are_scattered(device: str, columns: int, stored: torch.dtype, dtype: torch.dtype) -> None:
    targets = some_nodes(device, 33)
    values, inputs = (random_rows(60, columns, device, stored, seed=seed) for seed in range(2))
    new, fresh = (random_rows(40, columns, device, dtype, seed=seed) for seed in (2, 3))
    expected = [kept.index_copy(0, targets, given[:33].to(stored)) for kept, given in ((values, new), (inputs, fresh))]
    pushed = torch.full((60,), -1, dtype=torch.int32, device=device)
    history_rows.scatter(targets, [(values, new), (inputs, fresh)], pushed, torch.tensor(5, device=device))
    check_converted(values, expected[0])
    check_converted(inputs, expected[1])
    assert torch.equal(pushed, torch.full_like(pushed, -1).index_fill_(0, targets, 5))


def test_shapes_that_do_not_fit_are_refused(device: str) -> None:
    nodes, x = some_nodes(device, 5), random_rows(60, 7, device)
    with pytest.raises(ValueError, match=r"`fresh` has shape \(2, 7\); the pass needs \(3, 7\) or more rows"):
        history_rows.gather((x, nodes), None, x[:2], 3, beta=0.5)
    with pytest.raises(ValueError, match=r"`values` has shape \(5, 7\); the pass needs \(6, 7\)"):
        history_rows.gather((x, nodes), None, x[:6], 3, beta=0.5)
    with pytest.raises(ValueError, match=r"`values` has shape \(5, 7\); the pass needs \(4, 6\)"):
        history_rows.gather((x, nodes), None, x[:4, 1:], 3, beta=0.5)
    with pytest.raises(ValueError, match=r"`inputs` has shape \(2, 7\); the pass needs \(3, 7\)"):
        history_rows.gather((x, nodes), (x, nodes[:2]), x[:4], 3, beta=0.5)
    pushed, step = torch.zeros(60, dtype=torch.int32, device=device), torch.tensor(0, device=device)
    with pytest.raises(ValueError, match=r"`values` has shape \(4, 7\); the pass needs \(5, 7\)"):
        history_rows.scatter(nodes, [(x, x), (x, x[:4])], pushed, step)


def train(history: StoredHistory, dtype: torch.dtype) -> list[Tensor]:
    """Runs ten passes over parts of 40 nodes, of which the first fill the history, and returns their start values."""
    generator, place = torch.Generator().manual_seed(1), history.values.device
    starts: list[Tensor] = []
    for number in range(10):
        nodes = torch.randperm(40, generator=generator)
        num_nodes, num_targets = (40, 40) if number in (2, 7) else (30, 11)
        nodes = nodes[:num_nodes].to(place)
        num_fresh = num_targets if number % 2 else (num_nodes + num_targets) // 2
        fresh = torch.randn(num_fresh, 5, generator=generator).to(place, dtype)
        history.measure = number in (5, 6)
        history.prefetch(nodes, num_targets)
        x, previous, halo = history.start(nodes, num_targets, fresh)
        starts += [part for part in (x, previous, halo) if part is not None]
        history.push(nodes[:num_targets], torch.sin(x), fresh)
    return starts


def alike(
    history: StoredHistory, twin: StoredHistory, starts: list[Tensor], others: list[Tensor], error: float
) -> None:
    for start, other in zip(starts, others, strict=True):
        torch.testing.assert_close(start, other, rtol=error, atol=error)
    state, expected = history.state_dict(), twin.state_dict()
    for name in expected:
        # An int8 value may be rounded in the other direction.
        off = 1 if expected[name].dtype == torch.int8 else error
        torch.testing.assert_close(state[name], expected[name], rtol=error, atol=off)
    drift, measured = history.drift_norm(), twin.drift_norm()
    assert (drift is None) == (measured is None)
    if drift is not None:
        assert drift == pytest.approx(measured, rel=max(error, 1e-6))


STARTS: list[WarmStart] = [Mix(0.4), Mix(1.0), Drift(), Drift(0.1), Drift(0.7)]


@only_interpreted
@pytest.mark.parametrize("start", STARTS, ids=str)
@pytest.mark.parametrize(
    ("kept", "dtype", "error"),
    [
        (torch.float32, torch.float32, 1e-6),
        (torch.float64, torch.float32, 1e-6),
        (torch.int8, torch.float32, 0.02),
        (torch.bfloat16, torch.float32, 0.05),
        (torch.float16, torch.float16, 0.01),
        (torch.float32, torch.bfloat16, 0.1),
    ],
    ids=str,
)
def test_a_history_is_the_same_with_and_without_kernels(
    start: WarmStart, kept: torch.dtype, dtype: torch.dtype, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, twin = (open_history(40, 5, start, dtype=kept, compute_dtype=dtype) for _ in range(2))
    others = train(twin, dtype)
    used = use_kernels(monkeypatch)
    starts = train(history, dtype)
    # The first three passes read rows that were never written.
    assert used.count("gather") == 7
    # The kernels support neither encoded rows nor float64.
    assert used.count("scatter") == (10 if kept in DTYPES else 0)
    alike(history, twin, starts, others, error)


@only_interpreted
@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_inputs_of_the_halo_are_the_same_with_and_without_kernels(
    kept: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, twin = (open_history(40, 5, Drift(0.1), dtype=kept, halo_inputs=True) for _ in range(2))
    others = train(twin, torch.float32)
    used = use_kernels(monkeypatch)
    starts = train(history, torch.float32)
    # Of the seven passes over known rows, one is over all nodes.
    assert used.count("gather") == 7 + 6
    alike(history, twin, starts, others, 1e-6 if kept == torch.float32 else 0.05)


@only_interpreted
def test_inputs_of_the_halo_are_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    history, ones = open_history(3, 2, Drift(), halo_inputs=True), torch.ones(3, 2)
    use_kernels(monkeypatch)
    history.push(torch.arange(3), ones, 4 * ones)
    halo = history.start(torch.arange(3), 1, ones[:1]).halo
    history.push(torch.arange(3), ones, 8 * ones)
    assert halo is not None
    assert halo.tolist() == [[4, 4]] * 2


@only_interpreted
@pytest.mark.parametrize("prop_response", [None, Response(0.6, (0.7, 1.2))], ids=["plain", "fitted"])
def test_a_pass_is_the_same_with_and_without_kernels(
    path_graph: Graph, prop_response: Response | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[Tensor]:
        features, gradients = open_history(4, 3, Drift(0.1)), open_history(4, 3, Drift())
        prop = LazyPropagation(0.2, features, gradients)
        prop.response = prop_response
        seen = []
        for seed in range(4):
            x_in = random_rows(4, 3, "cpu", seed=seed).requires_grad_()
            out = prop(x_in, Batch.full(path_graph, 2))
            out.square().sum().backward()
            assert x_in.grad is not None
            seen += [out.detach(), x_in.grad]
        return seen

    expected = run()
    used = use_kernels(monkeypatch)
    torch.testing.assert_close(run(), expected, rtol=1e-5, atol=1e-6)
    assert (used.count("gather"), used.count("scatter")) == (6, 8)


@only_interpreted
def test_earlier_inputs_are_returned_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    history, ones = open_history(3, 2, Drift()), torch.ones(3, 2)
    use_kernels(monkeypatch)
    history.push(torch.arange(3), ones, ones)
    assert history.start(torch.arange(3), 3, 2 * ones).previous is not None
    assert history.start(torch.arange(3), 3, 2 * ones, with_previous=False).previous is None
    assert history.drift_norm() is None
    history.measure = True
    assert history.start(torch.arange(3), 3, 2 * ones, with_previous=False).previous is None
    assert history.drift_norm() == 1


def use_kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes histories on a CPU use the kernels, for the interpreter, and lists the calls."""
    used: list[str] = []

    def listed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            used.append(name)
            return function(*given, **named)

        return call

    monkeypatch.setattr(history_rows, "gather", listed("gather", history_rows.gather))
    monkeypatch.setattr(history_rows, "scatter", listed("scatter", history_rows.scatter))
    monkeypatch.setattr(
        ops, "history_rows", lambda *given: history_rows if all(x.dtype in DTYPES for x in given) else None
    )
    return used


def test_rows_are_loaded_16_bytes_at_a_time(compile_kernel: Callable[..., Any]) -> None:
    tables = ["values", "inputs", "fresh", "out", "new"]
    types = dict.fromkeys(tables, "*fp32") | {"nodes": "*i64", "targets": "*i64", "pushed": "*i32", "step": "*i64"}
    types |= dict.fromkeys(("beta", "move", "scale"), "fp32")
    fixed: dict[str, Any] = dict.fromkeys(("VALUE_STRIDE", "INPUT_STRIDE", "FRESH_STRIDE"), 48)
    fixed |= {"OUT_STRIDE": 48, "NEW_STRIDE": 48, "COLUMNS": 48, "previous": None}
    fixed |= {"FROM_STORED": True, "ROWS": 16, "WIDTH": 64}
    for kernel, read, written in ((gather_rows, 3, 1), (scatter_rows, 2, 2)):
        code = compile_kernel(kernel, types, fixed, history_rows._OPTIONS)
        assert len(re.findall(r"ld\.global\.v4\.b32", code.asm["ptx"])) >= 2 * read
        assert len(re.findall(r"st\.global\.v4\.b32", code.asm["ptx"])) >= 2 * written
        # Threads exchange no entries.
        assert code.metadata.shared == 0


@needs_cuda
def test_offsets_may_exceed_32_bits() -> None:
    table = torch.zeros(2**31 + 64, dtype=torch.float16, device="cuda").as_strided((3, 47), (2**30, 1))
    new, targets = random_rows(2, 47, "cuda"), torch.tensor([2, 0], device="cuda")
    pushed, step = torch.zeros(3, dtype=torch.int32, device="cuda"), torch.tensor(1, device="cuda")
    history_rows.scatter(targets, [(table, new)], pushed, step)
    assert torch.equal(table[targets], new.half())
    out, _ = history_rows.gather((table, targets), None, new[:0], 0, beta=0.5)
    assert torch.equal(out, new.half().float())


@needs_cuda
@pytest.mark.parametrize("tier", ["device", "pinned", "host"])
@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("start", STARTS, ids=str)
def test_a_history_on_a_device_is_the_same_with_and_without_kernels(
    start: WarmStart, kept: torch.dtype, tier: Literal["device", "pinned", "host"], monkeypatch: pytest.MonkeyPatch
) -> None:
    history, twin = (open_history(40, 5, start, dtype=kept, tier=tier, device="cuda") for _ in range(2))
    monkeypatch.setenv("LAZYGNN_KERNELS", "reference")
    others = train(twin, torch.float32)
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    alike(history, twin, train(history, torch.float32), others, 1e-6 if kept == torch.float32 else 2e-2)


@needs_cuda
@pytest.mark.parametrize("tier", ["device", "pinned"])
def test_a_pass_can_be_captured_and_does_not_synchronize(
    tier: Literal["device", "pinned"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "auto")
    history, twin = (open_history(90, 47, Drift(0.1), tier=tier, device="cuda") for _ in range(2))
    ones = torch.ones(90, 47, device="cuda")
    for each in (history, twin):
        each.push(torch.arange(90, device="cuda"), ones, ones)
    nodes, fresh = some_nodes("cuda", 60), random_rows(20, 47, "cuda")

    def visit(each: StoredHistory) -> None:
        each.prefetch(nodes, 20)
        each.push(nodes[:20], 0.5 * each.start(nodes, 20, fresh, with_previous=False).x, fresh)

    visit(history)
    visit(twin)
    torch.cuda.set_sync_debug_mode("error")
    try:
        visit(history)
        visit(twin)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        visit(history)
    for value in range(4):
        fresh.fill_(value)
        graph.replay()
        visit(twin)
    one, other = history.state_dict(), twin.state_dict()
    assert all(torch.equal(one[name].cpu(), other[name].cpu()) for name in other)
