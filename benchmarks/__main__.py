"""`python -m benchmarks NAME`."""

from benchmarks.cli import app
from common.termination import exit_on_sigterm

if __name__ == "__main__":
    exit_on_sigterm()
    app()
