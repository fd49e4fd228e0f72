"""Commands about several runs: `tune`, `compare` and `report`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lazygnn import commands
from lazygnn.cli.app import print_result, say
from lazygnn.cli.arguments import DeviceOption, RootOption, RunRootOption
from lazygnn.commands.comparison import check_split, compare_runs
from lazygnn.commands.reporting import write_page
from lazygnn.config import parse_assignments, read_options
from lazygnn.data.datasets import verifies
from lazygnn.errors import ConfigError

# what `tune --resume` takes beside the settings of the search
_WITH_RESUME = {"resume", "trials", "timeout", "jobs", "quiet"}


def tune(
    context: typer.Context,
    method: Annotated[str | None, typer.Argument(help="A method that `lazygnn list` shows.")] = None,
    dataset: Annotated[str | None, typer.Argument(help="A data set's name, or a path.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default: runs/<dataset>-<method>-tune.")] = None,
    space: Annotated[str, typer.Option(help="options (their own ranges), paper, or a TOML file.")] = "options",
    trials: Annotated[int | None, typer.Option(help="Number of trials in all; default: 30.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which no new trial starts.")] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes that train.")] = 1,
    pruner: Annotated[str, typer.Option(help="Ends bad trials early: median, hyperband or none.")] = "median",
    config: Annotated[Path | None, typer.Option(help="TOML file of options that stay as they are.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value that stays as it is; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search and of every training.")] = 0,
    device: DeviceOption = "auto",
    root: RootOption = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the search in this folder.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no trials.")] = False,
) -> None:
    """Searches options by validation score; prints the best as JSON and writes them for `train --config`."""

    def tell(line: str) -> None:
        say(line, quiet=quiet)

    limits: dict[str, Any] = {"timeout": timeout, "jobs": jobs, "tell": tell}
    if resume is not None:
        if any(_is_given(context, name) for name in context.params if name not in _WITH_RESUME):
            raise ConfigError(
                "`--resume` uses the settings of the search; it can only be combined with `--trials`, `--timeout`, "
                "`--jobs`, `--quiet` and `--no-verify`"
            )
        found = commands.resume_tuning(resume, trials=trials, verify=verifies(), **limits)
    elif method is None or dataset is None:
        raise ConfigError(
            "give a method and a data set, such as `lazygnn tune lazygnn wordnet-small`, or `--resume FOLDER`"
        )
    else:
        values = ({} if config is None else read_options(config)) | parse_assignments(set_ or [])
        searched: dict[str, Any] = {"out": out, "space": space, "trials": 30 if trials is None else trials}
        place: dict[str, Any] = {"pruner": pruner, "seed": seed, "device": device, "root": root}
        found = commands.tune(method, dataset, values, **searched, **place, **limits)
    say(f"wrote the best options to {found['config']}", quiet=quiet)
    print_result(found)


def _is_given(context: typer.Context, name: str) -> bool:
    """Returns whether a command line has an option, whatever its value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs or of several seeds; the first is the reference.")
    ],
    split: Annotated[str | None, typer.Option(help="Judge by val or test; default: test if all runs have it.")] = None,
    out: Annotated[Path | None, typer.Option(help="PNG file of curves over epochs and over time.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line instead of a table.")] = False,
) -> None:
    """Compares runs with the first of them, by the scores of common seeds."""
    found = compare_runs(runs, split=check_split(split), picture=out, verify=verifies())
    if as_json:
        print_result(found.record())
        return
    Console().print(found.table())
    for sentence in found.sentences():
        typer.echo(sentence)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that `train` wrote.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    root: RunRootOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Writes a page about one or several runs: summary, curves, classes, calibration, mistakes, costs, settings."""
    write_page(runs, out, device=device, root=root, verify=verifies())
    Console(stderr=True).print(f"wrote {out}", highlight=False, soft_wrap=True)
