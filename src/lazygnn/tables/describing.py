"""What an import did, in sentences and in numbers."""

from collections.abc import Sequence
from typing import Any

from lazygnn.graph import SPLITS, Graph
from lazygnn.tables.linking import Edges
from lazygnn.tables.reading import Source
from lazygnn.tables.roles import EdgeRoles, NodeRoles
from lazygnn.tables.schema import CategoryColumn, NumberColumn, Schema, Target


def note_guesses(roles: NodeRoles, ends: EdgeRoles) -> list[str]:
    """Says which columns were found by their names."""
    guessed = [*roles.guessed, *ends.guessed]
    return [f"guessed from the names of the columns: {', '.join(guessed)}"] if guessed else []


def note_features(schema: Schema, missing: dict[str, int], unknown: dict[str, int]) -> list[str]:
    """Says what became of the columns of features."""
    parts = []
    numbers = [column.name for column in schema.columns if isinstance(column, NumberColumn)]
    if numbers:
        parts.append(f"numbers, scaled to mean 0 and deviation 1: {', '.join(numbers)}")
    categories = [column for column in schema.columns if isinstance(column, CategoryColumn)]
    if categories:
        shown = ", ".join(f"{column.name} ({len(column.values)} values)" for column in categories)
        parts.append(f"categories, a 0 or 1 for every value: {shown}")
    if schema.structural is not None:
        parts.append(f"the logarithm of the degree and {schema.structural.signs} propagated random signs")
    notes = [f"{schema.width} features: {'; '.join(parts)}"]
    if missing:
        shown = ", ".join(f"{count:,} in {column}" for column, count in missing.items())
        marked = {column.name for column in schema.columns if column.indicator}
        rest = [column for column in missing if column not in marked]
        fate = "replaced by the mean or by no category"
        if len(rest) < len(missing):
            fate += ", and marked by one more feature" + (f", except in {', '.join(rest)}" if rest else "")
        notes.append(f"missing values: {shown}; {fate}")
    if unknown:
        shown = ", ".join(f"{count:,} in {column}" for column, count in unknown.items())
        notes.append(f"values that are not a known category, and count as none: {shown}")
    return notes


def note_labels(graph: Graph, target: Target | None, split: str | None) -> list[str]:
    """Says what the labels are and how they are split."""
    if target is None:
        return ["no labels, so that the graph serves for prediction alone; name their column with `--label`"]
    labeled = graph.task.labeled(graph.y)
    columns = ", ".join(target.columns)
    if target.task == "regression":
        what = f"numbers from {columns}, to be predicted as they are (`--task single-label` takes them as classes)"
    elif target.task == "single-label":
        counts = graph.y[labeled].bincount(minlength=len(target.classes)).tolist()
        what = f"{len(target.classes)} classes from {columns}: {_list_counts(target.classes, counts)}"
    else:
        counts = graph.y[labeled].sum(dim=0).long().tolist()
        what = f"{len(target.classes)} labels from {columns}, several per node: {_list_counts(target.classes, counts)}"
    unlabeled = int((~labeled).sum())
    notes = [f"{what}; {unlabeled:,} of {graph.num_nodes:,} nodes have no label"]
    sizes = ", ".join(f"{int(graph.masks[one].sum()) if one in graph.masks else 0:,} {one}" for one in SPLITS)
    notes.append(f"split {split}: {sizes}")
    if target.task == "single-label" and "train" in graph.masks:
        seen = set(graph.y[graph.masks["train"]].tolist())
        unseen = [name for number, name in enumerate(target.classes) if number not in seen]
        notes += [f"no training node has the class {', '.join(unseen)}"] if unseen else []
    return notes


def note_edges(source: Source, ends: EdgeRoles, edges: Edges, graph: Graph) -> list[str]:
    """Says what became of the rows of edges."""
    facts = count_facts(graph, edges)
    weighted = "" if ends.weight is None else f", weighted by `{ends.weight}`"
    notes = [
        f"{edges.num_rows:,} rows from {source.name}, from `{ends.source}` to `{ends.target}`{weighted}: "
        f"{graph.num_edges:,} different edges, which count in both directions"
    ]
    if facts["repeated"]:
        notes.append(f"{facts['repeated']:,} rows repeat an edge or give its other direction; an edge counts once")
    if facts["self_loops"]:
        notes.append(f"{facts['self_loops']:,} rows join a node to itself; every node has such an edge anyway")
    if facts["dropped"]:
        notes.append(f"{facts['dropped']:,} rows name a node that is not in the table, and are dropped")
    if facts["isolated"]:
        notes.append(f"{facts['isolated']:,} nodes have no edge to another node")
    return notes


def count_facts(graph: Graph, edges: Edges) -> dict[str, Any]:
    """Returns the numbers of an import by name."""
    splits = {split: int(graph.masks[split].sum()) if split in graph.masks else 0 for split in SPLITS}
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.in_channels,
        "task": graph.task.kind,
        "outputs": graph.task.num_outputs,
        **splits,
        "unlabeled": int((~graph.task.labeled(graph.y)).sum()),
        "repeated": edges.index.shape[1] - edges.num_loops - graph.num_edges,
        "self_loops": edges.num_loops,
        "dropped": edges.num_unknown,
        "isolated": int((graph.adj.rowptr.diff() == 1).sum()),
    }


def _list_counts(names: Sequence[str], counts: Sequence[int]) -> str:
    shown = [f"{name} ({count:,})" for name, count in zip(names, counts, strict=True)]
    return ", ".join(shown if len(shown) <= 10 else [*shown[:10], "..."])
