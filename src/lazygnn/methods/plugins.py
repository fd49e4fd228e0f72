"""Methods of other packages, found by their entry points in the group `lazygnn.methods`.

A package is imported when one of its methods is used, and not before. A package that cannot be imported does not affect
the others.
"""

import importlib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from lazygnn.config import read_toml
from lazygnn.errors import ConfigError, wrong_type
from lazygnn.methods.base import Method

GROUP = "lazygnn.methods"

# methods of other packages that were used in this process
_loaded: dict[str, Method[Any]] = {}


def plugin_packages() -> dict[str, list[str]]:
    """Returns the names of the packages that provide a method, by the name of the method."""
    return {name: [_package(found) for found in points] for name, points in _points().items()}


def load_plugin(name: str) -> Method[Any] | None:
    """Returns the method of another package; `None` if no package has one of that name.

    Raises:
        ConfigError: Its package cannot be imported, or what it provides is not a method.
    """
    if name in _loaded:
        return _loaded[name]
    points = _points().get(name, [])
    if not points:
        return None
    point = _only(name, points)
    try:
        found: Any = point.load()
    # the code of another package may raise anything
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"method `{name}` of the package `{_package(point)}` cannot be loaded: {reason}; upgrade or uninstall "
            f"`{_package(point)}`"
        ) from error
    if not isinstance(found, Method):
        remedy = f"the package `{_package(point)}` must name a `lazygnn.methods.Method`"
        raise ConfigError(wrong_type(point.value, found, remedy))
    _loaded[name] = found
    return found


def loaded_plugins() -> dict[str, Method[Any]]:
    """Returns the methods of other packages that were loaded so far, by name."""
    return dict(_loaded)


def plugin_recipes(name: str) -> dict[str, dict[str, Any]]:
    """Returns the recipes of a loaded method: the file `<name>.toml` beside its module, if there is one."""
    point = _only(name, _points()[name])
    folder = Path(importlib.import_module(point.module).__file__ or "").parent
    path = folder / f"{name}.toml"
    tables = read_toml(path) if path.is_file() else {}
    for key, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(
                f"`{path}` has the value `{key}` outside of a table; put it under `[default]`, or under the name of "
                "a data set"
            )
    return {"default": {}, **tables}


def _points() -> dict[str, list[EntryPoint]]:
    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        points.setdefault(point.name, []).append(point)
    return points


def _only(name: str, points: list[EntryPoint]) -> EntryPoint:
    if len(points) > 1:
        packages = " and ".join(f"`{_package(point)}`" for point in points)
        raise ConfigError(f"the packages {packages} each have a method `{name}`; uninstall one of them")
    return points[0]


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else point.dist.name
