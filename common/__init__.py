"""Code of both `experiments` and `benchmarks`: provenance of numbers, tables of the docs, termination by a signal."""
