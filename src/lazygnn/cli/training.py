"""The command `train`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lazygnn import commands
from lazygnn.cli.app import print_result, say
from lazygnn.cli.arguments import RootOption
from lazygnn.config import parse_assignments, read_options
from lazygnn.data import load_graph
from lazygnn.data.datasets import verifies
from lazygnn.distributed import is_launched
from lazygnn.errors import ConfigError, check_number
from lazygnn.methods import resolve
from lazygnn.run.seeds import SeedRuns, describe_scores, describe_summary


def train(
    method: Annotated[str | None, typer.Argument(help="A method that `lazygnn list` shows.")] = None,
    dataset: Annotated[str | None, typer.Argument(help="A data set's name, or a path.")] = None,
    root: RootOption = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of options; overrides the recipe.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; overrides all; repeatable.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, dropout and batches; default: 0.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds to train, from `--seed` on.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda; default: auto.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/<dataset>-<method>-<seed>.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume this run from its last checkpoint.")] = None,
    init_from: Annotated[Path | None, typer.Option(help="Start from the best weights and options of this run.")] = None,
    logger: Annotated[str | None, typer.Option(help="tensorboard: also write the log for TensorBoard.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Trains a method on a data set; the last line on stdout is the result as JSON."""

    def note(text: str) -> None:
        say(text, quiet=quiet)

    def tell(result: dict[str, Any]) -> None:
        note(f"seed {result['seed']}: {describe_scores(result)}")

    if is_launched() and (seeds is not None or init_from is not None):
        raise ConfigError("several ranks train one run from drawn weights; omit `--seeds` and `--init-from`")
    if resume is not None:
        place: dict[str, Any] = {"device": device, "root": root, "verify": verifies()}
        longer = parse_assignments(set_ or [])
        others = (method, dataset, config, out, seed, seeds, init_from, logger)
        if longer.keys() - {"epochs"} or any(given is not None for given in others):
            raise ConfigError(
                "`--resume` uses the configuration of the run; it can only be combined with `--root`, `--device`, "
                "`--quiet`, `--no-verify` and `--set epochs=...`"
            )
        if SeedRuns.is_at(resume) and longer:
            raise ConfigError(f"`{resume}` holds several runs; extend one of them, such as `{resume}/seed-0`")
        if SeedRuns.is_at(resume):
            found = commands.resume_seeds(resume, **place, quiet=quiet, tell=tell)
            note(describe_summary(found))
        else:
            epochs = longer.get("epochs")
            if longer:
                check_number("epochs", epochs, whole=True)
            found = commands.resume(resume, epochs=epochs, **place, quiet=quiet)
        print_result(found)
        return
    if init_from is None and (method is None or dataset is None):
        raise ConfigError(
            "give a method and a data set, such as `lazygnn train lazygnn wordnet-small`, or `--resume RUN`"
        )
    values = ({} if config is None else read_options(config)) | parse_assignments(set_ or [])
    values |= {} if logger is None else {"logger": logger}
    place = {"seed": seed or 0, "device": "auto" if device is None else device, "root": root}
    if init_from is not None:
        if seeds is not None:
            raise ConfigError("`--init-from` starts all seeds from the same weights; omit `--seeds`")
        place |= {"method": method, "dataset": dataset, "verify": verifies()}
        found = commands.fine_tune(init_from, values, out, quiet=quiet, **place)
        print_result(found)
        return
    assert method is not None
    assert dataset is not None
    # in an assignment, `none` means that it is not set
    if is_launched() or values.get("parts_per_step") not in (None, "none"):
        from lazygnn.commands.scaling import train_ranks

        talk: dict[str, Any] = {"quiet": quiet, "tell": note}
        print_result(train_ranks(method, dataset, values, out, **talk, verify=verifies(), **place))
        return
    # refuses wrong options before the graph is loaded
    resolve(method, dataset, values, **place)
    graph = load_graph(dataset, root)
    resolved = resolve(method, dataset, values, graph=graph, **place)
    if seeds is None:
        found = commands.train(resolved, out, graph=graph, quiet=quiet)
    else:
        found = commands.train_seeds(resolved, seeds, out, graph=graph, quiet=quiet, tell=tell)
        note(describe_summary(found))
    print_result(found)
