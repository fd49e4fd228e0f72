"""The record of the files of a folder: their digests as lazygnn wrote them, so that a change of a file is found."""

import hashlib
from pathlib import Path

from lazygnn.errors import CheckpointError
from lazygnn.files import write_file
from lazygnn.run.record import read_sealed, seal

DIGESTS = "digests.json"
FORMAT = "lazygnn-digests"


class Digests:
    """The digests of the files in a folder; a file without one is not checked.

    Args:
        folder: The folder.
        verify: Whether `match` compares; otherwise a damaged record counts as empty.
    """

    def __init__(self, folder: Path, *, verify: bool = True) -> None:
        self.path, self.verify = folder / DIGESTS, verify

    def expect(self, *files: tuple[str, bytes]) -> None:
        """Records names and contents that are about to be written; their earlier contents stay valid.

        So a crash before, between or after the writes leaves files that fit the record.
        """
        known = self._read()
        wanted = {name: [digest, *self._present(name, known, digest)] for name, digest in _digests(files).items()}
        if any(known.get(name) != digests for name, digests in wanted.items()):
            write_file(self.path, seal({"format": FORMAT, "files": known | wanted}))

    def match(self, name: str, content: bytes) -> bool:
        """Returns whether a file has the content that was written; `True` if that is not known."""
        valid = self._read().get(name) if self.verify else None
        return valid is None or _digest(content) in valid

    def _present(self, name: str, known: dict[str, list[str]], new: str) -> list[str]:
        """Returns the digest of the file as it is now, unless it is the new one or known to be damaged."""
        file = self.path.with_name(name)
        present = _digest(file.read_bytes()) if file.is_file() else new
        return [present] if present != new and present in known.get(name, [present]) else []

    def _read(self) -> dict[str, list[str]]:
        if not self.path.is_file():
            # a folder of an earlier version
            return {}
        try:
            files: dict[str, list[str]] = read_sealed(self.path, FORMAT, "the record of a run's files")["files"]
        except CheckpointError as error:
            if not self.verify:
                return {}
            raise CheckpointError(f"{error}; restore `{self.path}`, or remove it to go on without checks") from error
        return files


def _digests(files: tuple[tuple[str, bytes], ...]) -> dict[str, str]:
    return {name: _digest(content) for name, content in files}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
