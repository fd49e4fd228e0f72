import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load
from torch import Tensor

from lazygnn.errors import CheckpointError
from lazygnn.run import tensor_file
from lazygnn.run.tensor_file import CHUNK, TensorFile, read_tensors


@given(
    st.lists(st.integers(0, 5), max_size=4),
    st.sampled_from((torch.float64, torch.int16, torch.bool)),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_pieces_of_any_view_join_to_the_whole(shape: list[int], dtype: torch.dtype, chance: random.Random) -> None:
    count = int(torch.Size(shape).numel())
    tensor = torch.arange(count).reshape(shape).to(dtype)
    if shape:
        tensor = tensor.permute(chance.sample(range(len(shape)), len(shape)))[:: chance.randint(1, 3)]
    chunk = chance.randint(8, 64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_file, "CHUNK", chunk)
        blocks = [bytes(block) for block in TensorFile.plan({"x": tensor}).blocks()]
    assert all(len(block) <= chunk for block in blocks[1:])
    found = load(b"".join(blocks))["x"]
    assert found.dtype == tensor.dtype
    assert torch.equal(found, tensor)


def test_large_tensors_are_written_in_pieces() -> None:
    large = torch.zeros(1, dtype=torch.uint8).expand(3, 2 * CHUNK + 5)
    planned = TensorFile.plan({"large": large, "rows": large[:, :100].T})
    sizes = [len(block) for block in planned.blocks()]
    assert sum(sizes) == planned.size
    assert max(sizes) == CHUNK


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("x", torch.ones(2, dtype=torch.complex64), "tensor `x` has type torch.complex64; convert it to one of"),
        ("x", torch.eye(2).to_sparse(), "tensor `x` is torch.sparse_coo on cpu; only dense"),
        ("x", torch.ones(2, device="meta"), "tensor `x` is torch.strided on meta; only dense"),
        ("__metadata__", torch.ones(2), "'__metadata__' cannot be the name of a tensor"),
        ("\udc00", torch.ones(2), "cannot be the name of a tensor"),
    ],
)
def test_what_cannot_be_saved_is_refused(name: str, tensor: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TensorFile.plan({name: tensor})


def test_too_many_tensors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_file, "MAX_HEADER", 1000)
    with pytest.raises(ValueError, match="40 tensors are too many for one file"):
        TensorFile.plan({str(n): torch.ones(1) for n in range(40)})


def test_a_file_with_another_size_or_digest_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"".join(TensorFile.plan({"x": torch.ones(2)}).blocks()))
    size = path.stat().st_size
    with pytest.raises(CheckpointError, match=f"`x.safetensors` is corrupt: it has {size} bytes, its record lists 9"):
        read_tensors(path, ["x"], size=9, digest="0" * 64)
    with pytest.raises(CheckpointError, match=r"`x.safetensors` is corrupt: its digest does not match"):
        read_tensors(path, ["x"], size=size, digest="0" * 64)
