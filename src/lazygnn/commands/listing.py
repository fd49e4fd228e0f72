"""Lists the methods and data sets, and the options and recipes of a method."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lazygnn.config import Options, TrainerOptions, allowed
from lazygnn.data.datasets import EMBEDDED, find_graph, load_graph, unknown_dataset
from lazygnn.data.sources import SOURCES
from lazygnn.errors import ConfigError
from lazygnn.methods import (
    METHODS,
    Method,
    find_method,
    follows_rule,
    plugin_packages,
    published_values,
    recipe,
    recipe_for,
    recipe_names,
)


def list_methods(console: Console) -> None:
    """Prints a line for every method, and the names of the data sets."""
    others = plugin_packages()
    width = max(map(len, (*METHODS, *others)))
    for name, entry in METHODS.items():
        console.print(f"[bold]{name:{width}}[/bold]  {_describe(entry)}", soft_wrap=True, highlight=False)
    for name, packages in others.items():
        text = escape(_describe_plugin(name, packages))
        console.print(f"[bold]{escape(name):{width}}[/bold]  {text}", soft_wrap=True, highlight=False)
    console.print(f"data sets: {EMBEDDED} (inside the package), {', '.join(SOURCES)}, or the path of an .npz file")


def _describe(method: Method[Any]) -> str:
    return method.summary + ("" if method.paper == "-" else f" ({method.paper})")


def _describe_plugin(name: str, packages: list[str]) -> str:
    if name in METHODS:
        return f"not used: the package {' and '.join(packages)} has a method with the name of one above"
    try:
        return f"{_describe(find_method(name))}, from the package {packages[0]}"
    except ConfigError as error:
        # the other methods can be used
        return f"not usable: {error}"


def list_options(method: str, dataset: str, root: str | None, console: Console, *, everything: bool = False) -> None:
    """Prints the options of a method with the values for a data set, and the data sets that have a recipe.

    Args:
        method: Name of the method.
        dataset: A name or a path; `default` for none.
        root: The folder of data files.
        console: Where to print.
        everything: Whether to print options that a recipe or the rule leaves at their default, too.
    """
    options = find_method(method).options
    _check_dataset(dataset, root, method)
    name, graph, adapts = recipe_for(method, dataset), None, find_method(method).adapt is not None
    if find_graph(dataset, root) is not None:
        graph = load_graph(dataset, root)
        name = recipe_for(method, dataset, graph=graph)
    kind, source = "recipe", "default recipe" if name == "default" else f"recipe for {name}"
    if graph is not None and follows_rule(method, dataset, graph):
        kind, source = "rule", f"rule for {Path(dataset).stem}"
    # the default recipe is not about this graph
    everything = everything or source == "default recipe"
    values = published_values(dataset, graph) | recipe(method, dataset, graph=graph)
    for group, fields in (("training", TrainerOptions), (method, options)):
        table = _options_table(f"{group}, {source}", fields, values, kind, everything=everything)
        if table.row_count > 0:
            console.print(table)
    if not everything:
        console.print("other options have their defaults; `--all` shows them", soft_wrap=True, highlight=False)
    if name == "default" and graph is None and adapts:
        console.print("on a graph without a recipe, defaults follow from the graph: give its path to see them")
    console.print(_recipes_line(method), soft_wrap=True, highlight=False)


def _check_dataset(dataset: str, root: str | None, method: str) -> None:
    """Refuses a data set that is neither a known name nor a file."""
    known = {EMBEDDED, *SOURCES, *(name for each in (*METHODS, method) for name in recipe_names(each))}
    if dataset not in {"default", *known} and find_graph(dataset, root) is None:
        raise unknown_dataset(dataset, root, known)


def _options_table(title: str, options: type[Options], tuned: dict[str, Any], kind: str, *, everything: bool) -> Table:
    table = Table(Column("option", no_wrap=True), "default", kind, "allowed", "meaning", title=title)
    for name, field in options.model_fields.items():
        if not everything and tuned.get(name, field.default) == field.default:
            continue
        cells = _value(field.default), _value(tuned.get(name)), allowed(field), field.description or ""
        table.add_row(name, *map(escape, cells))
    return table


def _value(value: object) -> str:
    """Returns a value as `--set` takes it; empty for None."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _recipes_line(method: str) -> str:
    """Returns the data sets that a method has a recipe for; a star marks those that cannot be downloaded."""
    names = recipe_names(method)
    own = [name for name in names if name != EMBEDDED and name not in SOURCES]
    line = f"recipes for: {', '.join(f'{name}*' if name in own else name for name in names)}"
    legend = "\n* cannot be downloaded: needs your own `<name>.npz` in the folder of data files (`--root`)"
    return line + legend if own else line
