"""The errors users meet; the command line catches these and no others."""


class GraphError(ValueError):
    """A graph, or a file that should hold one, cannot be used as it is."""


class ConfigError(ValueError):
    """An option has an unknown name or an impossible value."""


class CheckpointError(RuntimeError):
    """A run folder or checkpoint is missing, broken, or of another kind."""
