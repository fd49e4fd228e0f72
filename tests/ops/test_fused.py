"""The kernels against the reference: in Triton's interpreter on any machine, compiled where there is a device.

The interpreter must be asked for before Triton is imported, so one test here runs all the others in a process of its
own. Whatever the kernels write to starts as NaN.
"""

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.ops import Csr, reference

pytest.importorskip("triton")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ON_CUDA = torch.cuda.is_available() and not INTERPRETED
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# one chunk of columns or several, one row of a program or several
TILES = [
    {"ROWS": 8, "NEIGHBOURS": 8, "LANES": 32, "UNROLL": 1},
    {"ROWS": 16, "NEIGHBOURS": 4, "LANES": 4, "UNROLL": 2},
]


HERE = (
    pytest.param("cuda", marks=pytest.mark.gpu)
    if ON_CUDA
    else pytest.param("cpu", marks=pytest.mark.skipif(not INTERPRETED, reason="runs in the interpreter's process"))
)


@pytest.fixture(params=[HERE])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where kernels run; new memory is full of NaN there."""
    empty = torch.empty

    def poisoned(*size: int, **options: Any) -> Tensor:
        memory = empty(*size, **options)
        return memory.fill_(torch.nan) if memory.is_floating_point() else memory

    monkeypatch.setattr(torch, "empty", poisoned)
    return str(request.param)


@pytest.fixture(params=TILES, ids=["one chunk", "chunks"])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes a tile for the one that would be measured."""
    use_tile(request.param, monkeypatch)


@pytest.fixture
def some_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    use_tile(TILES[1], monkeypatch)


def use_tile(tile: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    from lazygnn.ops import fused

    monkeypatch.setattr(fused, "_suited", lambda *_, **__: [triton.Config(tile)])
    monkeypatch.setattr(fused._tuned, "configs", [triton.Config(tile)])


def rows(num_rows: int, columns: int, device: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    numbers = torch.randn(num_rows, columns, generator=torch.Generator().manual_seed(seed))
    return numbers.to(dtype).to(device)


def matrix(counts: list[int], num_cols: int, device: str, index: torch.dtype = torch.int32) -> Csr:
    """Random columns and values, so many of them in every row."""
    generator, total = torch.Generator().manual_seed(len(counts)), sum(counts)
    rowptr = torch.tensor([0, *counts]).cumsum(0)
    col = torch.randint(0, num_cols, (total,), generator=generator)
    return Csr(rowptr.to(index), col.to(index), torch.randn(total, generator=generator), num_cols).to(device)


def exact(adj: Csr, x: Tensor, source: Tensor | None = None, alpha: float = 0.0, **heavy_ball: Any) -> Tensor:
    """The step in float64."""
    adj, x = adj.to(torch.float64), x.double()
    source = (
        torch.zeros(adj.num_rows, x.shape[1], dtype=x.dtype, device=x.device) if source is None else source.double()
    )
    heavy_ball = {name: v.double() if isinstance(v, Tensor) else v for name, v in heavy_ball.items()}
    return reference.step(adj, x, source, alpha, **heavy_ball)


def check(out: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Sums are off by the roundings of float32; a result in 16 bits by its own, besides."""
    assert out.dtype == dtype
    assert out.shape == expected.shape
    torch.testing.assert_close(out.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.skipif(INTERPRETED, reason="this is that process")
def test_kernels_equal_the_reference_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", str(Path(__file__))]
    done = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 3, 17, 47, 48, 100])
def test_a_step_is_that_of_the_reference(device: str, columns: int, dtype: torch.dtype) -> None:
    from lazygnn.ops import fused

    adj = matrix([3, 0, 9, 1, 20, 0, 5, 7, 2, 13, 0], 15, device)
    x, source = rows(15, columns, device, dtype), rows(12, columns, device, dtype, seed=1)
    before = x.clone(), source.clone()
    out = fused.step(adj, x, source, 0.3)
    check(out, exact(adj, x, source, 0.3), dtype)
    assert torch.equal(out[11:], x[11:])
    check(fused.spmm(adj, x), exact(adj, x)[:11], dtype)
    assert torch.equal(x, before[0])
    assert torch.equal(source, before[1])


@pytest.mark.usefixtures("some_tile")
@pytest.mark.parametrize(("num_rows", "num_cols", "columns"), [(0, 4, 5), (3, 4, 0), (9, 4, 5), (1, 1, 1)])
def test_shapes_at_the_edge(device: str, num_rows: int, num_cols: int, columns: int) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([2] * num_rows, num_cols, device), rows(num_cols, columns, device)
    check(fused.spmm(adj, x), exact(adj, x)[:num_rows], torch.float32)
    source = rows(num_rows, columns, device, seed=1)
    check(fused.step(adj, x, source, 0.3), exact(adj, x, source, 0.3), torch.float32)


@pytest.mark.usefixtures("some_tile")
def test_a_matrix_without_entries_gives_the_source_alone(device: str) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([0, 0, 0], 2, device), rows(2, 5, device)
    assert fused.spmm(adj, x).tolist() == [[0] * 5] * 3
    check(fused.step(adj, x, rows(3, 5, device), 0.5), 0.5 * rows(3, 5, device).double(), torch.float32)


@pytest.mark.usefixtures("some_tile")
def test_indices_of_64_bits(device: str) -> None:
    from lazygnn.ops import fused

    adj, x, source = matrix([3, 0, 40], 6, device, torch.int64), rows(6, 5, device), rows(3, 5, device, seed=1)
    check(fused.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), torch.float32)


# in pieces of 8 entries: rows that begin or end where a piece does, rows of one piece and of many, and none at all
LONG_ROWS = [[8], [16, 8], [3, 5, 8, 0, 24], [7, 9, 9, 7], [1, 100, 1], [0, 15, 0, 17, 40, 3], [7], [200, 1, 0, 90]]


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("counts", LONG_ROWS, ids=str)
def test_long_rows_are_split(device: str, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    monkeypatch.setattr(fused, "SPLIT", 8)
    adj, x, source = matrix(counts, 15, device), rows(15, 7, device), rows(15, 7, device, seed=1)
    check(fused.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), torch.float32)
    if sum(counts) >= 8:
        row = adj.row_index()[: sum(counts) // 8 * 8].view(-1, 8)
        assert fused._whole(adj).tolist() == (row[:, 0] == row[:, 7]).int().tolist()


@pytest.mark.usefixtures("some_tile")
@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_a_hub_is_split(device: str, index: torch.dtype) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([5, 3 * fused.SPLIT, 0, 30], 40, device, index), rows(40, 47, device, torch.bfloat16)
    check(fused.spmm(adj, x), exact(adj, x)[:4], torch.bfloat16)
    assert fused._whole(adj).sum() == 2


@pytest.mark.usefixtures("some_tile")
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, :47],
        lambda x: x[1:, 4:20],
        lambda x: x[:, 1:18],
        lambda x: x.T[:, :9],
        lambda x: x[::2],
        lambda x: x[:1].expand(20, 48),
        lambda x: x.reshape(-1)[2:962].view(20, 48),
        lambda x: x.reshape(-1)[: 19 * 48 + 47].as_strided((20, 47), (48, 1)),
    ],
)
def test_views_are_read_as_they_are(device: str, view: Callable[[Tensor], Tensor]) -> None:
    from lazygnn.ops import fused

    x, source = view(rows(30, 48, device)), view(rows(30, 48, device, seed=1))
    adj = matrix([4, 0, 7, 12, 1], len(x), device)
    check(fused.step(adj, x, source, 0.2), exact(adj, x, source, 0.2), torch.float32)


@pytest.mark.usefixtures("some_tile")
def test_rows_are_padded_once(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([4, 0, 7, 12, 1], 5, device), rows(5, 47, device)
    out = fused.step(adj, x, x, 0.2)
    assert (out.shape, out.stride()) == ((5, 47), (48, 1))
    assert fused._aligned(out) is out
    assert fused._aligned(x).stride() == (48, 1)
    # the last row of such a view may not be read to the end of its padding
    last = rows(1, 5 * 48 - 1, device)[0].as_strided((5, 47), (48, 1))
    assert fused._aligned(last) is not last


@pytest.mark.usefixtures("some_tile")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_heavy_ball_term_is_added(device: str, dtype: torch.dtype) -> None:
    from lazygnn.ops import fused

    adj = matrix([4, 0, 7], 5, device)
    x, source, previous = (rows(5, 7, device, dtype, seed) for seed in range(3))
    given: dict[str, Any] = {"previous": previous, "momentum": 0.4}
    check(fused.step(adj, x, source, 0.1, **given), exact(adj, x, source, 0.1, **given), dtype)


@pytest.mark.usefixtures("some_tile")
@pytest.mark.parametrize("momentum", [0.0, 0.3])
@pytest.mark.parametrize("reach", [[], [4], [4, 4, 4], [9, 9], [7, 5, 4], [4, 6]], ids=str)
def test_diffusion_is_that_of_the_reference(device: str, reach: list[int], momentum: float) -> None:
    from lazygnn.ops import fused

    adjs = [matrix([3, 0, 6, 2, 5, 1, 0, 9, 4][:num_rows], 9, device) for num_rows in reach]
    x, source = rows(9, 5, device), rows(9, 5, device, seed=1)
    before = x.clone()
    expected = reference.run_steps(
        [adj.to(torch.float64) for adj in adjs], x.double(), [source.double()] * len(adjs), 0.2, momentum=momentum
    )
    check(fused.run_steps(adjs, x, [source] * len(adjs), 0.2, momentum=momentum), expected, torch.float32)
    assert torch.equal(x, before)


@pytest.mark.usefixtures("some_tile")
def test_a_frozen_halo_is_not_copied(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([3, 5, 2], 90, device), rows(90, 4, device)
    sizes: list[int] = []
    empty = fused._empty

    def counted(num_rows: int, like: Tensor) -> Tensor:
        sizes.append(num_rows)
        return empty(num_rows, like)

    monkeypatch.setattr(fused, "_empty", counted)
    fused.run_steps([adj] * 4, x, [x] * 4, 0.2)
    assert sizes == [3] * 4


@pytest.mark.usefixtures("some_tile")
def test_many_columns_are_taken_in_turn(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lazygnn.ops import fused

    monkeypatch.setattr(fused, "_MAX_LANES", 2)
    adj = matrix([4, 0, 7], 5, device)
    x, source, previous = (rows(5, 75, device, seed=seed) for seed in range(3))
    given: dict[str, Any] = {"previous": previous, "momentum": 0.4}
    check(fused.step(adj, x, source, 0.1, **given), exact(adj, x, source, 0.1, **given), torch.float32)


@pytest.mark.usefixtures("tile")
def test_a_row_that_is_not_a_neighbour_does_not_matter(device: str) -> None:
    from lazygnn.ops import fused

    rowptr, col = torch.tensor([0, 1, 3, 3]), torch.tensor([1, 2, 1])
    adj = Csr(rowptr, col, torch.ones(3), 4).to(device)
    x = torch.tensor([[math.nan], [1.0], [2.0], [math.inf]], device=device)
    assert fused.spmm(adj, x).tolist() == [[1], [3], [0]]


@pytest.mark.usefixtures("some_tile")
def test_types_may_differ(device: str) -> None:
    from lazygnn.ops import fused

    adj = matrix([4, 0, 7], 5, device)
    x, source = rows(5, 7, device, torch.bfloat16), rows(5, 7, device, seed=1)
    check(fused.step(adj, x, source, 0.1), exact(adj, x, source, 0.1), torch.bfloat16)


def test_shapes_that_do_not_fit_are_refused(device: str) -> None:
    from lazygnn.ops import fused

    adj, x = matrix([4, 0, 7], 5, device), rows(5, 7, device)
    with pytest.raises(ValueError, match="`x` has 4 rows for the 5 columns of the matrix"):
        fused.spmm(adj, x[:4])
    with pytest.raises(ValueError, match=r"`source` has shape \(2, 7\); the step needs \(3, 7\) or more rows"):
        fused.step(adj, x, x[:2], 0.1)
    with pytest.raises(ValueError, match=r"`previous` has shape \(5, 6\); the step needs \(3, 7\)"):
        fused.step(adj, x, x, 0.1, previous=x[:, 1:], momentum=0.5)


@pytest.mark.skipif(not INTERPRETED and not ON_CUDA, reason="runs in the interpreter's process")
@pytest.mark.parametrize("unit", [4, 8])
def test_there_is_a_tile_for_every_shape(unit: int) -> None:
    from lazygnn.ops import fused

    for vectors in range(1, fused._MAX_CHUNKS * fused._MAX_LANES + 1):
        for degree in (1, 2, 8, 64, 1024):
            tiles = fused._suited(fused.TILES, {}, COLUMNS=vectors * unit, UNIT=unit, DEGREE=degree)
            assert 1 <= len(tiles) <= 16
    for tile in fused.TILES:
        shape = tile.kwargs["ROWS"] * tile.kwargs["NEIGHBOURS"] * tile.kwargs["LANES"]
        assert shape == 32 * tile.num_warps


@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
@pytest.mark.parametrize("halo", [False, True], ids=["whole", "halo"])
@pytest.mark.parametrize(("bits", "unit", "lanes"), [("fp32", 4, 4), ("bf16", 8, 2)])
def test_neighbours_are_gathered_16_bytes_at_a_time(
    bits: str, unit: int, lanes: int, halo: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiles for a device that need not be there, in both versions of the kernel a pass takes."""
    import triton
    from triton.backends.compiler import GPUTarget

    from lazygnn.ops.kernels import row_sums

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = {"rowptr": "*i32", "col": "*i32", "value": "*fp32", "pieces": "*fp32", "keep": "fp32", "alpha": "fp32"}
    types |= {"x": f"*{bits}", "source": f"*{bits}", "out": f"*{bits}", "momentum": "fp32"}
    fixed: dict[str, Any] = {"COLUMNS": 48, "SOURCE_COLUMNS": 47, "UNIT": unit, "SPLIT": 512, "DEGREE": 64}
    fixed |= {"ROWS": 1, "NEIGHBOURS": 32 // lanes, "LANES": lanes, "UNROLL": 4, "previous": None}
    types, fixed = (types | {"halo": f"*{bits}"}, fixed) if halo else (types, fixed | {"halo": None})
    names: list[str] = vars(row_sums)["arg_names"]
    signature = {name: "constexpr" if name in fixed else types.get(name, "i32") for name in names}
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(names) if signature[name].startswith("*")}
    source = triton.compiler.ASTSource(fn=row_sums, signature=signature, constexprs=fixed, attrs=aligned)
    options = {"num_warps": 1, "enable_fp_fusion": False}
    code: str = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    # three chunks of four tiles, and the pieces
    assert len(re.findall(r"ld\.global\.v4\.b32", code)) >= 3 * 4 + 3


@pytest.mark.gpu
@pytest.mark.skipif(not ON_CUDA, reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [16, 47, 256, 700])
def test_measured_tiles_give_the_reference(columns: int, dtype: torch.dtype) -> None:
    counts = (torch.rand(3000, generator=torch.Generator().manual_seed(0)) ** -1.2).clamp(max=2900).long().tolist()
    adj = matrix(counts, 5000, "cuda")
    x, source = rows(5000, columns, "cuda", dtype), rows(3000, columns, "cuda", dtype, seed=1)
    out = ops.run_steps([adj] * 2, x, [source] * 2, 0.2)
    expected = exact(adj, ops.step(adj, x, source, 0.2), source, 0.2)[:3000]
    torch.testing.assert_close(out.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=2e-4)
    assert torch.equal(out, ops.run_steps([adj] * 2, x, [source] * 2, 0.2))


@pytest.mark.gpu
@pytest.mark.skipif(not ON_CUDA, reason="needs a CUDA device")
def test_a_step_can_be_captured_and_waits_for_nothing() -> None:
    adj, x = matrix([30] * 999 + [5000], 1000, "cuda"), rows(1000, 47, "cuda")
    expected = ops.run_steps([adj] * 2, x, [x] * 2, 0.2)
    torch.cuda.set_sync_debug_mode("error")
    try:
        ops.run_steps([adj] * 2, x, [x] * 2, 0.2)
        # another matrix of the kind is worked out without a word from the device
        ops.run_steps([adj.with_value(adj.value)] * 2, x, [x] * 2, 0.2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ops.run_steps([adj] * 2, x, [x] * 2, 0.2)
    graph.replay()
    assert torch.equal(out, expected)
