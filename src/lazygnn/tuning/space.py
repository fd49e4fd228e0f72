"""Search spaces: from the options' own ranges, from the paper, or from a file."""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from lazygnn.config import Config, Options, TrainerOptions, allowed, mentions, read_toml, split_options
from lazygnn.errors import ConfigError
from lazygnn.methods import find_method, methods_with
from lazygnn.tunable import Choices, Range

Space = dict[str, Range | Choices]

# Section 4.1 of the paper; beta and gamma stay at 0.5 there
PAPER: Space = {
    "lr": Choices((0.01, 0.001, 0.0001)),
    "weight_decay": Choices((0.0, 5e-4, 5e-5)),
    "dropout": Choices((0.1, 0.3, 0.5, 0.7)),
    "num_layers": Choices((1, 2)),
    "mlp_layers": Choices((3, 4)),
    "hidden_channels": Choices((256, 512)),
    "alpha": Choices((0.01, 0.1, 0.2, 0.5, 0.8)),
}

# more numbers are not told apart in float64
_MOST_STEPS = 2**53


def find_space(name: str, method: str, fixed: Mapping[str, Any], default: Config) -> Space:
    """Returns the values to try.

    Args:
        name: `options` for the ranges stated beside the options, `paper`, or the path of a TOML file.
        method: The name of the method.
        fixed: Options that the user sets; they are not searched.
        default: The configuration without a search; `options` contains its values.
    """
    if name == "options":
        space = options_space(method, default)
    elif name == "paper":
        space = PAPER
    elif name.endswith(".toml"):
        space = read_space(read_toml(Path(name)), name)
    else:
        raise ConfigError(f"`space` is `{name}`; choose options, paper or a file that ends in .toml")
    space = {option: values for option, values in space.items() if option not in fixed}
    if not space:
        raise ConfigError(f"nothing is left to search for `{method}`: set fewer options, or choose another `--space`")
    _check(space, method)
    fields = {**TrainerOptions.model_fields, **find_method(method).options.model_fields}
    return {
        option: _as_taken(option, values, fields[option]) if isinstance(values, Range) else values
        for option, values in space.items()
    }


def options_space(method: str, default: Config) -> Space:
    """Returns the ranges of a method's options, widened to contain the default values."""
    space: Space = {}
    groups = [(find_method(method).options, default.model)]
    # without epochs, nothing is learned
    if default.trainer.epochs > 0:
        groups.insert(0, (TrainerOptions, default.trainer))
    for options, values in groups:
        for name, field in options.model_fields.items():
            found = next((item for item in field.metadata if isinstance(item, Range | Choices)), None)
            if found is not None:
                space[name] = _containing(found, field, getattr(values, name))
    return space


def read_space(content: Mapping[str, Any], source: str) -> Space:
    """Returns the space of a file: an option has a list of values, or a table with `low`, `high`, `log` and `step`."""
    space: Space = {}
    for name, values in content.items():
        if isinstance(values, list) and values:
            space[name] = Choices(tuple(values))
            continue
        try:
            space[name] = Range(**values)
        except TypeError:
            raise ConfigError(
                f"`{source}` has {values!r} for `{name}`; give a list of values, or a table such as "
                "`{ low = 0.001, high = 0.1, log = true }`"
            ) from None
    return space


def write_space(space: Space) -> dict[str, Any]:
    """Returns a space as JSON values that `read_space` takes."""
    return {
        name: list(values.values) if isinstance(values, Choices) else asdict(values) for name, values in space.items()
    }


def nearest_values(space: Space, config: Config) -> dict[str, Any]:
    """Returns the values of a configuration that a space contains; numbers take the nearest step of their range."""
    given = dict(config.trainer) | dict(config.model)
    found = {}
    for name, values in space.items():
        value = given[name]
        if isinstance(values, Choices):
            if value in values.values:
                found[name] = value
        elif isinstance(value, int | float):
            step = values.step or (1 if _whole(values) else 0)
            near = min(max(value, values.low), _highest(values))
            found[name] = values.low + step * round((near - values.low) / step) if step else near
            found[name] = int(found[name]) if _whole(values) else found[name]
    return found


def left_out(space: Space, config: Config) -> dict[str, Any]:
    """Returns the values of a configuration that are searched, but that a space does not contain."""
    given, found = dict(config.trainer) | dict(config.model), nearest_values(space, config)
    return {name: given[name] for name in space if name not in found or not _equal(found[name], given[name])}


def _equal(found: Any, given: Any) -> bool:
    # the sum of steps is rounded
    return math.isclose(found, given) if isinstance(given, float) else bool(found == given)


def _containing(values: Range | Choices, field: FieldInfo, default: Any) -> Range | Choices:
    if isinstance(values, Choices):
        known = values.values or ((False, True) if field.annotation is bool else get_args(field.annotation))
        return Choices(tuple(known) if default in known else (*known, default))
    if not isinstance(default, int | float) or (values.log and default <= 0):
        return values
    return replace(values, low=min(values.low, default), high=max(values.high, default))


def _whole(values: Range) -> bool:
    return all(isinstance(end, int) for end in (values.low, values.high))


def _check(space: Space, method: str) -> None:
    groups: dict[str, type[Options]] = {"trainer": TrainerOptions, "model": find_method(method).options}
    for name, values in space.items():
        if name == "metric":
            raise ConfigError(
                "`metric` cannot be searched: trials are compared by its scores; give one with `--set`, such as "
                "`--set metric=macro-f1`"
            )
        owners = methods_with(name)
        if owners and method not in owners:
            raise ConfigError(
                f"method `{method}` has no option `{name}` of this space; choose another `--space`, or a method that "
                f"has it: {', '.join(owners)}"
            )
        if isinstance(values, Range):
            _check_range(name, values)
        # each by itself: whether a value has an effect depends on the others of its trial
        for value in values.values if isinstance(values, Choices) else (values.low, values.high):
            split_options({name: "none" if value is None else value}, groups)


def _check_range(name: str, values: Range) -> None:
    """Refuses what numbers cannot be drawn from, whatever the option takes."""
    for end in ("low", "high"):
        if not _is_number(getattr(values, end)):
            raise ConfigError(f"`{end}` in the range of `{name}` is {getattr(values, end)!r}; give a number")
    if not isinstance(values.log, bool):
        raise ConfigError(f"`log` in the range of `{name}` is {values.log!r}; give true or false")
    if not (values.low <= values.high and math.isfinite(values.high - values.low)):
        raise ConfigError(f"the range of `{name}` is {values.low} to {values.high}; give a `low` below `high`")
    if values.log and values.low <= 0:
        raise ConfigError(f"the range of `{name}` starts at {values.low}; with `log`, give a `low` above 0")
    if values.step is None:
        return
    if not (_is_number(values.step) and math.isfinite(values.step) and values.step > 0):
        raise ConfigError(f"`step` in the range of `{name}` is {values.step!r}; give a number above 0, or omit it")
    if values.log:
        raise ConfigError(f"the range of `{name}` has `log` and a `step` of {values.step}; omit one of them")
    if (values.high - values.low) / values.step > _MOST_STEPS:
        raise ConfigError(f"`step` in the range of `{name}` is {values.step}, too small for it; give a larger one")


def _as_taken(name: str, values: Range, field: FieldInfo) -> Range:
    """Returns a range whose numbers have the type that the option takes, whatever the bounds are written as."""
    takes_whole, takes_others = (mentions(field.annotation, kind) for kind in (int, float))
    if takes_others:
        whole = takes_whole and _whole(values) and (values.step is None or isinstance(values.step, int))
    elif not takes_whole:
        raise ConfigError(f"option `{name}` takes no range of numbers; give a list of {allowed(field)}")
    else:
        whole = True
        if values.step is not None and values.step != int(values.step):
            raise ConfigError(f"`step` in the range of `{name}` is {values.step}; give a whole number")
    number: type[int | float] = int if whole else float
    step = None if values.step is None else number(values.step)
    typed = replace(values, low=number(values.low), high=number(values.high), step=step)
    # Optuna warns of a bound that no step reaches
    return replace(typed, high=_highest(typed))


def _highest(values: Range) -> float:
    """Returns the largest number that the steps of a range reach."""
    if values.step is None:
        return values.high
    # in decimals, in which 0.8 is a multiple of 0.05
    low, high, step = (Decimal(str(number)) for number in (values.low, values.high, values.step))
    return type(values.high)(low + (high - low) // step * step)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
