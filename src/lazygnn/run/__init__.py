"""The run folder of one training: configuration, log, checkpoints, weights, result and predictions."""
