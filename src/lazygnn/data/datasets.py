"""`load_graph`: loads a graph by path or by name."""

import os
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path

from lazygnn.data.download import download
from lazygnn.data.folder import load_folder
from lazygnn.data.folder_header import A_GRAPH, HEADER
from lazygnn.data.graphsaint import read_saint
from lazygnn.data.npz import read_npz
from lazygnn.data.ogb import read_ogb
from lazygnn.data.planetoid import read_planetoid
from lazygnn.data.sources import SOURCES
from lazygnn.data.structure import check_structure
from lazygnn.errors import GraphError, wrong_type
from lazygnn.graph import Graph

EMBEDDED = "wordnet-small"
# environment variable; 0 means that checksums are not compared
VERIFY = "LAZYGNN_VERIFY"
_TABLES = (".csv", ".tsv", ".parquet")
_READERS: dict[str, Callable[[Path, str], Graph]] = {
    "planetoid": read_planetoid,
    "saint": read_saint,
    "ogb": read_ogb,
}


def load_graph(name: str | Path, root: str | Path | None = None, *, verify: bool | None = None) -> Graph:
    """Loads a graph and checks it.

    Searches in this order: a path to an `.npz` file or to a folder with a `graph.json`; `<root>/<name>.npz`; the folder
    `<root>/<name>`; the graph inside the package; the raw files of a public data set in `<root>/<name>`, which are
    downloaded if they are missing.

    Args:
        name: A path, or a name that `lazygnn list` shows.
        root: Folder of data files; by default the environment variable `LAZYGNN_DATA`, or `data`.
        verify: Whether to compare the checksums of a folder, or of files that were downloaded; by default yes, unless
            the environment variable `LAZYGNN_VERIFY` is 0. The structure is checked in any case.

    Examples:
        The graph inside the package:

        >>> from lazygnn import load_graph
        >>> graph = load_graph("wordnet-small")
        >>> graph.num_nodes, graph.task.kind, list(graph.masks)
        (117659, 'single-label', ['train', 'val', 'test'])
    """
    if not isinstance(name, str | Path):
        raise GraphError(wrong_type("name", name, "give the name of a data set, or a path"))
    verify = verifies() if verify is None else verify
    found = find_graph(name, root)
    if found is not None and found.is_dir():
        return load_folder(found, verify=verify)
    graph = _read(name, root, verify=verify) if found is None else read_npz(found)
    check_structure(graph)
    return graph


def verifies() -> bool:
    """Returns whether checksums are compared by default, which `lazygnn --no-verify` skips for all of a command."""
    return os.environ.get(VERIFY, "1") != "0"


def _read(name: str | Path, root: str | Path | None, *, verify: bool) -> Graph:
    """Reads the graph inside the package, or the original files of a data set."""
    path, name, folder = Path(name), str(name), data_root(root)
    if not name:
        raise GraphError("the name of the data set is empty; give a name that `lazygnn list` shows, or a path")
    if path.suffix.lower() in _TABLES:
        raise GraphError(
            f"`{path}` is a table, not a graph; import a table of nodes and one of edges first: "
            "`lazygnn import nodes.csv edges.csv --out mygraph`, then give `mygraph`"
        )
    if path.suffix == ".npz":
        raise unknown_dataset(name, root, ())
    if name == EMBEDDED:
        with resources.as_file(resources.files("lazygnn.data") / f"{EMBEDDED}.npz") as file:
            return read_npz(file)
    if name not in SOURCES and path.is_dir():
        raise GraphError(f"folder `{path}` has no `{HEADER}`; give {A_GRAPH}, or an .npz file")
    if name not in SOURCES:
        raise unknown_dataset(name, root, (EMBEDDED, *SOURCES))
    return _READERS[SOURCES[name].reader](download(name, folder, verify=verify), name)


def unknown_dataset(name: str, root: str | Path | None, known: Iterable[str]) -> GraphError:
    """Returns the error for an unknown name, with the file that was expected."""
    path, folder = Path(name), data_root(root)
    if path.suffix == ".npz":
        # a name of a file in the root has no suffix
        in_root = (folder / path).is_file()
        remedy = f"use `{path.stem}`" if in_root else "give the path of an .npz file or the name of a data set"
        return GraphError(f"no file `{path}`; {remedy}")
    return GraphError(
        f"unknown data set `{name}`: no file `{folder / name}.npz`; set `--root` or `LAZYGNN_DATA` to its folder, or "
        f"choose one of: {', '.join(sorted(known))}"
    )


def find_graph(name: str | Path, root: str | Path | None = None) -> Path | None:
    """Returns the `.npz` file or the folder with a `graph.json` for a path or a name; `None` if neither exists."""
    path, folder = Path(name), data_root(root)
    candidates = [path] if path.suffix == ".npz" else [path / HEADER, folder / f"{name}.npz", folder / path / HEADER]
    found = next((file for file in candidates if file.is_file()), None)
    return found.parent if found is not None and found.name == HEADER else found


def data_root(root: str | Path | None) -> Path:
    """Returns the folder of data files."""
    return Path(root if root is not None else os.environ.get("LAZYGNN_DATA", "data"))
