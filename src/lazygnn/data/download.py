"""Downloads the original files of the public data sets; nothing else in the library uses the network."""

import stat
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from lazygnn.errors import GraphError, reason
from lazygnn.files import replaced

_TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 20
# the largest archive, ogbn-products, is 1.4 GB; its files are compressed, so it does not grow
_MAX_BYTES = 8 << 30


@dataclass(frozen=True)
class Source:
    """The addresses and the format of the files of one data set.

    Args:
        name: Name of the data set.
        reader: Format of the files: `planetoid`, `saint` or `ogb`.
        files: Pairs of an address and a path in the folder of the data set.
        members: For a zip archive, the paths to unpack; they keep their names in the folder.
        top: Folder of the members inside the archive.
    """

    name: str
    reader: Literal["planetoid", "saint", "ogb"]
    files: tuple[tuple[str, str], ...]
    members: tuple[str, ...] = ()
    top: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Returns the files of a complete data set."""
        return self.members or tuple(path for _, path in self.files)


def download(name: str, root: Path) -> Path:
    """Downloads the original files of a data set and returns their folder, `<root>/<name>`.

    Existing files are kept, so an interrupted download resumes with the next file. A file appears under its name only
    when it is complete.

    Args:
        name: One of `SOURCES`.
        root: Folder of all data sets.
    """
    if name not in SOURCES:
        raise GraphError(f"data set `{name}` has no download; choose one of: {', '.join(sorted(SOURCES))}")
    source, folder = SOURCES[name], root / name
    if _is_complete(source, folder):
        return folder
    for url, path in source.files:
        if not (folder / path).is_file():
            try:
                _write(folder / path, _fetch(url))
            except _FetchError as error:
                raise GraphError(f"could not download `{url}`: {error}; {_remedy(source, folder)}") from error
    if source.members:
        archive = folder / source.files[0][1]
        _unpack(archive, source, folder)
        archive.unlink(missing_ok=True)
    return folder


def _is_complete(source: Source, folder: Path) -> bool:
    """Returns whether all files exist; files put there by hand may be unpacked, or in the folder itself."""
    if all((folder / path).is_file() or (folder / path.removesuffix(".gz")).is_file() for path in source.paths):
        return True
    return source.reader != "ogb" and all((folder / Path(path).name).is_file() for path in source.paths)


class _FetchError(Exception):
    """The reason why a download failed."""


def _remedy(source: Source, folder: Path) -> str:
    files = ", ".join(f"`{path}`" for path in source.paths)
    archive = f" (or the archive, as `{source.files[0][1]}`)" if source.members else ""
    return (
        f"run again later (complete files are kept), or put {files}{archive} into `{folder}` by hand, "
        f"or set `--root` or `LAZYGNN_DATA` to a folder with `{source.name}.npz`"
    )


def _fetch(url: str) -> Iterator[bytes]:
    """Yields the content at an address."""
    _check_https(url)
    try:
        with _open(url) as response:
            _check_https(response.geturl())
            if response.headers.get("Content-Type", "").startswith("text/html"):
                raise _FetchError("the server returned a web page; it may require a login or limit downloads")
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            done = 0
            while chunk := response.read(_CHUNK_BYTES):
                done += len(chunk)
                if done > _MAX_BYTES:
                    raise _FetchError(f"the file is larger than {_MAX_BYTES} bytes")
                yield chunk
    except (OSError, HTTPException) as error:
        # an HTTPError is also an open response
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise _FetchError(str(error) or type(error).__name__) from error
    if not done or (total is not None and done != total):
        raise _FetchError(f"the file ended after {done} bytes" + (f" of {total}" if total is not None else ""))


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


def _write(path: Path, chunks: Iterator[bytes]) -> None:
    """Writes a file."""
    # fails before the folder is made if the address is wrong
    first = next(chunks, b"")
    try:
        with replaced(path) as unfinished, unfinished.open("wb") as file:
            for chunk in chain((first,), chunks):
                file.write(chunk)
    except OSError as error:
        raise GraphError(
            f"could not write `{path}`: {reason(error)}; free the space or choose another `--root`"
        ) from error


def _unpack(archive: Path, source: Source, folder: Path) -> None:
    """Unpacks the members of the source, and nothing else."""
    try:
        with zipfile.ZipFile(archive) as content:
            infos = {info.filename: info for info in content.infolist()}
            for info in infos.values():
                _check_member(archive, info)
            wanted = {path: infos.get(f"{source.top}/{path}") for path in source.members}
            size = sum(info.file_size for info in wanted.values() if info is not None)
            if size > _MAX_BYTES:
                raise GraphError(f"`{archive}` unpacks to {size} bytes, more than {_MAX_BYTES}; delete it")
            for path, member in wanted.items():
                if member is None:
                    raise GraphError(f"`{archive}` has no `{source.top}/{path}`; delete it and download it again")
                if not (folder / path).is_file():
                    with content.open(member) as file:
                        _write(folder / path, _chunks(file))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise GraphError(f"`{archive}` cannot be unpacked ({error}); delete it and download it again") from error


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def _check_member(archive: Path, info: zipfile.ZipInfo) -> None:
    path = PurePosixPath(info.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in info.filename or stat.S_ISLNK(info.external_attr >> 16):
        raise GraphError(f"`{archive}` has the entry `{info.filename}`, which points outside the archive; delete it")


def _planetoid(name: str) -> Source:
    suffixes = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"ind.{name}.{suffix}" for suffix in suffixes)
    base = "https://github.com/kimiyoung/planetoid/raw/master/data"
    return Source(name, "planetoid", tuple((f"{base}/{file}", f"raw/{file}") for file in files))


def _saint(name: str, adj: str, feats: str, class_map: str, role: str) -> Source:
    ids = {"adj_full.npz": adj, "feats.npy": feats, "class_map.json": class_map, "role.json": role}
    # `confirm` skips the warning that the file is too large for a virus scan
    base = "https://drive.usercontent.google.com/download?confirm=t&id="
    return Source(name, "saint", tuple((f"{base}{key}", f"raw/{file}") for file, key in ids.items()))


def _ogb(name: str, split: str) -> Source:
    top = name.removeprefix("ogbn-")
    raw = ("edge", "node-feat", "node-label", "num-node-list")
    stems = (*(f"raw/{stem}" for stem in raw), *(f"split/{split}/{stem}" for stem in ("train", "valid", "test")))
    members = tuple(f"{stem}.csv.gz" for stem in stems)
    url = f"https://snap.stanford.edu/ogb/data/nodeproppred/{top}.zip"
    return Source(name, "ogb", ((url, f"{top}.zip"),), members, top)


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        _planetoid("cora"),
        _planetoid("citeseer"),
        _planetoid("pubmed"),
        _saint(
            "flickr",
            adj="1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy",
            feats="1join-XdvX3anJU_MLVtick7MgeAQiWIZ",
            class_map="1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9",
            role="1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7",
        ),
        # the sparser graph of GraphSAINT with 23 million stored edges, `Reddit2` in PyG
        _saint(
            "reddit",
            adj="1sncK996BM5lpuDf75lDFqCiDZyErc1c2",
            feats="1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
            class_map="1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u",
            role="1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A",
        ),
        _saint(
            "yelp",
            adj="1Juwx8HtDwSzmVIJ31ooVa1WljI4U5JnA",
            feats="1Zy6BZH_zLEjKlEFSduKE5tV9qqA_8VtM",
            class_map="1VUcBGr0T0-klqerjAjxRmAqFuld_SMWU",
            role="1NI5pa5Chpd-52eSmLW60OnB3WS5ikxq_",
        ),
        _ogb("ogbn-arxiv", "time"),
        _ogb("ogbn-products", "sales_ranking"),
    )
}
