"""The cost of training one contender with the library's trainer, and checks of its results."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.checks import TOLERANCES, Check, Checked, propagation_error
from benchmarks.kernels import kernels
from benchmarks.profile import Profile
from benchmarks.report import Row, median, verdict
from common.batches import StoredBatches
from common.measure import Memory
from lazygnn.config import Config, TrainerOptions
from lazygnn.graph import Graph
from lazygnn.methods import Built, Place, build, build_model, derive, resolve
from lazygnn.model import Model
from lazygnn.training import EpochReport, Trainer
from lazygnn.training.precision import forward_precision


@dataclass(frozen=True)
class Contender:
    """A configuration to train.

    Attributes:
        settings: A description.
        method: A method of the library.
        values: Options that differ from the recipe.
        check: The expected result of its propagation, if it propagates.
        plain: Whether it uses the sparse products of plain PyTorch instead of the library's choice.
        num_batches: Measured batches of an epoch; their time is scaled up. All by default.
        model: Builds the model, if it is not the library's.
    """

    settings: str
    method: str
    values: Mapping[str, Any]
    check: Check | None = None
    plain: bool = False
    num_batches: int | None = None
    model: Callable[[Config, Graph], Model] | None = None

    def resolve(self, recipe: str, values: Mapping[str, Any]) -> Config:
        """Returns its configuration: the recipe, its own values, then `values`, without evaluations during training."""
        quiet = {"eval_every": 10_000, "diagnose_every": 0}
        # derived, since the values are meant to be the same for every graph
        return derive(resolve(self.method, recipe), quiet | dict(self.values) | dict(values))

    def build_model(self, config: Config, graph: Graph, place: Place) -> Model:
        """Returns its model."""
        if self.model is None:
            return build_model(config, graph, place)
        return self.model(config, graph).to(place.device)


def measure(
    contender: Contender,
    recipe: str,
    graph: Graph,
    device: torch.device,
    repeats: int,
    warmup: int,
    *,
    profiled: bool = False,
) -> Row:
    """Trains `warmup` epochs, measures `repeats`, evaluates after one more, then checks the propagated values.

    With `profiled`, the kernels of one more epoch are recorded.
    """
    config = contender.resolve(recipe, {"epochs": warmup + repeats + 1 + profiled})
    torch.manual_seed(0)
    with kernels(plain=contender.plain), tempfile.TemporaryDirectory(prefix="lazygnn-epoch-") as folder:
        dtype = torch.bfloat16 if config.trainer.precision == "bfloat16" else torch.float32
        place = Place(device, Path(folder), compute_dtype=dtype)
        built = build(config, graph, device, folder=place.folder)
        if contender.model is not None:
            built = replace(built, model=contender.build_model(config, built.graph, place))
        whole, loader = len(built.loader), built.loader
        if contender.num_batches is not None:
            loader = StoredBatches(loader, list(islice(loader.sweep(), contender.num_batches)))
        profile = Profile(device) if profiled else None
        scale = whole / len(loader)
        row = _train(replace(built, loader=loader), config.trainer, warmup, repeats, scale=scale, profile=profile)
        error = None if contender.check is None else _check(contender, contender.check, recipe, built, place)
    return {
        **row,
        "error": error,
        "batches": f"{len(loader)} of {whole}",
        "settings": contender.settings,
        "config": config.model_dump(exclude={"root", "device"}),
        **verdict(
            # methods differ in how fast they start, so a few epochs show no more than that
            the_loss_decreases=row["losses"][-1] < row["losses"][0],
            propagation_equals_float64=error is None or error <= TOLERANCES[dtype],
        ),
    }


def _train(
    built: Built, options: TrainerOptions, warmup: int, repeats: int, *, scale: float, profile: Profile | None
) -> Row:
    reports, memory = list[EpochReport](), Memory(built.model.device)

    def on_epoch(report: EpochReport) -> None:
        reports.append(report)
        memory.record()
        if profile is not None and len(reports) == warmup + repeats:
            profile.start()
        elif profile is not None and len(reports) == warmup + repeats + 1:
            profile.stop()

    memory.record()
    Trainer(built.model, built.loader, built.graph, options, on_epoch=on_epoch).run()
    # the last epoch evaluates, which takes memory of its own
    measured, scores = slice(warmup, warmup + repeats), reports[-1].scores or {}
    return {
        **median([scale * report.seconds for report in reports[measured]]),
        # including the first epoch: replayed steps do not use the allocator
        **memory.summary(slice(1, warmup + repeats + 1)),
        **({} if profile is None else {"profile": profile.milliseconds}),
        "losses": [report.loss for report in reports],
        "accuracy": scores["val"],
    }


def _check(contender: Contender, check: Check, recipe: str, built: Built, place: Place) -> float:
    config = contender.resolve(recipe, check.options)
    model = contender.build_model(config, built.graph, place)
    assert isinstance(model, Checked)
    with forward_precision(config.trainer.precision, place.device):
        return propagation_error(check, model, built.loader, built.graph, place.compute_dtype)
