"""Rows in memory-mapped files, for histories larger than host memory.

The space of a file is reserved when it is created: a disk that fills later would kill the process at a write.
"""

import math
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from lazygnn.errors import reason
from lazygnn.history.codec import Layout, Parts
from lazygnn.inference import Allocate


class HistoryFileError(OSError):
    """The file of a history cannot be created."""


def map_files(layout: Layout, folder: Path, name: str) -> Parts:
    """Creates files of zeros, `<folder>/<name>.<part>` for each part; an old file of that name is removed."""
    parts = {}
    for part, (shape, dtype) in layout.items():
        path, num_bytes = folder / f"{name}.{part}", math.prod(shape) * dtype.itemsize
        try:
            parts[part] = _map_file(path, shape, dtype, num_bytes)
        except HistoryFileError:
            raise
        except (OSError, RuntimeError) as error:
            raise HistoryFileError(
                f"cannot create `{path}` of {num_bytes} bytes: {_reason(error)}; choose another folder"
            ) from error
    return parts


def on_disk(folder: Path | None, name: str) -> Allocate | None:
    """Returns a function that allocates rows in a file of the folder; `None` without a folder.

    The file has no name while it is used, and its space is free when the rows are, however the process ends.
    """

    def allocate(shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        assert folder is not None
        # another process may evaluate the same run
        unique, is_new = f"{name}-{secrets.token_hex(8)}", not folder.exists()
        try:
            return map_files({"rows": (shape, dtype)}, folder, unique)["rows"]
        finally:
            (folder / f"{unique}.rows").unlink(missing_ok=True)
            if is_new:
                # another process may use it
                with suppress(OSError):
                    folder.rmdir()

    return None if folder is None else allocate


def _map_file(path: Path, shape: tuple[int, ...], dtype: torch.dtype, num_bytes: int) -> Tensor:
    path.parent.mkdir(parents=True, exist_ok=True)
    # removed, not overwritten: another process may still read the old file
    path.unlink(missing_ok=True)
    free = shutil.disk_usage(path.parent).free
    if num_bytes > free:
        raise HistoryFileError(
            f"`{path}` needs {num_bytes} bytes, but {free} are free; "
            "choose another folder, or fewer bits with `dtype=torch.bfloat16` or `torch.int8`"
        )
    try:
        with path.open("xb") as file:
            if num_bytes > 0:
                os.posix_fallocate(file.fileno(), 0, num_bytes)
        return torch.from_file(str(path), shared=True, size=math.prod(shape), dtype=dtype).view(shape)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _reason(error: OSError | RuntimeError) -> str:
    return reason(error) if isinstance(error, OSError) else str(error)
