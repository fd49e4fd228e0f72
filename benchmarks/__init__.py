"""Benchmarks: `python -m benchmarks NAME` measures time and memory and checks the results."""
