"""Which column is what: given by the user, or guessed by its name where that is safe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lazygnn.errors import ConfigError
from lazygnn.tables.options import TableOptions
from lazygnn.tables.reading import Source, require_columns

_IDS = ("id", "node", "node_id", "nodeid")
_LABELS = ("label", "target", "y", "class")
_SOURCES = ("source", "src", "from")
_TARGETS = ("target", "dst", "to")
_WEIGHTS = ("weight",)


@dataclass(frozen=True)
class NodeRoles:
    """The columns of a table of nodes.

    Attributes:
        id: Ids.
        label: Labels; empty if there are none.
        features: Features.
        ignored: Columns that are not used.
        guessed: What was guessed, in words.
    """

    id: str
    label: tuple[str, ...]
    features: tuple[str, ...]
    ignored: tuple[str, ...]
    guessed: tuple[str, ...]


@dataclass(frozen=True)
class EdgeRoles:
    """The columns of a table of edges.

    Attributes:
        source: First node.
        target: Second node.
        weight: Weights; `None` if there are none.
        ignored: Columns that are not used.
        guessed: What was guessed, in words.
        by_position: Whether the two nodes were found without names, as the only columns.
    """

    source: str
    target: str
    weight: str | None
    ignored: tuple[str, ...]
    guessed: tuple[str, ...]
    by_position: bool = False


def node_roles(table: Source, options: TableOptions, *, guess: bool = True) -> NodeRoles:
    """Finds the columns of a table of nodes; refuses names that it does not have and roles that contradict.

    Args:
        table: The table.
        options: What is given.
        guess: Whether labels that are not given are guessed.
    """
    given: dict[str, Sequence[str]] = {
        "--id": _some(options.id),
        "--label": options.label,
        "--split-column": _some(options.split_column),
        "--split-time": _some(options.split_time),
        "--features": options.features,
        "--ignore": options.ignore,
        "--categorical": options.categorical,
        "--numeric": options.numeric,
    }
    for option, columns in given.items():
        require_columns(table, columns, option)
    _check_roles(given)
    guessed: list[str] = []
    id_ = options.id or _guess(table, _IDS, "--id", guessed, taken=_taken(given))
    if id_ is None:
        raise ConfigError(
            f"which column of {table.name} has the ids of the nodes? give it with `--id`; columns: "
            f"{', '.join(table.columns)}"
        )
    label: Sequence[str] = options.label
    if guess and not label:
        label = _some(_guess(table, _LABELS, "--label", guessed, taken={*_taken(given), id_}))
    used = {id_, *label, *given["--split-column"], *given["--split-time"]}
    features = options.features or tuple(c for c in table.columns if c not in used and c not in options.ignore)
    for option in ("--categorical", "--numeric"):
        _check_features(given[option], features, option)
    ignored = tuple(column for column in table.columns if column not in used and column not in features)
    return NodeRoles(id_, tuple(label), features, ignored, tuple(guessed))


def edge_roles(table: Source, options: TableOptions, *, guess: bool = True) -> EdgeRoles:
    """Finds the columns of a table of edges; the two columns of a table without others need no name.

    Args:
        table: The table.
        options: What is given.
        guess: Whether weights that are not given are guessed.
    """
    given = {
        "--source": _some(options.source),
        "--target": _some(options.target),
        "--weight": _some(options.weight),
    }
    for option, columns in given.items():
        require_columns(table, columns, option)
    _check_roles(given)
    guessed: list[str] = []
    taken = _taken(given)
    source = options.source or _guess(table, _SOURCES, "--source", guessed, taken=taken)
    target = options.target or _guess(table, _TARGETS, "--target", guessed, taken=taken)
    by_position = source is None and target is None and len(table.columns) == 2
    if by_position:
        source, target = table.columns
        guessed.append(f"`--source {source}` and `--target {target}`")
    for option, found in (("--source", source), ("--target", target)):
        if found is None:
            raise ConfigError(
                f"which columns of {table.name} name the two nodes of an edge? give `{option}`; columns: "
                f"{', '.join(table.columns)}"
            )
    weight = options.weight
    if guess and weight is None:
        weight = _guess(table, _WEIGHTS, "--weight", guessed, taken=taken)
    used = (source, target, weight)
    ignored = tuple(column for column in table.columns if column not in used)
    return EdgeRoles(str(source), str(target), weight, ignored, tuple(guessed), by_position)


def _guess(table: Source, names: Sequence[str], option: str, guessed: list[str], *, taken: set[str]) -> str | None:
    found = [column for column in table.columns if column.lower() in names and column not in taken]
    if len(found) > 1:
        shown = " and ".join(f"`{column}`" for column in found)
        rest = ", and `--ignore` the other" if option == "--label" else ""
        raise ConfigError(f"{table.name} has the columns {shown}; choose one with `{option}`{rest}")
    if not found:
        return None
    guessed.append(f"`{option} {found[0]}`")
    return found[0]


def _check_roles(given: Mapping[str, Sequence[str]]) -> None:
    """Refuses a column with two roles; categories and numbers are features as well."""
    roles: dict[str, str] = {}
    for option, columns in given.items():
        if option in ("--categorical", "--numeric"):
            continue
        for column in columns:
            if column in roles:
                raise ConfigError(f"`{roles[column]}` and `{option}` both name the column `{column}`; remove one")
            roles[column] = option
    both = set(given.get("--categorical", ())) & set(given.get("--numeric", ()))
    if both:
        raise ConfigError(f"`--categorical` and `--numeric` both name the column `{min(both)}`; remove one")


def _check_features(columns: Sequence[str], features: Sequence[str], option: str) -> None:
    for column in columns:
        if column not in features:
            raise ConfigError(f"`{option}` names `{column}`, which is not a feature; remove `{option} {column}`")


def _taken(given: Mapping[str, Sequence[str]]) -> set[str]:
    return {column for columns in given.values() for column in columns}


def _some(column: str | None) -> tuple[str, ...]:
    return () if column is None else (column,)
