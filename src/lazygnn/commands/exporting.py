"""Exports a run: its weights, a description, and a file of plain PyTorch that runs without this library."""

import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any, cast

from safetensors.torch import save
from torch import nn

from lazygnn.commands.loading import LoadedRun, load_run
from lazygnn.commands.paths import as_path
from lazygnn.errors import ConfigError, reason
from lazygnn.files import replaced_folder
from lazygnn.graph import Graph
from lazygnn.methods import method_options
from lazygnn.model import THRESHOLD, Model
from lazygnn.models import GCN, SAGE, Convolution, Decoupled, LazyBlock, LazyStack, Mixture, Standardized
from lazygnn.propagation.base import Diffusion, NoPropagation, Propagation
from lazygnn.version import VERSION

WEIGHTS, DESCRIPTION, CODE = "weights.safetensors", "model.json", "model.py"
EXPORTED = ("mlp", "appnp", "appnp-gas", "lazygnn", "lazygnn-paper", "lazygnn-deep", "gcn", "gcn-gas", "graphsage")


def export_run(
    path: Path | str,
    out: Path | str,
    *,
    root: str | None = None,
    trained_on: Graph | None = None,
    verify: bool = True,
) -> dict[str, Any]:
    """Writes the best weights of a run, with a file of plain PyTorch that predicts with them.

    Args:
        path: The run folder.
        out: A new folder for `weights.safetensors`, `model.json` and `model.py`.
        root: Another folder of data files.
        trained_on: The graph that the run was trained on, if it is loaded already; by default it is found by its name.
        verify: Whether files of the run, or its graph, that have changed since they were written are refused.

    Returns:
        The description in `model.json`.
    """
    path, out = as_path(path, "path"), as_path(out, "out")
    if out.exists():
        raise ConfigError(f"`{out}` exists; choose another `--out` or remove it")
    run = load_run(path, device="cpu", root=root, trained_on=trained_on, verify=verify)
    if run.config.method not in EXPORTED:
        raise ConfigError(f"`{run.config.method}` cannot be exported; methods that can: {', '.join(EXPORTED)}")
    description = describe_model(run)
    weights = {name: value.contiguous() for name, value in _inner(run.model).state_dict().items() if name != THRESHOLD}
    try:
        with replaced_folder(out) as unfinished:
            (unfinished / WEIGHTS).write_bytes(save(weights))
            (unfinished / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
            (unfinished / CODE).write_bytes((resources.files("lazygnn.export") / "plain.py").read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot write `{out}`: {reason(error)}; choose another `--out`") from error
    return description


def describe_model(run: LoadedRun) -> dict[str, Any]:
    """Returns what `model.py` needs to know of a model, and where it comes from."""
    return _describe(_inner(run.model)) | {
        "in_channels": run.graph.in_channels,
        "num_outputs": run.graph.task.num_outputs,
        "reads_labels": run.model.reads_labels,
        "task": run.graph.task.kind,
        "threshold": run.model.decide(run.graph.task).threshold,
        "class_names": None if run.graph.class_names is None else list(run.graph.class_names),
        "center": run.model.target_center.tolist() if isinstance(run.model, Standardized) else None,
        "scale": run.model.target_scale.tolist() if isinstance(run.model, Standardized) else None,
        "feature_scale": None if run.feature_scale is None else run.feature_scale.record(),
        "normalize_features": method_options(run.config).normalize_features,
        "method": run.config.method,
        "dataset": run.graph.name,
        "lazygnn": VERSION,
    }


def _inner(model: Model) -> Model:
    return model.model if isinstance(model, Standardized) else model


def _describe(model: Model) -> dict[str, Any]:
    if isinstance(model, Mixture):
        return {"kind": "mixture", "models": [_describe(each) for each in model]}
    if isinstance(model, LazyStack):
        return _describe_stack(model)
    weights = model.state_dict()
    if isinstance(model, Decoupled):
        shapes = [weights[f"transform.linears.{index}.weight"].shape for index in range(len(model.transform.linears))]
        head = None if model.head is None else list(model.head.weight.shape)
        norm, spread = _norm_of(model.transform.norms), _describe_propagation(model.propagation)
        return {"kind": "decoupled", "sizes": _sizes(shapes), "head": head, "norm": norm, **spread}
    assert isinstance(model, GCN | SAGE)
    name, kind = ("own.weight", "sage") if isinstance(model, SAGE) else ("weight", "gcn")
    shapes = [weights[f"layers.{index}.{name}"].shape for index in range(len(model.layers))]
    return {"kind": kind, "sizes": _sizes(shapes), "norm": _norm_of(model.norms)}


def _describe_stack(model: LazyStack) -> dict[str, Any]:
    first = model.blocks[0]
    if isinstance(first, Convolution):
        block: dict[str, Any] = {"block_norm": _norm_of([first.norm]), "views": None}
    else:
        assert isinstance(first, LazyBlock)
        block = {
            "view_channels": None if first.narrow is None else first.narrow.weight.shape[1],
            "views": [_describe_propagation(cast(Diffusion, far)) for far in first.far],
        }
    return {
        "kind": "blocks",
        "in_channels": model.first.weight.shape[0],
        "channels": model.first.weight.shape[1],
        "out_channels": model.last.weight.shape[1],
        "reads_labels": model.labels is not None,
        "num_blocks": len(model.blocks),
        "norm": _norm_of([model.norm]),
        **block,
    }


def _describe_propagation(found: Propagation) -> dict[str, Any]:
    if isinstance(found, NoPropagation):
        return {"alpha": 1.0, "sign": 1, "steps": 0, "tolerance": 0.0}
    assert isinstance(found, Diffusion)
    return {"alpha": found.alpha, "sign": found.sign, "steps": found.eval_layers, "tolerance": found.eval_tolerance}


def _norm_of(norms: Iterable[nn.Module]) -> str:
    first = next(iter(norms), None)
    return "batch" if isinstance(first, nn.BatchNorm1d) else "layer" if isinstance(first, nn.LayerNorm) else "none"


def _sizes(shapes: list[Any]) -> list[int]:
    return [shapes[0][0], *(shape[1] for shape in shapes)]
