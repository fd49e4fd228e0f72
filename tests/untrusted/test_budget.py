import resource
from pathlib import Path

import pytest

from lazygnn.errors import GraphError
from lazygnn.untrusted import budget as module
from lazygnn.untrusted.budget import budget, check_claim, check_width, free_memory, in_words


def test_a_claim_within_the_size_of_the_file_passes() -> None:
    check_claim("the archive", 10**6, 10**6, "write it again")
    check_claim("the archive", budget(1000), 1000, "write it again")


def test_a_claim_beyond_the_size_of_the_file_is_refused() -> None:
    with pytest.raises(GraphError, match=r"the archive takes 10 GB of memory, but the file has 1.8 kB; write it again"):
        check_claim("the archive", 10**10, 1800, "write it again")


def test_a_claim_beyond_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_memory", lambda: 10**6)
    with pytest.raises(GraphError, match=r"the archive takes 2 MB of memory, but 1 MB are free; free some memory"):
        check_claim("the archive", 2 * 10**6, 10**7, "write it again")


def test_columns_must_be_filled() -> None:
    check_width("the number of columns", 65_536, 0)
    check_width("the number of columns", 10**6, 10**6)
    with pytest.raises(
        GraphError, match=r"columns is 20,000,000, with 9 entries to fill them; remove .* at most 65,545"
    ):
        check_width("the number of columns", 20_000_000, 9)


def test_the_smallest_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:   4000 kB\n")
    monkeypatch.setattr(module, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(module, "_CGROUP", tmp_path)
    assert free_memory() == 4000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert free_memory() == 4000 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert free_memory() == 4000
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    assert free_memory() == 0


def test_a_system_that_does_not_tell_has_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_MEMINFO", tmp_path / "nothing")
    assert 0 < free_memory() <= 2**47


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1_500_000, "1.5 MB"), (10**12, "1 TB"), (10**30, "1e+15 PB")],
)
def test_bytes_in_words(count: int, words: str) -> None:
    assert in_words(count) == words
