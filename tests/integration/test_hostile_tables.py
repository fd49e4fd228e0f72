"""A hundred malformed tables from a seeded generator: each is refused with file, line and column, or read correctly."""

import csv
import io
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.tables.building import import_tables
from lazygnn.tables.options import TableOptions

COLUMNS = ["id", "size", "color", "label"]
COLORS, LABELS = ("red", "green", "blue"), ("yes", "no", "maybe")


@dataclass
class Tables:
    """Two tables as they were meant, and the bytes that a change has made of them.

    Attributes:
        rng: Source of all choices.
        nodes: Rows of the table of nodes, with the header.
        edges: Rows of the table of edges, with the header.
        error: What the message must match; empty if the tables must be read.
        num_nodes: Nodes of the graph, if it is read.
        num_edges: Edges of the graph, if it is read.
    """

    rng: random.Random
    nodes: list[list[str]]
    edges: list[list[str]]
    error: str = ""
    num_nodes: int = 0
    num_edges: int = 0
    raw: dict[str, bytes] = field(default_factory=dict)

    def row(self) -> int:
        """Draws a row of nodes, not the header."""
        return self.rng.randrange(1, len(self.nodes))

    def line(self) -> int:
        """Draws a row of edges, not the header."""
        return self.rng.randrange(1, len(self.edges))

    def bytes_of(self, which: str) -> bytes:
        rows = self.nodes if which == "nodes" else self.edges
        return self.raw.get(which, as_csv(rows))


def as_csv(rows: list[list[str]], delimiter: str = ",", end: str = "\n", quoting: int = csv.QUOTE_MINIMAL) -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows)  # type: ignore[arg-type]
    return text.getvalue().encode()


def sound_tables(rng: random.Random) -> Tables:
    count = rng.randrange(12, 20)
    ids = [f"n{number}" for number in range(count)]
    nodes = [[one, f"{rng.uniform(-9, 9):.3f}", rng.choice(COLORS), LABELS[n % 3]] for n, one in enumerate(ids)]
    pairs = rng.sample([(a, b) for a in range(count) for b in range(a)], 2 * count)
    edges = [[ids[a], ids[b]] for a, b in pairs]
    return Tables(rng, [list(COLUMNS), *nodes], [["source", "target"], *edges], num_nodes=count, num_edges=len(edges))


# changes that a reader must survive


def mark_byte_order(t: Tables) -> None:
    t.raw["nodes"] = b"\xef\xbb\xbf" + as_csv(t.nodes, end="\r\n")


def end_lines_as_on_windows(t: Tables) -> None:
    t.raw["edges"] = as_csv(t.edges, end="\r\n")


def end_lines_as_on_old_macs(t: Tables) -> None:
    t.raw["edges"] = as_csv(t.edges, end="\r")


def quote_everything(t: Tables) -> None:
    t.raw["nodes"] = as_csv(t.nodes, quoting=csv.QUOTE_ALL)


def use_another_delimiter(t: Tables) -> None:
    t.raw["nodes"] = as_csv(t.nodes, delimiter=t.rng.choice(";\t|"))


def add_empty_lines(t: Tables) -> None:
    lines = as_csv(t.edges).split(b"\n")
    lines.insert(t.rng.randrange(len(lines)), b"")
    t.raw["edges"] = b"\n".join(lines) + b"\n\n"


def omit_the_last_line_end(t: Tables) -> None:
    t.raw["nodes"] = as_csv(t.nodes).rstrip(b"\n")


def put_special_characters_into_a_category(t: Tables) -> None:
    special = t.rng.choice(['a,"b"', "two\nlines", "=HYPERLINK(1)", "@SUM(A1)", "日本", "\u2028", "  padded  "])
    t.nodes[t.row()][2] = special


def put_special_characters_into_ids(t: Tables) -> None:
    new = t.rng.choice(['x"y', "a,b", "=1+1", "Zoë 🙂", "-", "NA", "line\nbreak"])
    old = t.nodes[1][0]
    t.nodes[1][0] = new
    t.edges = [[new if one == old else one for one in row] for row in t.edges]


def pad_ids(t: Tables) -> None:
    row = t.line()
    t.edges[row][0] = f" {t.edges[row][0]}\t"


def repeat_edges(t: Tables) -> None:
    t.edges += [t.rng.choice(t.edges[1:])[:: t.rng.choice((1, -1))] for _ in range(5)]


def join_nodes_to_themselves(t: Tables) -> None:
    t.edges += [[one, one] for one in (row[0] for row in t.nodes[1:4])]


def leave_values_empty(t: Tables) -> None:
    t.nodes[t.row()][t.rng.choice((1, 2))] = t.rng.choice(("", "NA", "null", " "))


def leave_all_edges_out(t: Tables) -> None:
    t.edges, t.num_edges = t.edges[:1], 0


# changes that must be refused


def cut_a_row(t: Tables) -> None:
    row = t.row()
    t.nodes[row] = t.nodes[row][: t.rng.randrange(1, 4)]
    t.error = rf"nodes.csv`, line {row + 1}: the row has \d values for 4 columns; the last column is `label`"


def lengthen_a_row(t: Tables) -> None:
    row = t.line()
    t.edges[row].append("more")
    t.error = rf"edges.csv`, line {row + 1}: the row has 3 values for 2 columns; the last column is `target`"


def leave_a_quote_open(t: Tables) -> None:
    row = t.row()
    lines = [",".join(cells) for cells in t.nodes]
    cells = t.nodes[row]
    # in the last column, the rest of the file would be one value
    column = t.rng.choice((0, 3))
    lines[row] = ",".join([*cells[:column], '"' + cells[column], *cells[column + 1 :]])
    t.raw["nodes"] = ("\n".join(lines) + "\n").encode()
    t.error = rf"nodes.csv`, line {row + 1}: a quote is not closed"


def use_another_encoding(t: Tables) -> None:
    row = t.row()
    t.nodes[row][2] = "gr\u00fcn"
    t.raw["nodes"] = as_csv(t.nodes).decode().encode("latin-1")
    t.error = rf"nodes.csv`, line {row + 1}, near column 3: .* is not UTF-8"


def write_utf_16(t: Tables) -> None:
    t.raw["edges"] = as_csv(t.edges).decode().encode("utf-16")
    t.error = r"edges.csv`, line 1: the file is in UTF-16"


def write_null_characters(t: Tables) -> None:
    row = t.row()
    t.nodes[row][2] = "a\0b"
    t.error = rf"nodes.csv`, line {row + 1}: the file holds a null character"


def repeat_an_id(t: Tables) -> None:
    first, second = sorted(t.rng.sample(range(1, len(t.nodes)), 2))
    t.nodes[second][0] = t.nodes[first][0]
    t.error = rf"nodes.csv`, line {second + 1}, column `id`: the id '.*' is on line {first + 1} already"


def omit_an_id(t: Tables) -> None:
    row = t.row()
    t.nodes[row][0] = t.rng.choice(("", "  "))
    t.error = rf"nodes.csv`, line {row + 1}, column `id`: the id is missing"


def write_a_huge_id(t: Tables) -> None:
    row = t.row()
    t.nodes[row][0] = "x" * 100_000
    t.error = rf"nodes.csv`, line {row + 1}, column `id`: the id is too long"


def write_a_huge_category(t: Tables) -> None:
    row = t.row()
    t.nodes[row][2] = "x" * 300_000
    t.error = rf"nodes.csv`, line {row + 1}, column `color`: 'x+\.\.\.' is too long for a category"


def name_an_unknown_node(t: Tables) -> None:
    row, column = t.line(), t.rng.randrange(2)
    t.edges[row][column] = t.rng.choice(("nobody", "N1", "n01", "1", "=n1"))
    t.error = rf"edges.csv`, line {row + 1}, column `{t.edges[0][column]}`: '.*' is not an id of"


def omit_an_end(t: Tables) -> None:
    row = t.line()
    t.edges[row][1] = ""
    t.error = rf"edges.csv`, line {row + 1}, column `target`: the id is missing"


def mix_text_into_numbers(t: Tables) -> None:
    row = t.row()
    t.nodes[row][1] = t.rng.choice(("old", "=A1*2", "1.2.3", "12 kg", "1,5", "0x1F", "1_000"))
    t.error = rf"nodes.csv`, line {row + 1}, column `size`: '.*' is not a number"


def write_infinite_numbers(t: Tables) -> None:
    row = t.row()
    t.nodes[row][1] = t.rng.choice(("inf", "-Infinity", "1e999"))
    t.error = rf"nodes.csv`, line {row + 1}, column `size`: '.*' is not finite"


def write_dates(t: Tables) -> None:
    for row in t.nodes[1:]:
        row[2] = f"2026-01-{t.rng.randrange(1, 29):02d}"
    t.error = r"nodes.csv`, line 2, column `color`: '.*' is a date"


def empty_a_column(t: Tables) -> None:
    for row in t.nodes[1:]:
        row[1] = ""
    t.error = r"nodes.csv`, column `size`: every value is missing"


def repeat_a_column(t: Tables) -> None:
    t.nodes[0][2] = "size"
    t.error = r"nodes.csv`, line 1: the column `size` is there twice"


def leave_a_column_unnamed(t: Tables) -> None:
    t.edges[0][0] = ""
    t.error = r"edges.csv`, line 1: column 1 has no name"


def leave_the_header_out(t: Tables) -> None:
    t.nodes = t.nodes[1:]
    t.error = r"which column of `.*nodes.csv` has the ids of the nodes\?"


def leave_all_out(t: Tables) -> None:
    t.raw["nodes"] = t.rng.choice((b"", b"\n\n", as_csv(t.nodes[:1])))
    t.error = r"nodes.csv` (is empty|has no rows)"


READ: tuple[Callable[[Tables], None], ...] = (
    mark_byte_order,
    end_lines_as_on_windows,
    end_lines_as_on_old_macs,
    quote_everything,
    use_another_delimiter,
    add_empty_lines,
    omit_the_last_line_end,
    put_special_characters_into_a_category,
    put_special_characters_into_ids,
    pad_ids,
    repeat_edges,
    join_nodes_to_themselves,
    leave_values_empty,
    leave_all_edges_out,
)
REFUSED: tuple[Callable[[Tables], None], ...] = (
    cut_a_row,
    lengthen_a_row,
    leave_a_quote_open,
    use_another_encoding,
    write_utf_16,
    write_null_characters,
    repeat_an_id,
    omit_an_id,
    write_a_huge_id,
    write_a_huge_category,
    name_an_unknown_node,
    omit_an_end,
    mix_text_into_numbers,
    write_infinite_numbers,
    write_dates,
    empty_a_column,
    repeat_a_column,
    leave_a_column_unnamed,
    leave_the_header_out,
    leave_all_out,
)
CHANGES = READ + REFUSED


def check_graph(graph: Graph, tables: Tables) -> None:
    """Compares a graph with what the tables mean."""
    assert (graph.num_nodes, graph.num_edges) == (tables.num_nodes, tables.num_edges)
    assert graph.node_ids is not None
    ids = [row[0].strip() for row in tables.nodes[1:]]
    assert graph.node_ids.tolist() == ids
    assert graph.class_names == tuple(sorted(LABELS))
    assert [graph.class_names[number] for number in graph.y.tolist()] == [row[3] for row in tables.nodes[1:]]
    neighbors = torch.eye(len(ids), dtype=torch.bool)
    for first, second in tables.edges[1:]:
        a, b = ids.index(first.strip()), ids.index(second.strip())
        neighbors[a, b] = neighbors[b, a] = True
    assert torch.equal(graph.adj.to_dense() > 0, neighbors)
    assert graph.schema is not None
    assert isinstance(graph.x, Tensor)
    names = graph.schema.feature_names()
    for column in (1, 2):
        for row, cells in enumerate(tables.nodes[1:]):
            text, name = cells[column].strip(), COLUMNS[column]
            if text in ("", "NA", "null"):
                assert graph.x[row, names.index(f"{name} is missing")] == 1
            elif column == 2:
                assert graph.x[row, names.index(f"color={text}")] == 1
            else:
                scaled = graph.schema.columns[0]
                assert scaled.kind == "number"
                assert float(graph.x[row, 0]) == pytest.approx((float(text) - scaled.mean) / scaled.scale, abs=1e-5)


@pytest.mark.parametrize("seed", range(100))
def test_a_malformed_table_is_refused_by_line_or_read_correctly(seed: int, tmp_path: Path) -> None:
    tables = sound_tables(random.Random(seed))
    change = CHANGES[seed % len(CHANGES)]
    # a second one, which is harmless; empty lines and other ends of lines would replace the bytes of the first
    if seed % 2:
        tables.rng.choice((repeat_edges, pad_ids, leave_values_empty))(tables)
    change(tables)
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    nodes.write_bytes(tables.bytes_of("nodes"))
    edges.write_bytes(tables.bytes_of("edges"))
    if tables.error:
        with pytest.raises((GraphError, ConfigError)) as refused:
            import_tables(nodes, edges, TableOptions())
        assert re.search(tables.error, str(refused.value)), (change.__name__, str(refused.value))
        assert len(str(refused.value)) < 600
    else:
        check_graph(import_tables(nodes, edges, TableOptions()).graph, tables)


def test_random_bytes_are_refused_or_read(tmp_path: Path) -> None:
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    read, refused = 0, []
    for seed in range(60):
        rng = random.Random(seed)
        tables = sound_tables(rng)
        for path in (nodes, edges):
            content = bytearray(tables.bytes_of(path.stem))
            for _ in range(rng.randrange(3)):
                start, drawn = rng.randrange(len(content)), rng.choices(b'",;\n\r\t =\xff0.eE', k=rng.randrange(3))
                content[start : start + rng.randrange(3)] = bytes(drawn)
            path.write_bytes(content)
        try:
            graph = import_tables(nodes, edges, TableOptions(drop_unknown=True)).graph
        except (GraphError, ConfigError) as error:
            refused.append(str(error))
            continue
        read += 1
        assert isinstance(graph.x, Tensor)
        assert graph.x.isfinite().all()
    assert read > 5
    assert len(refused) > 20
    assert all("nodes.csv`" in message or "edges.csv`" in message for message in refused)
