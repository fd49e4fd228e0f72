"""Downloads the original files of the public data sets; nothing else in the library uses the network."""

import base64
import hashlib
import os
import stat
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from http.client import HTTPException
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from lazygnn.data.checksums import Checksums
from lazygnn.data.sources import SOURCES, Source
from lazygnn.errors import GraphError, reason
from lazygnn.files import replaced

# for an answer, and for a whole file
_TIMEOUT_S, _TOTAL_S = 30.0, 7200.0
_CHUNK_BYTES = 1 << 20
# the largest archive, ogbn-products, is 1.4 GB; its files are compressed, so it does not grow
_MAX_BYTES = 8 << 30


def download(name: str, root: Path, *, verify: bool = True) -> Path:
    """Downloads the original files of a data set and returns their folder, `<root>/<name>`.

    Existing files are kept, so an interrupted download resumes with the next file. A file appears under its name only
    when it is complete and has the checksum that its publisher gives. The checksums of all downloaded files are
    recorded beside them and compared from then on.

    Args:
        name: One of `SOURCES`.
        root: Folder of all data sets.
        verify: Whether to compare the checksums of files that were downloaded earlier.
    """
    if name not in SOURCES:
        raise GraphError(f"data set `{name}` has no download; choose one of: {', '.join(sorted(SOURCES))}")
    source, folder = SOURCES[name], root / name
    checksums = Checksums(folder)
    if verify:
        checksums.check()
    if _is_complete(source, folder):
        return folder
    fetched = False
    for number, (_, path) in enumerate(source.files):
        if _fetch_file(source, number, folder):
            fetched = True
            # of an archive, the members are recorded
            if not source.members:
                checksums.record((path,))
    if source.members:
        archive = folder / source.files[0][1]
        try:
            _unpack(archive, source, folder)
        except _ArchiveError as error:
            if not fetched:
                raise GraphError(f"`{archive}` {error}; delete it to download it again") from error
            # fetched again the next time
            archive.unlink()
            raise GraphError(f"the archive at `{source.files[0][0]}` {error}; {_remedy(source, folder)}") from error
        archive.unlink()
        checksums.record(source.members)
    return folder


def _fetch_file(source: Source, number: int, folder: Path) -> bool:
    """Downloads a file of a data set, if it is not there; returns whether it was not."""
    url, path = source.files[number]
    if (folder / path).is_file():
        return False
    git = source.git[number] if source.git else None
    try:
        _write(folder / path, _fetch(url), lambda file: _check_file(file, path, git))
    except _FetchError as error:
        raise GraphError(f"could not download `{url}`: {error}; {_remedy(source, folder)}") from error
    return True


def _is_complete(source: Source, folder: Path) -> bool:
    """Returns whether all files exist; files put there by hand may be unpacked, or in the folder itself."""
    if all((folder / path).is_file() or (folder / path.removesuffix(".gz")).is_file() for path in source.paths):
        return True
    return source.reader != "ogb" and all((folder / Path(path).name).is_file() for path in source.paths)


class _FetchError(Exception):
    """The reason why a download failed."""


class _ArchiveError(Exception):
    """What is wrong with an archive."""


def _remedy(source: Source, folder: Path) -> str:
    files = ", ".join(f"`{path}`" for path in source.paths)
    archive = f" (or the archive, as `{source.files[0][1]}`)" if source.members else ""
    return (
        f"run again later (complete files are kept), or put {files}{archive} into `{folder}` by hand, "
        f"or set `--root` or `LAZYGNN_DATA` to a folder with `{source.name}.npz`"
    )


def _fetch(url: str) -> Iterator[bytes]:
    """Yields the content at an address; one that ends early or has another checksum is an error at its end."""
    _check_https(url)
    end = time.monotonic() + _TOTAL_S
    try:
        with _open(url) as response:
            _check_https(response.geturl())
            if response.headers.get("Content-Type", "").startswith("text/html"):
                raise _FetchError("the server returned a web page; it may require a login or limit downloads")
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            known = _md5_of(response.headers)
            md5, done = hashlib.md5(usedforsecurity=False), 0
            # `read` would wait for a whole chunk, however slowly it comes
            while chunk := response.read1(_CHUNK_BYTES):
                if not done and chunk.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
                    raise _FetchError("the server returned a web page; it may require a login or limit downloads")
                done += len(chunk)
                if done > _MAX_BYTES:
                    raise _FetchError(f"the file is larger than {_MAX_BYTES} bytes")
                if time.monotonic() > end:
                    raise _FetchError(f"the file did not arrive within {_TOTAL_S:.0f} seconds")
                md5.update(chunk)
                yield chunk
    except (OSError, HTTPException) as error:
        # an HTTPError is also an open response
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise _FetchError(str(error) or type(error).__name__) from error
    if not done or (total is not None and done != total):
        raise _FetchError(f"the file ended after {done} bytes" + (f" of {total}" if total is not None else ""))
    if known is not None and md5.digest() != known:
        raise _FetchError("the file was damaged on its way: it has another checksum than the server gives")


def _md5_of(headers: Any) -> bytes | None:
    """Returns the MD5 checksum that a server gives in one of two headers."""
    given = [headers.get("Content-MD5", "")]
    given += [word.strip().removeprefix("md5=") for word in headers.get("x-goog-hash", "").split(",") if "md5=" in word]
    for text in filter(None, given):
        try:
            digest = base64.b64decode(text, validate=True)
        except ValueError:
            continue
        if len(digest) == 16:
            return digest
    return None


def _check_https(url: str) -> None:
    if not url.startswith("https://"):
        raise _FetchError(f"`{url}` is not an https address")


def _open(url: str) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "lazygnn"})
    return urllib.request.build_opener(_HttpsOnly()).open(request, timeout=_TIMEOUT_S)


class _HttpsOnly(urllib.request.HTTPRedirectHandler):
    """Follows redirections to https only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        try:
            _check_https(newurl)
        except _FetchError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _write(path: Path, chunks: Iterator[bytes], check: Callable[[Path], None] | None = None) -> None:
    """Writes a file; it appears under its name if it passes the check."""
    # fails before the folder is made if the address is wrong
    first = next(chunks, b"")
    try:
        with replaced(path) as unfinished:
            with unfinished.open("wb") as file:
                for chunk in chain((first,), chunks):
                    file.write(chunk)
            if check is not None:
                check(unfinished)
    except OSError as error:
        raise GraphError(
            f"could not write `{path}`: {reason(error)}; free the space or choose another `--root`"
        ) from error


def _check_file(file: Path, path: str, git: str | None) -> None:
    """Refuses a file that was cut off, or that has another checksum than its publisher gives."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        stream.seek(-1, os.SEEK_END)
        last = stream.read(1)
        if git is not None:
            stream.seek(0)
            found = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
            while chunk := stream.read(_CHUNK_BYTES):
                found.update(chunk)
            if found.hexdigest() != git:
                raise _FetchError(f"the file has the checksum {found.hexdigest()}, its publisher gives {git}")
    kind = Path(path).suffix
    if (
        (kind in (".zip", ".npz") and not zipfile.is_zipfile(file))
        or (kind == ".json" and not (start.lstrip().startswith(b"{") and last in b"}\n"))
        or (kind == ".npy" and not _is_whole_array(file))
    ):
        raise _FetchError(f"the file ends early after {size} bytes, or is not what its name says")


def _is_whole_array(file: Path) -> bool:
    try:
        mapped = np.lib.format.open_memmap(file, mode="r")
    # a corrupt header can fail in any way
    except Exception:
        return False
    return mapped.offset + mapped.nbytes == file.stat().st_size


def _unpack(archive: Path, source: Source, folder: Path) -> None:
    """Unpacks the members of the source, and nothing else."""
    try:
        with zipfile.ZipFile(archive) as content:
            infos = {info.filename: info for info in content.infolist()}
            for info in infos.values():
                _check_member(info)
            wanted = {path: infos.get(f"{source.top}/{path}") for path in source.members}
            size = sum(info.file_size for info in wanted.values() if info is not None)
            if size > _MAX_BYTES:
                raise _ArchiveError(f"unpacks to {size} bytes, more than {_MAX_BYTES}")
            for path, member in wanted.items():
                if member is None:
                    raise _ArchiveError(f"has no `{source.top}/{path}`")
                if not (folder / path).is_file():
                    with content.open(member) as file:
                        _write(folder / path, _chunks(file))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise _ArchiveError(f"cannot be unpacked ({error})") from error


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def _check_member(info: zipfile.ZipInfo) -> None:
    path = PurePosixPath(info.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in info.filename or stat.S_ISLNK(info.external_attr >> 16):
        raise _ArchiveError(f"has the entry `{info.filename}`, which points outside the archive")
    # other methods unpack to any size at once
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _ArchiveError(f"has the entry `{info.filename}`, which is packed by method {info.compress_type}")
