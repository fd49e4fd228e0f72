"""The checksums of downloaded files, in a file beside them that `sha256sum --check` reads, too."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from lazygnn.errors import GraphError, reason
from lazygnn.files import write_file

RECORD = "checksums.sha256"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


class Checksums:
    """The record of a folder.

    Args:
        folder: Folder of a data set; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self) -> None:
        """Refuses a file that is not as it was recorded; files that are missing or not recorded pass."""
        for path, known in self._read().items():
            file = self.folder / path
            if file.is_file() and _digest(file) != known:
                raise GraphError(
                    f"`{file}` is not as it was downloaded: its SHA-256 checksum differs from that in "
                    f"`{self.folder / RECORD}`; delete it to download it again, or skip the check with `--no-verify`"
                )

    def record(self, paths: Iterable[str]) -> None:
        """Adds files, by their paths in the folder."""
        known = self._read() | {path: _digest(self.folder / path) for path in paths}
        text = "".join(f"{digest}  {path}\n" for path, digest in sorted(known.items()))
        try:
            write_file(self.folder / RECORD, text.encode())
        except OSError as error:
            raise GraphError(f"could not write `{self.folder / RECORD}`: {reason(error)}; free the space") from error

    def _read(self) -> dict[str, str]:
        record = self.folder / RECORD
        try:
            lines = record.read_text(encoding="utf-8").splitlines() if record.is_file() else []
        except (OSError, UnicodeDecodeError) as error:
            raise GraphError(f"`{record}` cannot be read ({error}); delete it, with the files that it lists") from error
        known = {}
        for number, line in enumerate(lines, 1):
            if (found := _LINE.fullmatch(line)) is None:
                raise GraphError(
                    f"line {number} of `{record}` is not a checksum and a path; delete it, with the files that it lists"
                )
            known[found[2]] = found[1]
        return known


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise GraphError(f"`{file}` cannot be read ({reason(error)}); download it again") from error
