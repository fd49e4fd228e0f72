"""`python -m benchmarks NAME`."""

from benchmarks.cli import app

app()
