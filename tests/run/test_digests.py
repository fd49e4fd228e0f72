from pathlib import Path

import pytest

from lazygnn.errors import CheckpointError
from lazygnn.files import write_file
from lazygnn.run.digests import DIGESTS, Digests


def write(digests: Digests, name: str, content: bytes) -> None:
    digests.expect((name, content))
    write_file(digests.path.with_name(name), content)


def test_the_content_that_was_written_matches_and_no_other(tmp_path: Path) -> None:
    digests = Digests(tmp_path)
    write(digests, "a", b"one")
    write(digests, "b", b"two")
    assert digests.match("a", b"one")
    assert not digests.match("a", b"two")
    assert digests.match("b", b"two")
    assert not digests.match("b", b"")


def test_a_file_without_a_digest_is_not_checked(tmp_path: Path) -> None:
    assert Digests(tmp_path).match("a", b"anything")
    write(Digests(tmp_path), "b", b"two")
    assert Digests(tmp_path).match("a", b"anything")


def test_a_crash_before_any_write_leaves_files_that_match(tmp_path: Path) -> None:
    digests = Digests(tmp_path)
    write(digests, "a", b"0")
    # the crashes come one after the other, each before the file is replaced
    for content in (b"1", b"2", b"3"):
        digests.expect(("a", content))
        assert digests.match("a", b"0")
        assert digests.match("a", content)
    assert not digests.match("a", b"2")
    write(digests, "a", b"3")
    write(digests, "a", b"4")
    assert not digests.match("a", b"0")
    assert digests.match("a", b"4")


def test_a_file_of_an_earlier_version_stays_valid_until_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"earlier")
    digests = Digests(tmp_path)
    digests.expect(("a", b"new"))
    assert digests.match("a", b"earlier")
    assert digests.match("a", b"new")


def test_a_damaged_file_does_not_become_valid_when_it_is_replaced(tmp_path: Path) -> None:
    digests = Digests(tmp_path)
    write(digests, "a", b"good")
    (tmp_path / "a").write_bytes(b"bad")
    digests.expect(("a", b"new"))
    assert not digests.match("a", b"bad")


def test_the_same_content_is_recorded_once(tmp_path: Path) -> None:
    digests = Digests(tmp_path)
    write(digests, "a", b"one")
    written = (tmp_path / DIGESTS).stat().st_ino
    write(digests, "a", b"one")
    assert (tmp_path / DIGESTS).stat().st_ino == written


@pytest.mark.parametrize("damaged", [b"", b"{}", b"\xff", b"[1]"])
def test_a_damaged_record_is_refused_or_not_used(tmp_path: Path, damaged: bytes) -> None:
    write(Digests(tmp_path), "a", b"one")
    (tmp_path / DIGESTS).write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r"digests.json` .*; restore `.*digests.json`, or remove it to go on"):
        Digests(tmp_path).match("a", b"one")
    unchecked = Digests(tmp_path, verify=False)
    assert unchecked.match("a", b"other")
    write(unchecked, "b", b"two")
    assert Digests(tmp_path).match("b", b"two")
    assert not Digests(tmp_path).match("b", b"one")
