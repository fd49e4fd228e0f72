"""Where the time of an epoch goes: the kernels of one epoch, in groups.

On a CPU these are operators. There, torch has one name for dense products and for those of its CSR matrices in MKL, and
both count as dense.
"""

from collections.abc import Mapping

import torch
from torch.profiler import ProfilerActivity, profile

from common.summary import markdown_table

OTHER = "everything else"
# parts of the names of kernels and, on a CPU, of operators; the first group that matches counts
GROUPS: Mapping[str, tuple[str, ...]] = {
    "sparse products": ("lane_rows", "piece_sums", "spmm", "csr", "addmm_sparse", "_sparse_mm"),
    "rows of histories and features": (
        "gather_rows",
        "scatter_rows",
        "copy_rows",
        "index_select",
        "indexselect",
        "index_copy",
        "index_put",
        "gather",
        "scatter",
    ),
    "norms, activations and dropout": (
        "normalize",
        "moments",
        "_gradients",
        "relu",
        "gelu",
        "layer_norm",
        "layernorm",
        "batch_norm",
        "dropout",
        "bernoulli",
    ),
    "dense products": ("gemm", "gemv", "cutlass", "nvjet", "splitk", "aten::mm", "aten::addmm", "cublas"),
    "optimizer": ("adam", "multi_tensor", "foreach"),
    "loss": ("softmax", "nll_loss", "cross_entropy", "binary_cross_entropy"),
    "copies and fills": (
        "memcpy",
        "memset",
        "aten::copy_",
        "copy_kernel",
        "fill",
        "direct_copy",
        "CatArray",
        "aten::cat",
    ),
}


class Profile:
    """Records the kernels between `start` and `stop`; on a CPU, the operators."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        activity = ProfilerActivity.CUDA if self._on_gpu else ProfilerActivity.CPU
        self._profile = profile(activities=[activity], acc_events=True)
        self.milliseconds: dict[str, float] = {}

    def start(self) -> None:
        """Begins to record."""
        self._profile.start()

    def stop(self) -> None:
        """Ends the recording and adds up the time of every group of kernels."""
        self._profile.stop()
        wanted = "CUDA" if self._on_gpu else "CPU"
        found = dict.fromkeys([*GROUPS, OTHER], 0.0)
        for event in self._profile.key_averages():
            if event.device_type.name == wanted:
                time = event.self_device_time_total if self._on_gpu else event.self_cpu_time_total
                found[group_of(event.key)] += time / 1000
        self.milliseconds = {group: time for group, time in found.items() if time > 0}


def group_of(kernel: str) -> str:
    """Returns the group of a kernel or operator, by its name."""
    name = kernel.lower()
    return next((group for group, parts in GROUPS.items() if any(part in name for part in parts)), OTHER)


def profile_table(milliseconds: Mapping[str, float]) -> str:
    """Returns the groups as a Markdown table, the longest first."""
    whole = sum(milliseconds.values())
    longest = sorted(milliseconds.items(), key=lambda item: -item[1])
    rows = [[group, f"{time:.1f}", f"{100 * time / whole:.0f} %"] for group, time in longest]
    return markdown_table(["kernels", "ms", "share"], rows)
