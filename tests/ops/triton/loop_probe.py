"""Runs a loop to a loaded bound in Triton's interpreter; a process of its own calls this file.

Triton 3.6 converts the bound by `int` of an array of one element, which NumPy 2.4 and later refuse.
"""

from typing import Any

import torch
import triton.language as tl

from lazygnn.ops.triton.jit import jit


@jit
def _count(bound: Any, out: Any) -> None:
    total = 0
    for _ in range(0, tl.load(bound)):
        total += 1
    tl.store(out, total)


if __name__ == "__main__":
    found = torch.zeros(1, dtype=torch.int64)
    _count[(1,)](torch.tensor([3]), found)
    if found.item() != 3:
        raise SystemExit(f"a loop to 3 made {found.item()} passes")
