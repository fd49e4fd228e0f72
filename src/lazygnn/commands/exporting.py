"""Exports a run: its weights, a description, and a file of plain PyTorch that runs without this library."""

import json
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from safetensors.torch import save

from lazygnn.commands.loading import LoadedRun, load_run
from lazygnn.errors import ConfigError, reason
from lazygnn.files import replaced_folder
from lazygnn.methods import method_options
from lazygnn.model import Model
from lazygnn.models import GCN, SAGE, Decoupled, Standardized
from lazygnn.propagation.base import Diffusion, NoPropagation

WEIGHTS, DESCRIPTION, CODE = "weights.safetensors", "model.json", "model.py"
EXPORTED = ("mlp", "appnp", "appnp-gas", "lazygnn", "lazygnn-paper", "gcn", "gcn-gas", "graphsage")


def export_run(path: Path, out: Path, *, root: str | None = None) -> dict[str, Any]:
    """Writes the best weights of a run, with a file of plain PyTorch that predicts with them.

    Args:
        path: The run folder.
        out: A new folder for `weights.safetensors`, `model.json` and `model.py`.
        root: Another folder of data files.

    Returns:
        The description in `model.json`.
    """
    if out.exists():
        raise ConfigError(f"`{out}` exists; choose another `--out` or remove it")
    run = load_run(path, device="cpu", root=root)
    if run.config.method not in EXPORTED:
        raise ConfigError(f"`{run.config.method}` cannot be exported; methods that can: {', '.join(EXPORTED)}")
    description = describe_model(run)
    weights = {name: value.contiguous() for name, value in _inner(run.model).state_dict().items()}
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
    model, options = _inner(run.model), method_options(run.config)
    weights, task = model.state_dict(), run.graph.task
    common = {
        "task": task.kind,
        "class_names": None if run.graph.class_names is None else list(run.graph.class_names),
        "center": run.model.target_center.tolist() if isinstance(run.model, Standardized) else None,
        "scale": run.model.target_scale.tolist() if isinstance(run.model, Standardized) else None,
        "normalize_features": options.normalize_features,
        "norm": getattr(options, "norm", "none"),
        "method": run.config.method,
        "dataset": run.graph.name,
        "lazygnn": metadata.version("lazygnn"),
    }
    if isinstance(model, Decoupled):
        shapes = [weights[f"transform.linears.{index}.weight"].shape for index in range(len(model.transform.linears))]
        spread = _describe_propagation(model)
        head = None if model.head is None else list(model.head.weight.shape)
        return {"kind": "decoupled", "sizes": _sizes(shapes), "head": head, **spread, **common}
    assert isinstance(model, GCN | SAGE)
    name, kind = ("own.weight", "sage") if isinstance(model, SAGE) else ("weight", "gcn")
    shapes = [weights[f"layers.{index}.{name}"].shape for index in range(len(model.layers))]
    return {"kind": kind, "sizes": _sizes(shapes), **common}


def _inner(model: Model) -> Model:
    return model.model if isinstance(model, Standardized) else model


def _describe_propagation(model: Decoupled) -> dict[str, Any]:
    if isinstance(model.propagation, NoPropagation):
        return {"alpha": 1.0, "steps": 0, "tolerance": 0.0}
    assert isinstance(model.propagation, Diffusion)
    found = model.propagation
    return {"alpha": found.alpha, "steps": found.eval_layers, "tolerance": found.eval_tolerance}


def _sizes(shapes: list[Any]) -> list[int]:
    return [shapes[0][0], *(shape[1] for shape in shapes)]
