"""Reads arrays in the formats of numpy, one by one or from an archive; never unpickles, and ignores no member.

Every error is a `GraphError` without the name of the file.
"""

import math
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, Any, BinaryIO

import numpy as np

from lazygnn.errors import GraphError
from lazygnn.untrusted.budget import check_claim, in_words

# the first bytes of an archive, and of an empty archive
_ARCHIVE = (b"PK\x03\x04", b"PK\x05\x06")
_PLAIN = "write it with `numpy.savez`, which does not compress, or store features as a sparse matrix"
# signature, version, flags, method, time, date, CRC, both sizes, lengths of name and extra field
_LOCAL = struct.Struct("<4s5H3L2H")
_SIZES_AFTER, _WIDE = 1 << 3, 0xFFFFFFFF
_KINDS = "biufcUSmM"
# a header is a Python literal, and CPython 3.11 may fail to parse two at a time, in two threads
PARSING = Lock()
_CHUNK = 2**22


class Archive:
    """An open `.npz` file whose directory was checked.

    Attributes:
        names: Names of the arrays, in their order.
    """

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive, self._size = archive, size
        self._infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        self.names = list(self._infos)

    def __contains__(self, name: str) -> bool:
        return name in self._infos

    def read(self, name: str, width: int = 4) -> np.ndarray:
        """Returns an array; its checksum is compared.

        Args:
            name: Name of the array.
            width: Bytes of memory that each value will take, at least.
        """
        info = self._infos[name]
        with self._archive.open(info) as member:
            array = read_array(member, info.file_size, f"field `{name}`", self._size, width)
            # compares the checksum of the whole member
            member.read()
        return array


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Opens an `.npz` file; whatever is wrong with it is a `GraphError`."""
    try:
        with path.open("rb") as stream:
            _check_start(stream)
            size = path.stat().st_size
            with zipfile.ZipFile(stream) as archive:
                infos = archive.infolist()
                check_directory(stream, infos, archive.start_dir)
                claimed = sum(info.file_size for info in infos)
                check_claim("the archive", claimed, size, _PLAIN)
                yield Archive(archive, size)
    except (GraphError, FileNotFoundError):
        raise
    # a corrupt archive can fail in zip, zlib or numpy's parser of headers
    except Exception as error:
        raise GraphError(f"not a readable .npz file ({error}); write it again") from error


def read_array(stream: IO[bytes], size: int, what: str, file_size: int, width: int = 4) -> np.ndarray:
    """Reads one array.

    Args:
        stream: At the start of the array.
        size: Bytes of the array with its header; the shape must fill them.
        what: Begins the message of an error.
        file_size: Bytes of the file on disk, which bound the memory that the array may take.
        width: Bytes of memory that each value will take, at least.
    """
    shape, fortran, dtype = _read_header(stream, what)
    count = math.prod(shape)
    left = size - stream.tell()
    if dtype.itemsize == 0:
        raise GraphError(f"{what} holds {count:,} values without any width; store text of at least one character")
    if count * dtype.itemsize != left:
        raise GraphError(f"{what} claims {in_words(count * dtype.itemsize)} and has {in_words(left)}; write it again")
    check_claim(what, count * max(dtype.itemsize, width), file_size, _PLAIN)
    flat = np.empty(count, dtype=dtype)
    raw = flat.view(np.uint8)
    for start in range(0, left, _CHUNK):
        piece = stream.read(min(_CHUNK, left - start))
        raw[start : start + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        if len(piece) != min(_CHUNK, left - start):
            raise GraphError(f"{what} ends after {in_words(start + len(piece))} of {in_words(left)}; write it again")
    return flat.reshape(shape, order="F" if fortran else "C")


def check_directory(stream: BinaryIO, infos: list[zipfile.ZipInfo], end: int) -> None:
    """Compares the directory of an archive with the header of every member: none is lost, changed or repeated.

    Args:
        stream: The archive.
        infos: The members, by the directory.
        end: Where the directory starts.
    """
    position = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset != position:
            raise _lost(position)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise GraphError(f"member `{info.filename}` is packed by method {info.compress_type}; {_PLAIN}")
        position = _check_member(stream, info, end)
    if position != end:
        raise _lost(position)
    if len({info.filename for info in infos}) != len(infos):
        raise GraphError("a member is there twice; write the file again")


def _lost(position: int) -> GraphError:
    return GraphError(
        f"the archive is damaged: what is at byte {position:,} is not in its directory, so a member was lost; "
        "write the file again"
    )


def _check_member(stream: BinaryIO, info: zipfile.ZipInfo, end: int) -> int:
    """Compares the header of a member with the directory and returns where the member ends."""
    flags: int
    name_length: int
    extra_length: int
    stream.seek(info.header_offset)
    head = stream.read(_LOCAL.size)
    if len(head) != _LOCAL.size:
        raise _lost(info.header_offset)
    _, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(head)
    name, extra = stream.read(name_length), stream.read(extra_length)
    if size == _WIDE and len(extra) >= 20 and extra[:2] == b"\x01\x00":
        size, packed = struct.unpack("<2Q", extra[4:20])
    found: list[Any] = [flags, method, name.decode("utf-8" if flags & 0x800 else "cp437")]
    known: list[Any] = [info.flag_bits, info.compress_type, info.orig_filename]
    if not flags & _SIZES_AFTER:
        found += [crc, packed, size]
        known += [info.CRC, info.compress_size, info.file_size]
    if found != known:
        raise GraphError(
            f"the archive is damaged: its directory and its member `{info.filename}` differ; write the file again"
        )
    after = info.header_offset + _LOCAL.size + name_length + extra_length + info.compress_size
    if not flags & _SIZES_AFTER:
        return after
    # checksum and sizes, of 4 or 8 bytes, with or without a signature
    stream.seek(after)
    behind = stream.read(min(24, end - after))
    start = 4 if behind.startswith(b"PK\x07\x08") else 0
    for sizes in (struct.Struct("<3L"), struct.Struct("<L2Q")):
        if len(behind) >= start + sizes.size and sizes.unpack_from(behind, start) == (
            info.CRC,
            info.compress_size,
            info.file_size,
        ):
            return after + start + sizes.size
    raise _lost(after)


def _check_start(stream: BinaryIO) -> None:
    start = stream.read(len(np.lib.format.MAGIC_PREFIX))
    if start == np.lib.format.MAGIC_PREFIX:
        raise GraphError("this is a single array; store several named arrays with `numpy.savez`")
    if not start.startswith(_ARCHIVE) or not zipfile.is_zipfile(stream):
        raise GraphError("not an .npz file (not a zip archive, or truncated); write it again with `numpy.savez`")
    stream.seek(0)


def _read_header(stream: IO[bytes], what: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    start = stream.read(len(np.lib.format.MAGIC_PREFIX))
    if start != np.lib.format.MAGIC_PREFIX:
        raise GraphError(f"{what} is not an array; store arrays with `numpy.savez`")
    version = stream.read(2)
    if version not in (b"\x01\x00", b"\x02\x00"):
        raise ValueError(f"{what} has version {version.hex('.')} of the format")
    read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
    try:
        with PARSING:
            shape, fortran, dtype = read(stream)
    except ValueError as error:
        # numpy's message recommends `allow_pickle`, and a pickle can run any code
        if "allow_pickle" not in str(error):
            raise
        raise GraphError("an array holds too many named columns, which are never read; store plain numbers") from None
    if dtype.hasobject:
        raise GraphError("an array holds Python objects, which are never read; store plain numbers or text")
    if dtype.kind not in _KINDS or any(size < 0 for size in shape):
        raise GraphError(f"{what} holds {dtype.kind!r} of shape {shape}; store plain numbers or text")
    return shape, fortran, dtype
