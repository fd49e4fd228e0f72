"""`python -m experiments NAME`."""

from common.termination import exit_on_sigterm
from experiments.cli import app

# workers import this file too
if __name__ == "__main__":
    exit_on_sigterm()
    app()
