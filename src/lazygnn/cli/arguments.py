"""Arguments that several commands share, and the words that are refused for options of training."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.errors import ConfigError
from lazygnn.methods import methods_with

RootOption = Annotated[str | None, typer.Option(help="Folder of data files; default: $LAZYGNN_DATA, or `data`.")]
RunRootOption = Annotated[str | None, typer.Option(help="Folder of data files; default: where the run's graph was.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
CorrectAndSmoothOption = Annotated[
    bool, typer.Option("--correct-and-smooth", help="Improve the predictions with the labels of the training nodes.")
]
CorrectAlphaOption = Annotated[
    float | None, typer.Option(help="Weight of the errors where these are spread; default: 0.2; 1 leaves it out.")
]
SmoothAlphaOption = Annotated[
    float | None,
    typer.Option(help="Weight of the predictions where these are smoothed; default: 0.2; 1 leaves it out."),
]
ScalingOption = Annotated[str | None, typer.Option(help="Factor of the spread errors, or `auto`; default: auto.")]
DropUnknownOption = Annotated[
    bool, typer.Option("--drop-unknown", help="Drop edges of nodes that are not in the table of nodes.")
]
ColumnsOption = list[str] | None
RunArgument = Annotated[Path, typer.Argument(help="A run folder that `train` wrote.")]


class TrainCommand(TyperCommand):
    """A command that takes its many options with `--set` instead of flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses an option that is given as a flag, or with a space, and names its `--set`."""
        # shell completion must not raise errors
        if not ctx.resilient_parsing:
            flags = {flag for option in self.params for flag in option.opts}
            for number, arg in enumerate(args):
                following = [word for word in args[number + 1 :] if word != "="]
                if arg == "--set":
                    _check_assignment(following)
                elif arg.partition("=")[0] not in flags:
                    _check_flag(arg, following)
        return super().parse_args(ctx, args)


def _check_assignment(words: list[str]) -> None:
    if words and "=" not in words[0] and not words[0].startswith("-"):
        name, value = words[0], _value_among(words[1:])
        raise ConfigError(f"`--set {name}` has no value; use `--set {name}={value}`, without spaces")


def _check_flag(arg: str, following: list[str]) -> None:
    flag, equals, value = arg.partition("=")
    option = flag.removeprefix("--").replace("-", "_")
    if flag.startswith("--") and methods_with(option):
        value = value if equals else _value_among(following)
        raise ConfigError(f"`{flag}` is not a flag; use `--set {option}={value}`")


def _value_among(words: list[str]) -> str:
    return words[0] if words and not words[0].startswith("--") else "VALUE"


def read_correct_and_smooth(wanted: bool, **values: float | str | None) -> CorrectAndSmooth | None:
    """Returns what `--correct-and-smooth` asks for; refuses its options without it.

    Args:
        wanted: Whether the flag is given.
        values: Its options, `None` for those that are not given.
    """
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if not wanted:
        if given:
            flag = f"--{next(iter(given))}".replace("_", "-")
            raise ConfigError(f"`{flag}` has no effect without `--correct-and-smooth`; add that, or omit `{flag}`")
        return None
    if "scaling" in given:
        # words other than `auto` are refused below
        with suppress(ValueError):
            given["scaling"] = float(given["scaling"])
    return CorrectAndSmooth(**given)
