"""Benchmarks: `python -m benchmarks NAME` measures time and memory, and checks that the answers are right."""
