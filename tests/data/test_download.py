import base64
import hashlib
import io
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from email.message import Message
from http.client import IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn.data import download as module
from lazygnn.data.checksums import RECORD
from lazygnn.data.download import download
from lazygnn.data.sources import SOURCES, Source
from lazygnn.errors import GraphError

ARXIV = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
MEMBERS = SOURCES["ogbn-arxiv"].members


def content_of(path: str) -> bytes:
    """Returns what looks like a file of that name."""
    file = io.BytesIO()
    if path.endswith(".npz"):
        np.savez(file, a=np.zeros(1))
    elif path.endswith(".npy"):
        np.save(file, np.zeros(1))
    else:
        file.write(b"{}" if path.endswith(".json") else path.encode())
    return file.getvalue()


class Response(io.BytesIO):
    """The response of an opener, from memory."""

    def __init__(self, url: str, content: bytes, **headers: str) -> None:
        super().__init__(content)
        self.url = url
        self.headers = Message()
        for key, value in headers.items():
            self.headers[key.replace("_", "-")] = value

    def geturl(self) -> str:
        return self.url


class Web:
    """Replaces the internet: maps addresses to responses and records the requests."""

    def __init__(self) -> None:
        self.responses: dict[str, Callable[[str], Response]] = {}
        self.requested: list[str] = []

    def serve(self, url: str, content: bytes, **headers: str) -> None:
        self.responses[url] = lambda url: Response(url, content, **headers)

    def fail(self, url: str, error: Exception) -> None:
        def respond(_: str) -> Response:
            raise error

        self.responses[url] = respond

    def open(self, _: object, request: urllib.request.Request, data: None = None, timeout: float = 0) -> Response:
        assert timeout > 0
        self.requested.append(request.full_url)
        if request.full_url not in self.responses:
            raise urllib.error.URLError("name or service not known")
        return self.responses[request.full_url](request.full_url)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    web = Web()
    # what is served below is not what the publisher has
    monkeypatch.setitem(SOURCES, "cora", replace(SOURCES["cora"], git=()))
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", lambda *args, **kwargs: web.open(*args, **kwargs))
    return web


def archive(**entries: bytes) -> bytes:
    file = io.BytesIO()
    content = {f"arxiv/{path}": path.encode() for path in MEMBERS} | {"arxiv/mapping/readme": b"not wanted"} | entries
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, data in content.items():
            packed.writestr(path, data)
    return file.getvalue()


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["cora", "flickr"])
def test_files_are_saved_under_their_names(tmp_path: Path, web: Web, name: str) -> None:
    for url, path in SOURCES[name].files:
        web.serve(url, content_of(path))
    folder = download(name, tmp_path)
    assert folder == tmp_path / name
    assert files(folder) == {*SOURCES[name].paths, RECORD}
    assert all((folder / path).read_bytes() == content_of(path) for path in SOURCES[name].paths)


def test_only_needed_members_are_unpacked(tmp_path: Path, web: Web) -> None:
    web.serve(ARXIV, archive())
    folder = download("ogbn-arxiv", tmp_path)
    assert files(folder) == {*MEMBERS, RECORD}
    assert all((folder / path).read_text() == path for path in MEMBERS)


def test_existing_files_are_kept(tmp_path: Path, web: Web) -> None:
    source = SOURCES["flickr"]
    for url, path in source.files:
        web.serve(url, content_of(path))
    kept = tmp_path / "flickr" / source.paths[1]
    kept.parent.mkdir(parents=True)
    kept.write_text("old")
    download("flickr", tmp_path)
    assert kept.read_text() == "old"
    assert len(web.requested) == 3
    web.responses.clear()
    download("flickr", tmp_path)
    assert len(web.requested) == 3


def test_archive_put_there_by_hand_is_used(tmp_path: Path, web: Web) -> None:
    (tmp_path / "ogbn-arxiv").mkdir()
    (tmp_path / "ogbn-arxiv" / "arxiv.zip").write_bytes(archive())
    assert files(download("ogbn-arxiv", tmp_path)) == {*MEMBERS, RECORD}
    assert not web.requested


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("cora", lambda path: Path(path).name),
        ("yelp", lambda path: Path(path).name),
        ("ogbn-arxiv", lambda path: path.removesuffix(".gz")),
    ],
)
def test_other_layouts_put_there_by_hand_are_left_alone(
    tmp_path: Path, web: Web, name: str, layout: Callable[[str], str]
) -> None:
    for path in SOURCES[name].paths:
        target = tmp_path / name / layout(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    assert download(name, tmp_path) == tmp_path / name
    assert not web.requested


def test_a_file_may_come_in_several_chunks(tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 4)
    for number, (url, path) in enumerate(SOURCES["yelp"].files):
        headers = {"Content_Length": str(len(content_of(path)))} if number == 0 else {}
        web.serve(url, content_of(path), **headers)
    folder = download("yelp", tmp_path)
    assert all((folder / path).read_bytes() == content_of(path) for path in SOURCES["yelp"].paths)


def test_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="data set `mnist` has no download; choose one of: citeseer, cora, flickr"):
        download("mnist", tmp_path)


def http_error(url: str) -> urllib.error.HTTPError:
    return urllib.error.HTTPError(url, 404, "Not Found", Message(), io.BytesIO(b"page"))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (urllib.error.URLError("no route to host"), "no route to host"),
        (http_error(ARXIV), "404: Not Found"),
        (TimeoutError("timed out"), "timed out"),
        (TimeoutError(), "TimeoutError"),
        (ConnectionResetError("reset by peer"), "reset by peer"),
        (IncompleteRead(b""), "IncompleteRead"),
    ],
)
def test_a_failure_has_a_remedy(tmp_path: Path, web: Web, error: Exception, message: str) -> None:
    web.fail(ARXIV, error)
    with pytest.raises(GraphError) as caught:
        download("ogbn-arxiv", tmp_path)
    text = str(caught.value)
    assert f"could not download `{ARXIV}`: " in text
    assert message in text
    assert "put `raw/edge.csv.gz`, `raw/node-feat.csv.gz`, " in text
    assert f"(or the archive, as `arxiv.zip`) into `{tmp_path / 'ogbn-arxiv'}` by hand" in text
    assert "set `--root` or `LAZYGNN_DATA` to a folder with `ogbn-arxiv.npz`" in text
    # no folder either, since its name may be a mistake
    assert not list(tmp_path.iterdir())


def test_interrupted_transfer_leaves_complete_files_only(tmp_path: Path, web: Web) -> None:
    class Breaks(Response):
        def read1(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise ConnectionResetError("reset by peer")
            return super().read1(3)

    (first, path), (second, _), *_ = SOURCES["cora"].files
    web.serve(first, b"whole")
    web.responses[second] = lambda url: Breaks(url, b"0123456789")
    with pytest.raises(GraphError, match=r"ind\.cora\.tx`: reset by peer; run again later"):
        download("cora", tmp_path)
    assert files(tmp_path) == {f"cora/{path}", f"cora/{RECORD}"}


@pytest.mark.parametrize(
    ("content", "headers", "message"),
    [
        (b"01234", {"Content_Length": "10"}, "the file ended after 5 bytes of 10"),
        (b"", {}, "the file ended after 0 bytes"),
        (b"<html>", {"Content_Type": "text/html; charset=utf-8"}, "the server returned a web page"),
        (b"0" * 101, {}, "the file is larger than 100 bytes"),
    ],
)
def test_response_that_is_not_the_file_is_refused(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch, content: bytes, headers: dict[str, str], message: str
) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 100)
    web.serve(SOURCES["cora"].files[0][0], content, **headers)
    with pytest.raises(GraphError, match=message):
        download("cora", tmp_path)
    assert not files(tmp_path)


@pytest.mark.parametrize("url", ["http://example.org/x", "file:///etc/hostname", "ftp://example.org/x"])
def test_only_https_is_fetched(tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setitem(SOURCES, "plain", Source("plain", "saint", ((url, "raw/x"),)))
    web.serve(url, b"content")
    with pytest.raises(GraphError, match=rf"could not download `{url}`: `{url}` is not an https address"):
        download("plain", tmp_path)
    assert not web.requested


def test_response_from_another_scheme_than_https_is_refused(tmp_path: Path, web: Web) -> None:
    web.responses[ARXIV] = lambda _: Response("http://example.org/arxiv.zip", archive())
    with pytest.raises(GraphError, match=r"`http://example.org/arxiv\.zip` is not an https address"):
        download("ogbn-arxiv", tmp_path)


def test_redirection_must_stay_on_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = iter(("https://example.org/b", "http://example.org/c"))
    requested: list[str] = []

    def redirect(_: Any, request: urllib.request.Request) -> Any:
        requested.append(request.full_url)
        headers = Message()
        headers["Location"] = next(addresses)
        response: Any = Response(request.full_url, b"")
        response.code = response.status = 302
        response.msg, response.info = "Found", lambda: headers
        return response

    monkeypatch.setattr(urllib.request.HTTPSHandler, "https_open", redirect)
    with pytest.raises(GraphError, match=r"`http://example\.org/c` is not an https address"):
        download("ogbn-arxiv", tmp_path)
    assert requested == [ARXIV, "https://example.org/b"]


def link(target: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(target)
    info.external_attr = 0o120777 << 16
    return info


@pytest.mark.parametrize("name", ["../outside", "arxiv/../../outside", "/outside", "C:/outside", "..\\outside"])
def test_archive_with_names_that_point_outside_is_refused(tmp_path: Path, web: Web, name: str) -> None:
    web.serve(ARXIV, archive(**{name: b"content"}))
    with pytest.raises(
        GraphError, match=r"arxiv\.zip` has the entry `.*outside`, which points outside the archive; run again later"
    ):
        download("ogbn-arxiv", tmp_path)
    assert not files(tmp_path)


def test_archive_with_a_link_is_refused(tmp_path: Path, web: Web) -> None:
    file = io.BytesIO(archive())
    with zipfile.ZipFile(file, "a") as packed:
        packed.writestr(link("arxiv/link"), "/etc/hostname")
    web.serve(ARXIV, file.getvalue())
    with pytest.raises(GraphError, match=r"has the entry `arxiv/link`, which points outside"):
        download("ogbn-arxiv", tmp_path)


def test_archive_that_is_packed_in_another_way_is_refused(tmp_path: Path, web: Web) -> None:
    file = io.BytesIO(archive())
    with zipfile.ZipFile(file, "a", zipfile.ZIP_BZIP2) as packed:
        packed.writestr("arxiv/more", b"content")
    web.serve(ARXIV, file.getvalue())
    with pytest.raises(GraphError, match=r"has the entry `arxiv/more`, which is packed by method 12; run again later"):
        download("ogbn-arxiv", tmp_path)


def test_archive_that_is_too_large_is_refused(tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 100_000)
    web.serve(ARXIV, archive(**{f"arxiv/{MEMBERS[0]}": bytes(200_000)}))
    with pytest.raises(GraphError, match=r"arxiv\.zip` unpacks to 200\d+ bytes, more than 100000"):
        download("ogbn-arxiv", tmp_path)
    assert not files(tmp_path)


def test_archive_without_a_needed_file_is_refused(tmp_path: Path, web: Web) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("products/raw/edge.csv.gz", b"content")
    web.serve(ARXIV, file.getvalue())
    with pytest.raises(GraphError, match=r"arxiv\.zip` has no `arxiv/raw/edge\.csv\.gz`; run again later"):
        download("ogbn-arxiv", tmp_path)


def test_corrupt_archive_is_refused(tmp_path: Path, web: Web) -> None:
    whole = archive()
    changed = bytearray(whole)
    changed[40:60] = bytes(20)
    for content in (b"not a zip file", whole[: len(whole) // 2], bytes(changed)):
        web.serve(ARXIV, content)
        with pytest.raises(
            GraphError, match=r"arxiv\.zip`:? (cannot be unpacked|the file ends early).*; run again later"
        ):
            download("ogbn-arxiv", tmp_path)
        assert not files(tmp_path)


def test_a_corrupt_archive_put_there_by_hand_is_kept(tmp_path: Path, web: Web) -> None:
    (tmp_path / "ogbn-arxiv").mkdir()
    (tmp_path / "ogbn-arxiv" / "arxiv.zip").write_bytes(archive()[:-30])
    with pytest.raises(GraphError, match=r"arxiv\.zip` cannot be unpacked \(.*\); delete it to download it again"):
        download("ogbn-arxiv", tmp_path)
    assert files(tmp_path) == {"ogbn-arxiv/arxiv.zip"}
    assert not web.requested


def test_folder_that_cannot_be_written_is_reported(tmp_path: Path, web: Web) -> None:
    web.serve(SOURCES["cora"].files[0][0], b"content")
    (tmp_path / "cora").write_text("a file where the folder should be")
    with pytest.raises(GraphError, match=r"could not write `.*; free the space or choose another `--root`"):
        download("cora", tmp_path)


# with a server on this machine


@dataclass
class Page:
    """What a server sends: a status, headers and content, of which it may send a part, or send it slowly."""

    content: bytes
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200
    sent: int | None = None
    pause: float = 0.0


class Handler(BaseHTTPRequestHandler):
    """Serves the pages of its server by their paths."""

    def do_GET(self) -> None:
        page: Page = self.server.pages[self.path]  # type: ignore[attr-defined]
        self.send_response(page.status)
        for name, value in page.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, len(page.content[: page.sent]), 4) if page.pause else ():
            self.wfile.write(page.content[start : start + 4])
            time.sleep(page.pause)
        if not page.pause:
            self.wfile.write(page.content[: page.sent])

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Page]]:
    """Serves pages for the data set `local`, of one file for each format."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        pages: dict[str, Page] = {}
        server.pages = pages  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        paths = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
        source = Source("local", "saint", tuple((f"{base}/{path}", f"raw/{path}") for path in paths))
        monkeypatch.setitem(SOURCES, "local", source)
        monkeypatch.setattr(module, "_check_https", lambda _: None)
        for path in paths:
            content = content_of(path)
            pages[f"/{path}"] = Page(content, {"Content-Length": str(len(content))})
        yield pages
        server.shutdown()


def md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content).digest()).decode()


def test_files_of_a_server_are_saved_with_their_checksums(tmp_path: Path, pages: dict[str, Page]) -> None:
    pages["/feats.npy"].headers["x-goog-hash"] = f"crc32c=AAAAAA==,md5={md5(content_of('feats.npy'))}"
    pages["/role.json"].headers["Content-MD5"] = md5(b"{}")
    pages["/class_map.json"].headers["Content-MD5"] = "not a checksum"
    folder = download("local", tmp_path)
    assert files(folder) == {*SOURCES["local"].paths, RECORD}
    pages.clear()
    download("local", tmp_path)
    (folder / "raw" / "role.json").write_text("{ }")
    with pytest.raises(GraphError, match=r"role.json` is not as it was downloaded"):
        download("local", tmp_path)
    download("local", tmp_path, verify=False)


FEATURES = content_of("feats.npy")
WRONG_PAGES: list[tuple[str, Page, str]] = [
    (
        "feats.npy",
        Page(FEATURES, {"Content-Length": str(len(FEATURES))}, sent=50),
        r"ended after 50 bytes of 136|Incompl",
    ),
    # without a length, the format tells
    ("feats.npy", Page(FEATURES, sent=132), "the file ends early after 132 bytes, or is not what its name says"),
    ("feats.npy", Page(FEATURES, sent=50), "the file ends early after 50 bytes"),
    ("adj_full.npz", Page(content_of("a.npz"), sent=100), "the file ends early after 100 bytes"),
    ("class_map.json", Page(b'{"0": 1, "1"'), "the file ends early after 12 bytes"),
    ("role.json", Page(b"<!DOCTYPE html><html>sign in</html>"), "the server returned a web page"),
    ("role.json", Page(b"\n <HTML>quota"), "the server returned a web page"),
    ("role.json", Page(b"{}", {"Content-Type": "text/html"}), "the server returned a web page"),
    ("role.json", Page(b"gone", status=404), "HTTP Error 404"),
    ("role.json", Page(b"{}", {"Content-MD5": md5(b"{ }")}), "damaged on its way: it has another checksum than the"),
    ("role.json", Page(b""), "the file ended after 0 bytes"),
]


@pytest.mark.parametrize(("path", "page", "message"), WRONG_PAGES)
def test_what_is_not_the_file_is_never_kept(
    tmp_path: Path, pages: dict[str, Page], path: str, page: Page, message: str
) -> None:
    good = pages[f"/{path}"]
    pages[f"/{path}"] = page
    with pytest.raises(GraphError, match=message):
        download("local", tmp_path)
    assert not (tmp_path / "local" / "raw" / path).exists()
    # fetched again
    pages[f"/{path}"] = good
    download("local", tmp_path)
    assert (tmp_path / "local" / "raw" / path).read_bytes() == good.content


def test_a_file_that_comes_too_slowly_is_given_up(
    tmp_path: Path, pages: dict[str, Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TOTAL_S", 0.3)
    pages["/adj_full.npz"].pause = 0.05
    with pytest.raises(GraphError, match="the file did not arrive within 0 seconds"):
        download("local", tmp_path)
    assert not files(tmp_path)


def test_the_checksum_of_the_publisher_is_compared(
    tmp_path: Path, pages: dict[str, Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tuple(hashlib.sha1(b"blob %d\0" % len(page.content) + page.content).hexdigest() for page in pages.values())
    monkeypatch.setitem(SOURCES, "local", replace(SOURCES["local"], git=ids))
    pages["/role.json"].content = b"[]"
    with pytest.raises(GraphError, match=rf"the file has the checksum [0-9a-f]{{40}}, its publisher gives {ids[3]}"):
        download("local", tmp_path)
    assert not (tmp_path / "local" / "raw" / "role.json").exists()
    pages["/role.json"].content = b"{}"
    download("local", tmp_path)
