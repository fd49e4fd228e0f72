"""`python -m benchmarks NAME`."""

from benchmarks.cli import main

main()
