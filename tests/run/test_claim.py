from pathlib import Path

import pytest

from lazygnn.errors import ConfigError
from lazygnn.run.claim import FEATURES, INITIAL, check_unused, claim_folder, make_folder
from lazygnn.run.digests import DIGESTS
from lazygnn.run.lock import LOCK
from tests.processes import context

PART = ".config.json.0123456789abcdef.part"


def claim_some(base: Path, out: Path, times: int) -> None:
    out.write_text("".join(f"{claim_folder(base)}\n" for _ in range(times)))


def test_fifty_starts_at_once_get_fifty_folders(tmp_path: Path) -> None:
    base = tmp_path / "runs" / "a-b-0"
    processes = [context().Process(target=claim_some, args=(base, tmp_path / f"{one}", 10)) for one in range(5)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    claimed = [line for one in range(5) for line in (tmp_path / f"{one}").read_text().splitlines()]
    expected = {str(base), *(f"{base}-{number}" for number in range(2, 51))}
    assert len(claimed) == 50
    assert set(claimed) == expected == {str(path) for path in base.parent.iterdir()}


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(ConfigError, match=r"cannot create `.*runs/a`: .*; choose another `--out`"):
        claim_folder(tmp_path / "runs" / "a")


def test_what_a_killed_start_has_left_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "run"
    check_unused(path)
    make_folder(path)
    for name in (LOCK, PART, DIGESTS, INITIAL, FEATURES):
        (path / name).touch()
    check_unused(path)
    make_folder(path)
    assert [file.name for file in path.iterdir()] == [LOCK]


@pytest.mark.parametrize("name", ["config.json", INITIAL, FEATURES, "notes", PART[1:], f"{PART}.txt"])
def test_other_files_are_not_lost(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=rf"`{tmp_path}` exists and is not empty; go away"):
        check_unused(tmp_path, "go away")
    make_folder(tmp_path)
    assert (tmp_path / name).exists()
    with pytest.raises(ConfigError, match="choose another `--out` or remove it"):
        check_unused(tmp_path / name)
