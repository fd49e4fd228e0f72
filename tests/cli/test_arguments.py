"""Arguments that several commands share."""

from pathlib import Path

import pytest

from tests.cli.helpers import Command, assert_one_line


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["lazygnn", "block.npz", "--epochs", "3"], "`--epochs` is not a flag; use `--set epochs=3`"),
        (["lazygnn", "block.npz", "--hidden-channels=64"], "is not a flag; use `--set hidden_channels=64`"),
        (["--num_parts", "4", "lazygnn", "block.npz"], "is not a flag; use `--set num_parts=4`"),
        (["lazygnn", "block.npz", "--decay-layers", "-1"], "is not a flag; use `--set decay_layers=-1`"),
        (["lazygnn", "block.npz", "--compile", "--quiet"], "is not a flag; use `--set compile=VALUE`"),
        (["lazygnn", "block.npz", "--compile"], "is not a flag; use `--set compile=VALUE`"),
        (["lazygnn", "block.npz", "--set", "alpha"], "`--set alpha` has no value; use `--set alpha=VALUE`"),
        (["lazygnn", "block.npz", "--set", "epochs", "5"], "use `--set epochs=5`, without spaces"),
        (["--set", "lr", "=", "0.1", "lazygnn", "block.npz"], "use `--set lr=0.1`, without spaces"),
    ],
)
@pytest.mark.parametrize("command", ["train", "tune"])
def test_an_option_given_as_a_flag_or_with_a_space_names_its_set(
    lazygnn: Command, command: str, args: list[str], message: str
) -> None:
    assert_one_line(lazygnn(command, *args), message)


@pytest.mark.parametrize("command", [["evaluate"], ["predict", "--out", "p.csv"]], ids=["evaluate", "predict"])
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--correct-alpha", 0.1], "`--correct-alpha` has no effect without `--correct-and-smooth`; add that, or omit"),
        (["--scaling", "auto"], "`--scaling` has no effect without `--correct-and-smooth`; add that, or omit"),
        (["--correct-and-smooth", "--smooth-alpha", 0], "`smooth_alpha` is 0.0; give a number above 0 and at most 1"),
        (["--correct-and-smooth", "--scaling", "big"], "`scaling` is `big`; give `auto` or a positive number"),
    ],
)
def test_a_wrong_use_of_correct_and_smooth_is_one_line(
    lazygnn: Command, trained: Path, tmp_path: Path, command: list[str], args: list[object], message: str
) -> None:
    assert_one_line(lazygnn(*command, trained, *args), message)
    assert not list(tmp_path.rglob("p.*"))
