"""Where kernels are tested: compiled on a GPU, otherwise in Triton's interpreter (see `test_interpreter`)."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ops.triton.faster import speed_up
from tests.ops.triton.helpers import INTERPRETED, only_interpreted

# Triton is installed on Linux only.
collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]

HERE = (
    pytest.param("cuda", marks=pytest.mark.gpu)
    if torch.cuda.is_available() and not INTERPRETED
    else pytest.param("cpu", marks=only_interpreted)
)


@pytest.fixture(scope="session", autouse=True)
def fast_interpreter() -> Iterator[None]:
    """Repeats less in the interpreter."""
    with pytest.MonkeyPatch.context() as patches:
        if INTERPRETED:
            speed_up(patches)
        yield


@pytest.fixture(params=[HERE])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns where kernels run; uninitialized memory is filled with NaN."""
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, _poisoned(getattr(torch, name)))
    torch.manual_seed(0)
    return str(request.param)


@pytest.fixture(
    params=[
        lambda x: x[:, :47],
        lambda x: x[1:, 4:20],
        lambda x: x[:, 1:18],
        lambda x: x.T[:, :9],
        lambda x: x[::2],
        lambda x: x[:1].expand(20, 48),
        lambda x: x.reshape(-1)[2:962].view(20, 48),
        lambda x: x.reshape(-1)[: 19 * 48 + 47].as_strided((20, 47), (48, 1)),
    ]
)
def view(request: pytest.FixtureRequest) -> Callable[[Tensor], Tensor]:
    """Returns a view of a tensor of 30 x 48: unaligned, transposed, strided or overlapping rows."""
    made: Callable[[Tensor], Tensor] = request.param
    return made


@pytest.fixture
def compile_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Compiles a kernel for an H100 or H200, which need not be present."""
    if INTERPRETED:
        pytest.skip("the interpreter compiles nothing")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return _compile


def _compile(
    kernel: Any, types: dict[str, str], fixed: dict[str, Any], options: dict[str, Any], other: str = "i32"
) -> Any:
    """Compiles with constants for the arguments in `fixed`; arguments that are not listed have the type `other`."""
    import triton
    from triton.backends.compiler import GPUTarget

    names: list[str] = kernel.arg_names
    fixed = {name: value for name, value in fixed.items() if name in names}
    signature = {name: "constexpr" if name in fixed else types.get(name, other) for name in names}
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(names) if signature[name].startswith("*")}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=fixed, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def _poisoned(new: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(*args: Any, **options: Any) -> Tensor:
        memory = new(*args, **options)
        return memory.fill_(torch.nan) if memory.is_floating_point() else memory

    return make
