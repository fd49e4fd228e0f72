"""`python -m experiments NAME`."""

from experiments.cli import app
from experiments.ending import end_cleanly

# a worker imports this file too, and is not asked
if __name__ == "__main__":
    end_cleanly()
    app()
