"""`python -m experiments NAME`."""

from experiments.cli import app

app()
