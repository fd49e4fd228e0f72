"""`python -m lazygnn`."""

from lazygnn.cli import main

main()
