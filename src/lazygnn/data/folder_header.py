"""`graph.json`, which describes a graph in a folder of arrays, with the checksum of every file and one of its own."""

import zlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lazygnn.errors import GraphError
from lazygnn.tables.schema import Schema
from lazygnn.task import TaskKind
from lazygnn.untrusted.budget import check_width
from lazygnn.untrusted.text import check_json

HEADER = "graph.json"
ArrayName = Literal[
    "rowptr",
    "col",
    "value",
    "degree",
    "x",
    "x_rowptr",
    "x_col",
    "x_value",
    "y",
    "train_mask",
    "val_mask",
    "test_mask",
    "node_ids",
    "part_ptr",
]
_Size = Annotated[int, Field(ge=1, lt=2**31)]
A_GRAPH = "a folder that `lazygnn import`, `lazygnn prepare --out` or `Graph.save` wrote"
REMEDY = "write the graph again with `lazygnn import`, `lazygnn prepare --out` or `Graph.save`"
_PIECE_BYTES = 2**20


class Header(BaseModel):
    """The content of `graph.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)

    format: Literal["lazygnn-graph"] = "lazygnn-graph"
    version: Literal[1, 2] = 2
    name: str
    task: TaskKind
    num_nodes: _Size
    in_channels: _Size
    num_outputs: _Size
    class_names: tuple[str, ...] | None = None
    arrays: tuple[ArrayName, ...]
    part_engine: str | None = None
    # pydantic has a method `schema`
    table_schema: Schema | None = Field(None, alias="schema")
    # CRC-32 of every file, and of the rest of this content; version 1 has none
    checksums: dict[ArrayName, int] | None = None
    checksum: int | None = None

    def own_checksum(self) -> int:
        """Returns the checksum of everything but `checksum`."""
        return zlib.crc32(self.model_dump_json(by_alias=True, exclude={"checksum"}).encode())


def write_header(folder: Path, header: Header) -> None:
    """Writes `graph.json`, with the checksums of the arrays that it lists."""
    checksums = {name: _checksum(folder / f"{name}.npy") for name in header.arrays}
    header = header.model_copy(update={"checksums": checksums})
    header = header.model_copy(update={"checksum": header.own_checksum()})
    exclude = {name for name in ("part_engine", "table_schema") if getattr(header, name) is None}
    text = header.model_dump_json(indent=2, by_alias=True, exclude=exclude)
    (folder / HEADER).write_text(text + "\n", encoding="utf-8")


def mask_name(split: str) -> ArrayName:
    """Returns the name of the array with the mask of a split."""
    names: dict[str, ArrayName] = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}
    return names[split]


def read_header(path: Path) -> Header:
    """Reads and checks `graph.json`."""
    if not path.is_file():
        raise GraphError(f"`{path}` is missing; give {A_GRAPH}")
    try:
        content = path.read_bytes()
        check_json(content)
        header = Header.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(key) for key in first["loc"]) or "content"
        raise GraphError(f"`{path}`: `{field}` is {str(first['input'])[:80]!r}: {first['msg']}; {REMEDY}") from error
    except (OSError, ValueError) as error:
        raise GraphError(f"`{path}` cannot be read ({error}); {REMEDY}") from error
    _check_header(path, header)
    return header


def _check_header(path: Path, header: Header) -> None:
    names = header.class_names
    if names is not None and len(names) != header.num_outputs:
        raise GraphError(f"`{path}` has {len(names)} class names for {header.num_outputs} classes; {REMEDY}")
    if header.table_schema is not None:
        header.table_schema.check_width(header.in_channels, f"`{path}`")
    if header.version == 2 and (
        header.checksum != header.own_checksum() or set(header.checksums or ()) != set(header.arrays)
    ):
        raise GraphError(f"`{path}` is damaged: its checksum does not match its content; {REMEDY}")
    if names is None and header.task == "single-label":
        check_width(f"`num_outputs` in `{path}`", header.num_outputs, header.num_nodes)


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            found = zlib.crc32(piece, found)
    return found


def check_files(folder: Path, header: Header) -> None:
    """Compares the checksums of all files."""
    for name, known in (header.checksums or {}).items():
        path = folder / f"{name}.npy"
        try:
            found = _checksum(path) if path.is_file() else known
        except OSError as error:
            raise GraphError(f"`{path}` cannot be read ({error}); {REMEDY}") from error
        if found != known:
            raise GraphError(
                f"`{path}` is damaged: its checksum is {found:08x}, it was written with {known:08x}; restore it, or "
                f"{REMEDY}"
            )
