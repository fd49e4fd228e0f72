"""The contenders of an epoch: ours in its modes, the paper's recipe, and the alternatives of other libraries."""

from functools import partial
from typing import Any, NamedTuple

import torch

from benchmarks.checks import DEEP, LAZY, Check
from benchmarks.pyg import PygAPPNP
from benchmarks.trained import Contender
from common.shapes import Shape

# steps of exact propagation and of GAS, as in their papers
NUM_STEPS = 10
# measured batches of the paper's recipe; each contains most of the graph
PAPER_BATCHES = 2
# of GraphSAGE; larger than in its recipe, since launches dominate small batches
SAGE_BATCH = 8192
# of the deep model; GCNII has twice as many layers
DEEP_BLOCKS, DEEP_WIDTH = 4, 256
# as in other libraries and in the released code
AS_RELEASED = {"precision": "float32", "cuda_graphs": "off"}


class Precision(NamedTuple):
    """A number format: the suffix of a contender's name, its own name, and the options that select it."""

    suffix: str
    name: str
    options: dict[str, Any]

    @property
    def stored(self) -> dict[str, Any]:
        """Returns the options, with histories of the same width."""
        return self.options | ({"history_dtype": "bfloat16"} if self.name == "bfloat16" else {})


def contenders(shape: Shape, device: torch.device) -> dict[str, Contender]:
    """Returns the contenders on a device, by name."""
    transform = {
        "hidden_channels": shape.hidden_channels,
        "mlp_layers": shape.mlp_layers,
        "norm": "batch",
        "dropout": 0.5,
        # does not change the cost; a few epochs must show that the model learns
        "lr": 0.005,
    }
    parts = {"num_parts": shape.num_parts, "parts_per_batch": shape.parts_per_batch, "partition": "contiguous"}
    return (
        _ours(transform, parts, device)
        | _exact(transform | {"alpha": 0.1, "num_layers": NUM_STEPS}, parts, device)
        | _deep(shape, parts, device)
        | _sampled(parts)
        | {
            "paper": Contender(
                f"the released recipe: halo of two hops, mix 0.5 / 0.5, two steps, fp32, torch's sparse product; "
                f"{PAPER_BATCHES} batches measured and scaled",
                "lazygnn-paper",
                transform | parts | AS_RELEASED | {"num_layers": 2, "keep_batches": False},
                check=Check(passes=1, num_steps=2, values={"beta": 1.0, "gamma": 1.0}),
                plain=True,
                num_batches=PAPER_BATCHES,
            )
        }
    )


def _ours(transform: dict[str, Any], parts: dict[str, Any], device: torch.device) -> dict[str, Contender]:
    lazy = transform | {"num_layers": 2}
    host = {"history": "pinned", "features": "host"}
    modes = {
        "ours-full": ("full batch, drift, one more step on labeled rows", {"num_parts": 1}),
        "ours": ("frozen halo, drift", parts),
        "ours-gradients": ("frozen halo, drift, gradients stored for the halo", parts | {"halo_gradients": True}),
        "ours-host": (
            "frozen halo, drift, histories and features in page-locked host memory, edges on the device",
            parts | host | {"edges": "device"},
        ),
        "ours-host-gradients": (
            "frozen halo, drift, histories, the halo's gradients and features in page-locked host memory",
            parts | host | {"edges": "device", "halo_gradients": True},
        ),
        "ours-host-all": (
            "frozen halo, drift, histories, features and edges in page-locked host memory",
            parts | host,
        ),
    }
    if device.type == "cpu":
        # everything is in host memory
        modes = {name: mode for name, mode in modes.items() if not name.startswith("ours-host")}
    return {
        f"{name}{precision.suffix}": Contender(
            f"{what}, two steps, {precision.name}", "lazygnn", lazy | values | precision.stored, LAZY
        )
        for precision in precisions(device)
        for name, (what, values) in modes.items()
    }


def _exact(exact: dict[str, Any], parts: dict[str, Any], device: torch.device) -> dict[str, Contender]:
    once, gas = Check(passes=1, num_steps=NUM_STEPS), Check(passes=NUM_STEPS, num_steps=NUM_STEPS)
    precision, steps = precisions(device)[-1], f"{NUM_STEPS} steps"
    pyg = {
        f"appnp-pyg-{form}": Contender(
            f"exact, {steps}, PyG's MLP and APPNP ({form}, normalized beforehand), dense features, fp32",
            "appnp",
            exact | AS_RELEASED,
            once,
            model=partial(PygAPPNP, form=form),
        )
        for form in ("edge_index", "csr", "EdgeIndex")
    }
    return {
        "appnp": Contender(
            f"exact, {steps}, ours on torch's sparse product, fp32", "appnp", exact | AS_RELEASED, once, plain=True
        ),
        "appnp-our-kernels": Contender(
            f"exact, {steps}, our kernels, {precision.name}", "appnp", exact | precision.options, once
        ),
        **pyg,
        "gas": Contender(
            f"GAS, {steps}, a history after each, torch's sparse product, fp32",
            "appnp-gas",
            exact | parts | AS_RELEASED,
            gas,
            plain=True,
        ),
        "gas-our-kernels": Contender(
            f"GAS, {steps}, our kernels, {precision.name}", "appnp-gas", exact | parts | precision.stored, gas
        ),
    }


def _deep(shape: Shape, parts: dict[str, Any], device: torch.device) -> dict[str, Contender]:
    """Returns the stack of lazy blocks and layered models with a history per layer, on the same kernels."""
    precision = precisions(device)[-1]
    common = {"hidden_channels": DEEP_WIDTH if shape.hidden_channels > 64 else shape.hidden_channels, "dropout": 0.5}
    common |= parts | precision.stored | {"lr": 0.003}
    # labels are shown, as they are by default on a graph of this shape
    deep = common | {"num_blocks": DEEP_BLOCKS, "num_layers": 2, "label_input": 0.5}
    host = {"history": "pinned", "features": "host", "edges": "device"}
    what, stored = f"{DEEP_BLOCKS} blocks and the models beside them", "histories in page-locked host memory"
    layered = {
        "gcnii-gas-our-kernels": ("gcnii-gas", 2 * DEEP_BLOCKS),
        "gcn-gas-our-kernels": ("gcn-gas", DEEP_BLOCKS),
    }
    found = {
        "deep": Contender(f"{what}, {precision.name}", "lazygnn-deep", deep, DEEP),
        "deep-narrow": Contender(
            f"{what}, views of a quarter of the width, {precision.name}",
            "lazygnn-deep",
            deep | {"view_channels": common["hidden_channels"] // 4},
            DEEP,
        ),
        "deep-host": Contender(f"{what}, {stored}, {precision.name}", "lazygnn-deep", deep | host, DEEP),
        "deep-host-narrow": Contender(
            f"{what}, views of a quarter of the width, {stored}, {precision.name}",
            "lazygnn-deep",
            deep | host | {"view_channels": common["hidden_channels"] // 4},
            DEEP,
        ),
        **{
            name: Contender(
                f"GAS, {depth} layers, our kernels, {precision.name}",
                method,
                common | {"num_layers": depth, "norm": "layer"},
            )
            for name, (method, depth) in layered.items()
        },
    }
    if device.type == "cpu":
        # everything is in host memory
        return {name: contender for name, contender in found.items() if "-host" not in name}
    return found


def _sampled(parts: dict[str, Any]) -> dict[str, Contender]:
    return {
        "graphsage": Contender(
            f"our GraphSAGE, width, depth and fan-outs of its recipe, {SAGE_BATCH} training nodes a batch, fp32",
            "graphsage",
            {"batch_size": SAGE_BATCH},
        ),
        "cluster-gcn": Contender(
            "our Cluster-GCN, width and depth of its recipe, the parts of the graph, fp32",
            "cluster-gcn",
            parts,
        ),
    }


def precisions(device: torch.device) -> list[Precision]:
    """Returns the compared number formats, the narrowest last; a CPU may take hours for products in bfloat16."""
    wide = Precision("", "float32", {"precision": "float32"})
    if device.type == "cpu":
        return [wide]
    narrow = Precision("-bf16", "bfloat16", {"precision": "bfloat16"})
    return [wide, Precision("-tf32", "tf32", {"precision": "tf32"}), narrow]
