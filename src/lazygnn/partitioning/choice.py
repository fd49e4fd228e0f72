"""The choice between METIS and KaMinPar, and the packages that they need."""

from importlib import metadata
from importlib.util import find_spec

from lazygnn.errors import ConfigError
from lazygnn.partitioning.engines import Engine
from lazygnn.partitioning.memory import memory_at_hand

# per entry, measured on graphs of 12 to 126 million entries with 64-bit indices
_METIS_BYTES = 120
_PACKAGES: dict[Engine, str] = {"metis": "pymetis", "kaminpar": "kaminpar"}
OTHERWISE = 'choose `partition = "random"` or `partition = "contiguous"`'


def choose_engine(num_entries: int) -> Engine:
    """Returns `kaminpar` where METIS would not fit in the memory at hand, and `metis` elsewhere."""
    needed, free = metis_bytes(num_entries), memory_at_hand()
    if free is None or needed <= free:
        return "metis"
    if find_spec("kaminpar") is None:
        raise ConfigError(
            f"METIS would need about {needed / 1e9:.1f} GB of memory for {num_entries} entries, but "
            f"{free / 1e9:.1f} GB are free; install KaMinPar, which needs a fifth, with "
            f"`pip install 'lazygnn[kaminpar]'`, free memory, or {OTHERWISE}"
        )
    return "kaminpar"


def require_engine(engine: Engine) -> None:
    """Refuses to start without the package of an engine."""
    package = _PACKAGES[engine]
    if find_spec(package) is None:
        install = "lazygnn[kaminpar]" if engine == "kaminpar" else "pymetis>=2025.2"
        raise ConfigError(
            f"`partition = \"{engine}\"` needs `{package}`; install it with `pip install '{install}'`, or "
            f"{OTHERWISE}, which need no package"
        )


def engine_version(engine: Engine) -> str:
    """Returns the package of an engine and its version, such as `kaminpar 3.7.3`."""
    package = _PACKAGES[engine]
    return f"{package} {metadata.version(package)}"


def metis_bytes(num_entries: int) -> int:
    """Returns the bytes of memory that METIS takes for a graph."""
    return _METIS_BYTES * num_entries
