"""`python -m benchmarks NAME`."""

from benchmarks.cli import app
from experiments.ending import end_cleanly

if __name__ == "__main__":
    end_cleanly()
    app()
