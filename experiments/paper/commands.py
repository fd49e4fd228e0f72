"""The commands of the reproductions: a table or figure of the paper each, and `all`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from common.summary import TABLES, Summary, known_summary
from experiments import grid
from experiments.best import Place
from experiments.paper import (
    communication,
    convergence,
    cost,
    redundancy,
    table1,
    table2,
    table3,
    table4,
    table5,
    table6,
)
from experiments.paper.frame import Experiment, Plan
from lazygnn.config import nearest
from lazygnn.errors import ConfigError

EXPERIMENTS: dict[str, Experiment] = {
    "table1": table1.EXPERIMENT,
    "cost": cost.EXPERIMENT,
    "table2": table2.EXPERIMENT,
    "table3": table3.EXPERIMENT,
    "table4": table4.EXPERIMENT,
    "table5": table5.EXPERIMENT,
    "table6": table6.EXPERIMENT,
    "figure1": redundancy.FIGURE1,
    "figure2": redundancy.FIGURE2,
    "convergence": convergence.EXPERIMENT,
    "communication": communication.EXPERIMENT,
}
IMAGES = Path(__file__).parents[2] / "docs" / "images"
# of a quick run
QUICK = {"epochs": 2, "eval_every": 1}

Datasets = Annotated[str, typer.Option(help="Graphs, separated by commas; default: those of the docs.")]
System = Annotated[list[str] | None, typer.Option(help="A row of the table, repeatable; default: all.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Number of seeds: 0, 1, ...; default: that of the docs.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Root = Annotated[str | None, typer.Option(help="Folder of data files; default: $LAZYGNN_DATA, or `data`.")]
Workers = Annotated[int, typer.Option(min=1, help="Runs at a time; timed runs are alone.")]
Quick = Annotated[bool, typer.Option("--quick", help="Two epochs on a small random graph, to try the command.")]
Stored = Annotated[bool, typer.Option("--stored", help="Train nothing; leave cells of missing runs empty.")]
Save = Annotated[
    bool, typer.Option("--save", help="Write summary and picture into `docs`; empty cells keep what is there.")
]


def add_commands(app: typer.Typer) -> None:
    """Adds a command for every table and figure of the paper, and one for all."""
    for name, experiment in EXPERIMENTS.items():
        app.command(name, help=f"Reproduces {experiment.title[0].lower()}{experiment.title[1:]}.")(_command([name]))
    app.command("all", help="Reproduces every table and figure of the paper.")(_command(list(EXPERIMENTS)))


def _command(names: Sequence[str]) -> Callable[..., None]:
    def command(
        datasets: Datasets = "",
        system: System = None,
        seeds: Seeds = None,
        root: Root = None,
        device: Device = "auto",
        workers: Workers = 1,
        quick: Quick = False,
        stored: Stored = False,
        save: Save = False,
    ) -> None:
        place = Place(
            root=root,
            device=device,
            # a process takes longer to start than these runs take
            workers=0 if quick else workers,
            stored=stored,
            folder="quick/" if quick else "",
            also=QUICK if quick else {},
            keep_going=not quick,
        )
        for name in names:
            experiment = EXPERIMENTS[name]
            plan = Plan(
                datasets=experiment.graphs(_split(datasets), quick=quick, alone=len(names) == 1),
                systems=_known(system or (), experiment) if len(names) == 1 else (),
                seeds=seeds or (1 if quick else experiment.seeds),
                place=place,
                quick=quick,
            )
            _make(name, plan, save=save)

    return command


def _make(name: str, plan: Plan, *, save: bool) -> None:
    experiment = EXPERIMENTS[name]
    print(f"# {experiment.title}", flush=True)
    summary = _with_origin(experiment.run(plan), name, plan)
    if save and (older := known_summary(name, TABLES)) is not None:
        # results of earlier runs may not be on this machine
        summary = summary.filled(older, experiment.systems)
    if plan.quick:
        print("a quick run, to try the command: its numbers and verdicts mean nothing")
    picture = (IMAGES if save else grid.RESULTS / plan.place.folder) / f"{name}.png"
    experiment.draw(summary, picture)
    print("\n".join([summary.markdown(), "", *(each.markdown() for each in experiment.judge(summary)), ""]))
    print(f"picture: {picture}")
    if save:
        path = summary.save(name, TABLES)
        print(f"wrote {path}; `python -m experiments tables --write` updates the docs")


def _with_origin(summary: Summary, name: str, plan: Plan) -> Summary:
    command = f"python -m experiments {name} --datasets {','.join(plan.datasets)} --seeds {plan.seeds}"
    return summary.model_copy(update={"origin": command})


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _known(systems: Sequence[str], experiment: Experiment) -> Sequence[str]:
    for system in systems:
        if system not in experiment.systems:
            raise ConfigError(f"unknown system `{system}`; {nearest(system, experiment.systems)}")
    return systems
