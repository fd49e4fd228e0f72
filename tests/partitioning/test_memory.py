from pathlib import Path

import pytest

from lazygnn.partitioning.memory import memory_at_hand

GIB = 2**30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write(tmp_path / "proc" / "meminfo", "MemTotal: 9999999 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n")
    write(tmp_path / "proc" / "self" / "cgroup", "0::/jobs/one\n")
    return tmp_path / "proc"


def test_without_a_limit_it_is_what_the_machine_has(proc: Path, tmp_path: Path) -> None:
    assert memory_at_hand(proc, tmp_path / "none") == 8 * GIB


@pytest.mark.parametrize(
    ("limit", "used", "cached", "expected"),
    [("max", GIB, 0, 8), (3 * GIB, GIB, 0, 2), (3 * GIB, 2 * GIB, GIB, 2), (20 * GIB, GIB, 0, 8), (GIB, 2 * GIB, 0, 0)],
    ids=["no limit", "limited", "cached files do not count", "more than the machine has", "over the limit"],
)
def test_a_container_has_what_its_limit_leaves(
    proc: Path, tmp_path: Path, limit: object, used: int, cached: int, expected: int
) -> None:
    group = tmp_path / "cgroup" / "jobs"
    write(group / "memory.max", f"{limit}\n")
    write(group / "memory.current", f"{used}\n")
    write(group / "memory.stat", f"anon 1\ninactive_file {cached}\n")
    (group / "one").mkdir()
    assert memory_at_hand(proc, tmp_path / "cgroup") == expected * GIB


def test_elsewhere_it_is_the_memory_of_the_machine(tmp_path: Path) -> None:
    found = memory_at_hand(tmp_path / "none", tmp_path / "none")
    assert found is not None
    assert found > GIB


def test_here_it_is_less_than_the_machine_has(tmp_path: Path) -> None:
    here, all_of_it = memory_at_hand(), memory_at_hand(tmp_path / "none", tmp_path / "none")
    assert here is not None
    assert all_of_it is not None
    assert 0 < here < all_of_it
