"""The command `doctor`."""

from rich.console import Console

from lazygnn.commands.doctor import installation_table


def doctor() -> None:
    """Shows versions, devices and optional packages, for a bug report."""
    Console().print(installation_table())
