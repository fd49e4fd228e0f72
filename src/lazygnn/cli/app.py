"""The program: errors in one line, the version, and where results and progress go."""

import errno
import json
import logging
import os
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from lazygnn.data.datasets import VERIFY
from lazygnn.distributed import is_first
from lazygnn.errors import CheckpointError, ConfigError, GraphError, RankError, reason
from lazygnn.history import HistoryFileError
from lazygnn.run.saving import Interrupted
from lazygnn.version import VERSION

NO_VERIFY = "--no-verify"


class Commands(TyperGroup):
    """Commands that report a user's error in one line, with exit status 2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes `--no-verify` after the command, too."""
        given = [NO_VERIFY] if NO_VERIFY in args else []
        return super().parse_args(ctx, given + [arg for arg in args if arg != NO_VERIFY])

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except Interrupted as stop:
            Console(stderr=True).print(str(stop), markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(128 + stop.signum) from None
        except (GraphError, ConfigError, CheckpointError, HistoryFileError, RankError) as error:
            # all ranks of a training have the same arguments, and the first tells what is wrong with them
            if error.shown if isinstance(error, RankError) else is_first():
                text = f"error: {error}"
                Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None
        except OSError as error:
            # a closed pipe is not an error: `lazygnn show RUN | head`
            if error.errno in (None, errno.EPIPE):
                raise
            where = "" if error.filename is None else f" `{error.filename}`"
            text = f"error: cannot read or write{where}: {reason(error)}"
            Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Runs the command line, with the library's warnings on stderr."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s: %(message)s")
    app()


def _skip_checksums(ctx: typer.Context, wanted: bool) -> None:
    # processes that a search starts read it, too
    if wanted and not ctx.resilient_parsing:
        before = os.environ.get(VERIFY)
        os.environ[VERIFY] = "0"
        ctx.call_on_close(lambda: os.environ.pop(VERIFY) if before is None else os.environ.update({VERIFY: before}))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lazygnn {VERSION}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    no_verify: Annotated[
        bool,
        typer.Option(NO_VERIFY, callback=_skip_checksums, help="Take graphs and runs as they are."),
    ] = False,
) -> None:
    """Trains graph neural networks with long reach on large graphs, by lazy propagation."""


def print_result(found: dict[str, Any] | None) -> None:
    """Prints a result as a JSON line; of several ranks, one has it."""
    if found:
        typer.echo(json.dumps(found))


def say(text: str, *, quiet: bool = False) -> None:
    """Shows a sentence on stderr."""
    if not quiet:
        Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)
