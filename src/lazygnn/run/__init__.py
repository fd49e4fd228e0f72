"""The run folder: configuration, log, checkpoints, weights and result of one training."""
