"""The tensor file of a checkpoint: safetensors, written piece by piece and checked against a digest when read."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lazygnn.errors import CheckpointError
from lazygnn.run.record import file_size, is_text

# bytes of a tensor that are copied at a time
CHUNK = 8 * 2**20
MAX_HEADER = 16 * 2**20
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class TensorFile:
    """A safetensors file before it is written.

    `safetensors.torch.save_file` does not do. Before version 0.8 it converts all tensors to bytes first. Version 0.8
    writes them in place, but moves all GPU tensors to the CPU before the first byte, and refuses strided views and
    tensors that share memory. Neither flushes to the disk or returns a digest. Histories may fill most of the memory,
    so this class copies one piece of a tensor at a time.
    """

    names: list[str]
    tensors: list[Tensor]
    header: bytes

    @staticmethod
    def plan(tensors: Mapping[str, Tensor]) -> "TensorFile":
        """Checks the tensors and lays them out; copies nothing."""
        for name, tensor in tensors.items():
            _check_tensor(name, tensor)
        # wide types first, which keeps each tensor aligned in the file without gaps
        ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
        header, end = {}, 0
        for name, tensor in ordered:
            start, end = end, end + _num_bytes(tensor)
            header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [start, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > MAX_HEADER:
            raise ValueError(f"{len(tensors)} tensors are too many for one file; join some of them")
        return TensorFile(list(tensors), [tensor for _, tensor in ordered], len(text).to_bytes(8, "little") + text)

    @property
    def size(self) -> int:
        """Returns the size of the file in bytes."""
        return len(self.header) + sum(map(_num_bytes, self.tensors))

    def blocks(self) -> Iterator[bytes | memoryview]:
        """Yields the bytes of the file, in order."""
        yield self.header
        for tensor in self.tensors:
            for piece in _pieces(tensor.detach()):
                yield _raw(piece)


def read_tensors(file: Path, names: list[str], *, size: int, digest: str) -> dict[str, Tensor]:
    """Checks size and SHA-256 digest of a file and maps its tensors, in the order of `names`."""
    _check_digest(file, size, digest)
    try:
        # maps the file, limits the header, and checks that shapes and offsets fit the data
        tensors = load_file(file)
    except (SafetensorError, OSError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"`{file.name}` is not a readable safetensors file: {error}") from error
    if tensors.keys() != set(names):
        raise CheckpointError(f"`{file.name}` has other tensors than its record lists")
    return {name: tensors[name] for name in names}


def _check_tensor(name: str, tensor: Tensor) -> None:
    if name == "__metadata__" or not is_text(name):
        raise ValueError(f"{name!r} cannot be the name of a tensor; choose another one")
    if tensor.dtype not in _DTYPES:
        kinds = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
        raise ValueError(f"tensor `{name}` has type {tensor.dtype}; convert it to one of: {kinds}")
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        raise ValueError(f"tensor `{name}` is {tensor.layout} on {tensor.device}; only dense tensors can be saved")


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """Yields views of at most `CHUNK` bytes in row-major order, whatever the strides."""
    if _num_bytes(tensor) <= CHUNK:
        yield tensor
        return
    if tensor.is_contiguous():
        tensor = tensor.view(-1)
    rows = max(1, CHUNK * len(tensor) // _num_bytes(tensor))
    for start in range(0, len(tensor), rows):
        piece = tensor[start : start + rows]
        # a single row may still be too long
        yield from _pieces(piece[0] if rows == 1 else piece)


def _raw(piece: Tensor) -> memoryview:
    flat = piece.cpu().resolve_neg().contiguous().view(-1)
    # a single element counts as contiguous with any stride, but cannot be viewed as bytes
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy().data


def _check_digest(file: Path, size: int, digest: str) -> None:
    found = file_size(file)
    if found != size:
        raise CheckpointError(f"`{file.name}` is corrupt: it has {found:,} bytes, its record lists {size:,}")
    try:
        with file.open("rb") as stream:
            header = int.from_bytes(stream.read(8), "little")
            stream.seek(0)
            # reads a piece at a time
            same = hashlib.file_digest(stream, "sha256").hexdigest() == digest
    except OSError as error:
        raise CheckpointError(f"cannot read `{file.name}`: {error}") from error
    if not same:
        raise CheckpointError(f"`{file.name}` is corrupt: its digest does not match")
    if header > MAX_HEADER:
        raise CheckpointError(f"`{file.name}` has a header of {header:,} bytes, lazygnn writes at most {MAX_HEADER:,}")
