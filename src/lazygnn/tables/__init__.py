"""Graphs from tables: rows of nodes and edges in CSV or Parquet files, or in data frames.

Every module but `options` and `schema` needs `pyarrow`, so that they are imported when a table is.
"""

from lazygnn.errors import ConfigError


def require_arrow() -> None:
    """Refuses to go on without `pyarrow`."""
    try:
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ConfigError("tables need `pyarrow`; install `lazygnn[tables]`") from error
