"""What `experiments` and `benchmarks` share: provenance of numbers, tables of the docs, termination by a signal."""
