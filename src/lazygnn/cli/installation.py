"""The command `doctor`."""

from typing import Annotated

import typer
from rich.console import Console

from lazygnn.commands.doctor import installation_table
from lazygnn.commands.licenses import license_table


def doctor(
    licenses: Annotated[
        bool, typer.Option("--licenses", help="List the packages that lazygnn needs, with their licenses.")
    ] = False,
) -> None:
    """Shows versions, devices and optional packages, for a bug report."""
    Console().print(license_table() if licenses else installation_table())
