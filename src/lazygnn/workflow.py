"""What the commands do: train a configuration into a run folder, evaluate it, predict with it."""

import logging
import shutil
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.data.datasets import EMBEDDED, data_root
from lazygnn.data.folder import HEADER, save_folder
from lazygnn.errors import CheckpointError, ConfigError, GraphError
from lazygnn.graph import Graph, without_warnings
from lazygnn.methods import Place, build, build_model, place_graph, read_config
from lazygnn.model import Model
from lazygnn.partitioning import PartitionMethod, default_cache, describe, partition
from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.run.curves import plot_curves
from lazygnn.run.folder import CHECKPOINTS, CURVES, HISTORIES, Run, peak_memory_mib
from lazygnn.run.progress import EpochProgress
from lazygnn.run.saving import Saver
from lazygnn.training import EpochReport, Trainer, evaluate, infer
from lazygnn.training.metrics import find_metric

logger = logging.getLogger(__name__)


def train(
    config: Config, out: Path | None = None, *, graph: Graph | None = None, quiet: bool = False
) -> dict[str, Any]:
    """Trains a configuration and writes its run folder.

    Args:
        config: From `resolve`.
        out: The folder; `runs/<dataset>-<method>-<seed>` by default, numbered where that exists.
        graph: Saves loading where several runs share a graph.
        quiet: Shows nothing on the way.

    Returns:
        The result, as `evaluate` returns it, with epochs and time.
    """
    device = choose_device(config.device)
    graph = load_graph(config.dataset, config.root) if graph is None else graph
    config = _anchored(config)
    run = Run.create(out if out is not None else _free_folder(config), config)
    try:
        trainer = _trainer(run, config, graph, device)
    except BaseException:
        # nothing has been trained yet: leave no folder behind that a second try would stumble over
        shutil.rmtree(run.path)
        raise
    return _fit(run, config, trainer, quiet=quiet)


def resume(path: Path, *, device: str | None = None, root: str | None = None, quiet: bool = False) -> dict[str, Any]:
    """Goes on with a run from its last good checkpoint, or from its start where there is none yet.

    A run that has ended is left as it is, and its result returned.

    Args:
        path: The run folder.
        device: Another device than the run was started on.
        root: Another folder of data files.
        quiet: Shows nothing on the way.
    """
    run = Run.open(path)
    config = run.config(read_config)
    if run.has_ended():
        logger.warning("run `%s` has ended and is left as it is; to train anew, choose another `--out`", path)
        return run.result() | {"run": str(path)}
    checkpoint = CheckpointFolder(path / CHECKPOINTS).load_latest()
    graph = _load_again(config, root)
    trainer = _trainer(run, config, graph, choose_device(device if device is not None else config.device))
    if checkpoint is not None:
        trainer.restore(checkpoint.tensors, checkpoint.state)
    else:
        logger.warning(
            "run `%s` has no checkpoint yet and starts over; `checkpoint_minutes` says when one is made", path
        )
    run.rewind(trainer.epoch)
    return _fit(run, config, trainer, quiet=quiet)


def _trainer(run: Run, config: Config, graph: Graph, device: torch.device) -> Trainer:
    torch.manual_seed(config.seed)
    built = build(config, graph, device, folder=run.path / HISTORIES, cache=default_cache())
    trainer = Trainer(built.model, built.loader, built.graph, config.trainer, seed=config.seed)
    metric, _ = find_metric(config.trainer.metric, built.graph.task)
    # on a GPU, a step is replayed or not batch by batch
    replay = {} if device.type == "cuda" else {"cuda_graphs": "off"}
    run.save_chosen({"device": str(device), "metric": metric} | replay | config.model.chosen())
    return trainer


def _fit(run: Run, config: Config, trainer: Trainer, *, quiet: bool) -> dict[str, Any]:
    saver = Saver(CheckpointFolder(run.path / CHECKPOINTS), config.trainer)
    trainer.on_batch = saver
    with EpochProgress(config.method, config.trainer.epochs, quiet=quiet) as progress, saver.listening():

        def on_epoch(report: EpochReport) -> None:
            run.log(report)
            progress.show(report)

        trainer.on_epoch = on_epoch
        try:
            trainer.run()
        except FloatingPointError as error:
            raise ConfigError(str(error)) from error
        saver.save(trainer)
    # the checkpoint holds all that the mapped files do
    shutil.rmtree(run.path / HISTORIES, ignore_errors=True)
    fit = trainer.finish()
    run.save_weights(trainer.model.state_dict())
    plot_curves({config.method: run.history()}, run.path / CURVES)
    result = _summary(config, trainer.graph, fit.scores) | {
        "epochs": fit.epochs,
        "best_epoch": fit.best_epoch,
        # the first epochs compile and capture
        "seconds_per_epoch": statistics.median([line["seconds"] for line in run.history()] or [0.0]),
        "peak_memory_mib": peak_memory_mib(trainer.model.device),
        "run": str(run.path),
    }
    run.save_result(result)
    return result


def evaluate_run(path: Path, *, device: str = "auto", root: str | None = None) -> dict[str, Any]:
    """Scores the best weights of a run again, exactly, on its own data set."""
    run = Run.open(path)
    config, weights = run.config(read_config), run.load_weights()
    chosen = choose_device(device)
    with without_warnings():
        graph = _load_again(config, root)
    model, graph = _restore(run, weights, graph, chosen)
    scores = evaluate(model, graph, config.trainer.metric)
    trained = run.result()
    return _summary(config, graph, scores) | {
        "epochs": trained.get("epochs"),
        "best_epoch": trained.get("best_epoch"),
        "seconds_per_epoch": trained.get("seconds_per_epoch"),
        "peak_memory_mib": peak_memory_mib(chosen),
        "run": str(path),
    }


def predict_run(
    path: Path, graph_file: Path | None = None, *, device: str = "auto", root: str | None = None
) -> tuple[Tensor, Graph, Graph]:
    """Outputs of a run for every node of its own graph, or of a new one with the same features.

    Returns:
        The outputs, the graph they are for, and the graph the run was trained on, whose task and class names hold.
    """
    run = Run.open(path)
    config, weights = run.config(read_config), run.load_weights()
    with without_warnings():
        trained_on = _load_again(config, root)
    graph = trained_on if graph_file is None else load_graph(graph_file, root)
    if graph.in_channels != trained_on.in_channels:
        raise GraphError(
            f"`{graph_file}` has {graph.in_channels} features, the run was trained on {trained_on.in_channels}; "
            "give a graph with the same features"
        )
    # the task is that of training: a new graph need not have labels
    graph = replace(graph, task=trained_on.task)
    model, placed = _restore(run, weights, graph, choose_device(device))
    return infer(model, placed), graph, trained_on


def prepare(
    dataset: str,
    num_parts: int,
    method: PartitionMethod,
    num_layers: int,
    seed: int = 0,
    root: str | None = None,
    out: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Loads and partitions a data set, so that training finds it in the cache; returns what the parts look like.

    Args:
        dataset: A name or a path.
        num_parts: Parts to cut the graph into.
        method: `metis`, `random` or `contiguous`.
        num_layers: Hops of the halo to measure.
        seed: Of the partition.
        root: Folder of data files.
        out: Also writes the permuted graph as a folder that `load_graph` maps into memory; train on it with
            `partition = "contiguous"`.
        tell: Told what is being done.
    """
    graph = load_graph(dataset, root)
    tell(f"partitioning {graph.num_nodes:,} nodes into {num_parts} parts")
    parts = partition(graph, num_parts, method=method, seed=seed, cache=default_cache())
    tell("measuring the halos")
    summary = asdict(describe(graph, parts, num_layers))
    if out is not None:
        tell(f"writing {out}")
        save_folder(replace(graph.permute(parts.order), part_ptr=parts.ptr), out)
    return {"dataset": dataset, "nodes": graph.num_nodes, "edges": graph.num_edges} | summary


def choose_device(name: str) -> torch.device:
    """`auto` takes an accelerator where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device: torch.device | None = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"unknown device `{name}`; choose auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device `{name}` is not there: torch {torch.__version__} sees no GPU; choose auto or cpu")
    return device


def _anchored(config: Config) -> Config:
    """The configuration with a path or root that holds in any working directory, as a run folder keeps it."""
    if _is_graph(Path(config.dataset)):
        return config.model_copy(update={"dataset": str(Path(config.dataset).absolute())})
    return config.model_copy(update={"root": str(data_root(config.root).absolute())})


def _is_graph(path: Path) -> bool:
    return path.suffix == ".npz" or (path / HEADER).is_file()


def _load_again(config: Config, root: str | None) -> Graph:
    """The graph of a run: from where it was, or from `root`, where a file is looked for by its name."""
    path = Path(config.dataset)
    if path.is_absolute() or path.suffix == ".npz":
        places = [path] if root is None else [Path(root) / path.name, path]
    else:
        folder = data_root(config.root if root is None else root)
        places = [folder / f"{path}.npz", folder / path]
    found = next((place for place in places if place.exists()), None)
    if found is None and config.dataset != EMBEDDED:
        raise GraphError(
            f"the run's graph `{config.dataset}` is not in `{places[0].parent}`; say where it is with `--root`, "
            "the folder of a file with that name"
        )
    # the graph inside the package and the raw files of public ones go by name
    return load_graph(found if found is not None and _is_graph(found) else config.dataset, places[0].parent)


def _restore(run: Run, weights: dict[str, Tensor], graph: Graph, device: torch.device) -> tuple[Model, Graph]:
    config = run.config(read_config)
    graph = place_graph(config, graph, device)
    model = build_model(config, graph, Place(device, run.path / HISTORIES, training=False))
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"the weights in `{run.path}` do not fit its configuration: {reason}") from error
    return model, graph


def _summary(config: Config, graph: Graph, scores: dict[str, float]) -> dict[str, Any]:
    return {
        "method": config.method,
        "dataset": config.dataset,
        "seed": config.seed,
        "metric": find_metric(config.trainer.metric, graph.task)[0],
        "val": scores.get("val"),
        "test": scores.get("test"),
    }


def _free_folder(config: Config) -> Path:
    base = Path("runs") / f"{Path(config.dataset).stem}-{config.method}-{config.seed}"
    numbered = (base.with_name(f"{base.name}-{number}") for number in range(2, 10_000))
    return next(path for path in (base, *numbered) if not path.exists())
