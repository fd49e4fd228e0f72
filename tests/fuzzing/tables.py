"""Tables with damaged bytes, and columns of any values, as `import` and `Graph.from_tables` take them."""

import random
import tempfile
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from lazygnn.graph import Graph
from lazygnn.tables.building import import_tables
from lazygnn.tables.options import read_table_options
from tests.fuzzing.graphs import check
from tests.integration.test_hostile_tables import CHANGES, sound_tables

PIECES = (
    b'"',
    b",",
    b";",
    b"\n",
    b"\r",
    b"\t",
    b" ",
    b"=",
    b"\xff",
    b"\x00",
    b"nan",
    b"-",
    b"1e999",
    b"9" * 30,
    b"\xef\xbb\xbf",
)
VALUES: tuple[Any, ...] = (
    None,
    0,
    1,
    -1,
    2**63,
    10**30,
    0.5,
    float("nan"),
    float("inf"),
    True,
    "",
    "a",
    "1",
    "nan",
    " ",
    "\x00",
    "é",
    "x" * 5000,
    b"bytes",
    [],
    {},
    (1, 2),
    date(2020, 1, 1),
    datetime(2020, 1, 1),
    Decimal("1.5"),
    object(),
)
OPTIONS: tuple[tuple[str, Any], ...] = (
    ("label", "size"),
    ("label", ("color", "size")),
    ("label", "nothing"),
    ("id", "color"),
    ("weight", "size"),
    ("task", "regression"),
    ("task", "multi-label"),
    ("ratio", (1, 0, 0)),
    ("ratio", (100, 0, 0)),
    ("seed", 2**64),
    ("split", "random"),
    ("split_column", "color"),
    ("split_time", "size"),
    ("structural", True),
    ("drop_unknown", True),
    ("max_categories", 2),
    ("numeric", ("color",)),
    ("categorical", ("size",)),
    ("features", ("size",)),
    ("ignore", ("size", "color", "label")),
)


def fuzz_table(rng: random.Random) -> None:
    """Draws two tables, as files with damaged bytes or as columns with odd values."""
    options = dict(rng.sample(OPTIONS, rng.choice((0, 0, 1, 2))))
    check(_from_files(rng, options) if rng.random() < 0.5 else _from_columns(rng, options))


def _from_files(rng: random.Random, options: dict[str, Any]) -> Graph:
    tables = sound_tables(rng)
    if rng.random() < 0.5:
        rng.choice(CHANGES)(tables)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name in ("nodes", "edges"):
            content = bytearray(tables.bytes_of(name))
            for _ in range(rng.randrange(3)):
                start = rng.randrange(len(content) + 1)
                content[start : start + rng.randrange(3)] = rng.choice(PIECES)
            path = Path(folder) / f"{name}{rng.choice(('.csv', '.csv', '.tsv', '.parquet'))}"
            path.write_bytes(content[: rng.choice((None, None, rng.randrange(len(content) + 1)))])
            paths.append(path)
        return import_tables(paths[0], paths[1], read_table_options(options)).graph


def _from_columns(rng: random.Random, options: dict[str, Any]) -> Graph:
    count = rng.randrange(1, 8)
    nodes: dict[str, Any] = {
        "id": [f"n{number}" for number in range(count)],
        "size": [rng.uniform(0, 9) for _ in range(count)],
        "color": [rng.choice("rgb") for _ in range(count)],
        "label": [rng.choice("ab") for _ in range(count)],
    }
    ends = [f"n{rng.randrange(count)}" for _ in range(2 * count)]
    edges: dict[str, Any] = {"source": ends[:count], "target": ends[count:], "size": [1.0] * count}
    for _ in range(rng.randrange(3)):
        table = rng.choice((nodes, edges))
        column = rng.choice(list(table))
        values = list(table[column])
        for at in rng.sample(range(len(values)), rng.randrange(1, len(values) + 1)):
            values[at] = rng.choice(VALUES)
        table[column] = values[: rng.choice((None, None, None, 1))]
    return Graph.from_tables(nodes, edges, **options)
