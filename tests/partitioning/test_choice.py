import re
import sys
from importlib import metadata

import pytest

from lazygnn.errors import ConfigError
from lazygnn.partitioning import choice
from lazygnn.partitioning.choice import choose_engine, engine_version, metis_bytes, require_engine


@pytest.mark.parametrize(
    ("free", "expected"), [(None, "metis"), (120_000, "metis"), (119_999, "kaminpar")], ids=["unknown", "fits", "not"]
)
def test_metis_is_chosen_where_it_fits(free: int | None, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaminpar")
    assert metis_bytes(1000) == 120_000
    monkeypatch.setattr(choice, "memory_at_hand", lambda: free)
    assert choose_engine(1000) == expected


def test_without_kaminpar_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaminpar", None)
    monkeypatch.setattr(choice, "memory_at_hand", lambda: 2_000_000_000)
    message = "METIS would need about 12.0 GB of memory for 100000000 entries, but 2.0 GB are free; install KaMinPar, "
    with pytest.raises(ConfigError, match=message + r".*`pip install 'lazygnn\[kaminpar\]'`, free memory, or choose"):
        choose_engine(100_000_000)
    with pytest.raises(ConfigError, match=re.escape("`pip install 'lazygnn[kaminpar]'`, or choose")):
        require_engine("kaminpar")
    assert choose_engine(1000) == "metis"


def test_an_engine_is_named_with_its_version() -> None:
    assert engine_version("metis") == f"pymetis {metadata.version('pymetis')}"
    require_engine("metis")
