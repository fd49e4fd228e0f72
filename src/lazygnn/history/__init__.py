"""Histories: results of earlier training steps, from which a pass starts."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from numbers import Integral
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import nn

from lazygnn.errors import ConfigError, wrong_type
from lazygnn.history.base import History, NoHistory, Start, Store, pad_rows
from lazygnn.history.codec import Codec, Layout, Parts
from lazygnn.history.device import DeviceStore
from lazygnn.history.disk import HistoryFileError, map_files, on_disk
from lazygnn.history.host import HostStore
from lazygnn.history.pinned import PinnedStore, map_pinned
from lazygnn.history.stored import StoredHistory
from lazygnn.history.transfer import CudaTransfer
from lazygnn.history.warmstart import WarmStart

__all__ = [
    "History",
    "HistoryFileError",
    "MakeStore",
    "NoHistory",
    "Start",
    "Store",
    "StoredHistory",
    "Tier",
    "map_files",
    "named_histories",
    "on_disk",
    "open_history",
    "pad_rows",
]

Tier = Literal["device", "host", "pinned", "disk"]
MakeStore = Callable[[Codec, int, bool], Store]


def open_history(
    num_nodes: int,
    channels: int,
    start: WarmStart,
    *,
    tier: Tier = "device",
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    compute_dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    name: str = "history",
    halo_inputs: bool = False,
    make_store: MakeStore | None = None,
) -> StoredHistory:
    """Opens an empty history for every node of a graph.

    Args:
        num_nodes: Number of rows.
        channels: Number of propagated columns.
        start: The warm start; `Drift` stores the inputs of the last visit in a second tensor.
        tier: Where the rows are stored: on the compute device, in host memory, in page-locked host memory that the
            device reads directly, or in files under `folder`.
        dtype: Type of the stored rows; `torch.int8` adds a scale for every row.
        device: The compute device.
        compute_dtype: Type of the rows that are read.
        folder: Where the disk tier creates its files, which grow as rows are written.
        name: Prefix of the names of those files; files of an earlier history of that name are replaced.
        halo_inputs: Whether a pass also reads the stored inputs of the nodes around its batch, as `LazyBlock` does.
        make_store: Makes the stores in place of `tier`, such as those of a process that holds a share of the rows. It
            receives the codec, the number of columns, and whether a pass reads rows of the halo.

    Raises:
        HistoryFileError: The files of the disk tier cannot be created, or the disk is too full for them.
    """
    if not isinstance(start, WarmStart):
        raise ConfigError(wrong_type("start", start, "give `Drift()` or `Mix(weight)`"))
    _check(num_nodes, channels, tier, folder, name)
    device, codec = torch.device(device), Codec(dtype, compute_dtype)
    if make_store is not None:
        own = make_store(codec, channels, True)
        given = make_store(codec, channels, halo_inputs) if start.stores_inputs else None
        return StoredHistory(start, own, given, halo_inputs=halo_inputs)
    layout = codec.layout(num_nodes, channels)
    # a thread starts when it is first used and ends with the stores that share it
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"lazygnn-{name}")

    def store(kind: str) -> Store:
        parts = _allocate(layout, tier, device, folder, f"{name}.{kind}")
        if tier == "pinned" and device.type == "cuda":
            return PinnedStore(parts, codec, device)
        return _make_store(parts, codec, device, worker)

    values, inputs = store("values"), store("inputs") if start.stores_inputs else None
    return StoredHistory(start, values, inputs, halo_inputs=halo_inputs)


def named_histories(module: nn.Module) -> dict[str, StoredHistory]:
    """Returns the histories of a model by the path of their attribute; in a list, `name.0` and so on."""
    found: dict[str, StoredHistory] = {}
    for path, submodule in module.named_modules():
        for name, value in _named_values(submodule, path):
            if isinstance(value, StoredHistory) and value not in found.values():
                found[name] = value
    return found


def _named_values(module: nn.Module, path: str) -> Iterator[tuple[str, object]]:
    for attribute, value in vars(module).items():
        name = f"{path}.{attribute}" if path else attribute
        if isinstance(value, (list, tuple)):
            yield from ((f"{name}.{index}", item) for index, item in enumerate(value))
        else:
            yield name, value


def _allocate(layout: Layout, tier: Tier, device: torch.device, folder: Path | None, name: str) -> Parts:
    if tier == "disk" and folder is not None:
        return map_files(layout, folder, name)
    if tier == "pinned" and device.type == "cuda":
        return map_pinned(layout, device)
    place = device if tier == "device" else "cpu"
    return {part: torch.zeros(shape, dtype=dtype, device=place) for part, (shape, dtype) in layout.items()}


def _make_store(parts: Parts, codec: Codec, device: torch.device, worker: Executor) -> Store:
    if device.type == "cuda" and not parts["rows"].is_cuda:
        return HostStore(parts, codec, device, transfer=CudaTransfer(device), worker=worker)
    return DeviceStore(parts, codec, device)


def _check(num_nodes: int, channels: int, tier: str, folder: Path | None, name: str) -> None:
    for size, value in {"num_nodes": num_nodes, "channels": channels}.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ConfigError(wrong_type(size, value, "give a whole number, such as `graph.num_nodes`"))
        if value < 1:
            raise ValueError(f"`{size}` must be at least 1, got {value}")
    if tier not in get_args(Tier):
        raise ValueError(f"unknown tier `{tier}`; choose one of: {', '.join(get_args(Tier))}")
    if tier == "disk" and folder is None:
        raise ConfigError(
            "a history on disk needs a `folder` for its files; give one to `build` or `open_history`, or choose "
            "another `history` or `tier`"
        )
    if Path(name).name != name:
        raise ValueError(f"`name` must be a plain file name without folders, got `{name}`")
