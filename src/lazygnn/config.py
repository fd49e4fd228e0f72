"""Options: a pydantic model is the schema, TOML holds values, JSON records a run. Unknown names are errors."""

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from lazygnn.errors import ConfigError


class Options(BaseModel):
    """A group of options: frozen, and closed to names it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def ignored(self) -> dict[str, str]:
        """The options that have no effect, or cannot be had, beside the others: why, and what to do."""
        return {}

    def chosen(self) -> dict[str, Any]:
        """What is taken for the options that leave the choice open."""
        return {}


T = TypeVar("T", bound=Options)
_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


class TrainerOptions(Options):
    """How any method is trained."""

    epochs: int = Field(200, ge=0, description="passes over the training nodes")
    lr: float = Field(0.01, gt=0, description="learning rate")
    optimizer: Literal["adam", "adamw"] = Field("adam", description="adamw decouples the weight decay")
    weight_decay: float = Field(0.0, ge=0, description="weight decay")
    rest_weight_decay: float = Field(0.0, ge=0, description="weight decay of the layers that `decay_layers` spares")
    decay_layers: int | None = Field(None, ge=1, description="decay the first layers alone; empty means all")
    schedule: Literal["constant", "cosine"] = Field("constant", description="learning rate over the epochs")
    warmup_epochs: int = Field(0, ge=0, description="epochs over which the learning rate rises from zero")
    clip_norm: float | None = Field(None, gt=0, description="largest norm of a gradient")
    patience: int | None = Field(None, ge=1, description="stop after so many epochs without a better validation score")
    eval_every: int = Field(1, ge=1, description="epochs between two evaluations")
    diagnose_every: int = Field(20, ge=0, description="epochs between two looks at the histories; 0 means never")
    checkpoint_every: int | None = Field(None, ge=1, description="batches between two checkpoints")
    checkpoint_minutes: float = Field(10.0, gt=0, description="minutes between two checkpoints")
    metric: str = Field("auto", description="accuracy, micro-f1, roc-auc or r2; auto takes the one of the task")
    precision: Literal["float32", "tf32", "bfloat16"] = Field("float32", description="arithmetic of a training step")
    cuda_graphs: Literal["auto", "off"] = Field("auto", description="replay steps that come again, on a GPU")
    compile: bool = Field(False, description="compile the MLP with `torch.compile`, on a GPU")


class Config(Options):
    """Everything a run depends on."""

    method: str
    dataset: str
    seed: int = Field(0, ge=0)
    device: str = "auto"
    root: str | None = None
    trainer: TrainerOptions
    model: dict[str, Any]

    def record(self, chosen: Mapping[str, Any] = {}) -> str:
        """The resolved configuration as JSON, with what was `chosen` in place of options that leave it open."""
        values = self.model_dump()
        for group in (values, values["trainer"], values["model"]):
            group.update({name: chosen[name] for name in group.keys() & chosen.keys()})
        return json.dumps(values, indent=2)


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Reads `key=value` pairs; a value is TOML, or a string where it is not."""
    values = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"`{assignment}` is not of the form key=value")
        try:
            values[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[key.strip()] = text.strip() or None
    return values


def read_options(path: Path) -> dict[str, Any]:
    """Reads a TOML file of options that all stand on lines of their own."""
    values = read_toml(path)
    for name, value in values.items():
        if isinstance(value, dict):
            raise ConfigError(
                f"`{path}` has a table `{name}`; options stand on lines of their own, without tables: "
                f"remove the line `[{name}]`"
            )
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a TOML file of options, in tables or not."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"no file `{path}`; give the path of a TOML file of options") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read the options in `{path}`: {error}") from error


def split_options(values: Mapping[str, Any], groups: Mapping[str, type[Options]]) -> dict[str, Options]:
    """Deals flat `values` out to the groups that know their names and checks each.

    Raises:
        ConfigError: A name that no group knows, with the nearest one that exists, or a value that a group refuses.
    """
    owner = {name: group for group, model in groups.items() for name in model.model_fields}
    dealt: dict[str, dict[str, Any]] = {group: {} for group in groups}
    for name, value in values.items():
        if name in ("seed", "device", "root"):
            raise ConfigError(f"`{name}` belongs to a run; give it as `--{name} {value}`, in Python to `resolve`")
        if name not in owner:
            raise ConfigError(f"unknown option `{name}`; {nearest(name, owner)}")
        accepts_none_by_name = "none" in get_args(groups[owner[name]].model_fields[name].annotation)
        dealt[owner[name]][name] = None if value == "none" and not accepts_none_by_name else value
    return {group: check_options(model, dealt[group]) for group, model in groups.items()}


def check_options(model: type[T], values: Mapping[str, Any]) -> T:
    """Builds a group of options; a refused value is a `ConfigError`."""
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or model.__name__
        raise ConfigError(f"option `{name}` is {first['input']!r}: {first['msg'].lower()}") from None


def allowed(field: FieldInfo) -> str:
    """What an option may be: its choices, or its type and bounds."""
    return _allowed(field.annotation, field.metadata)


def _allowed(kind: Any, bounds: Sequence[Any]) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _allowed(parts[0], parts[1:])
    if origin is Literal:
        return " or ".join(map(str, parts))
    if origin is list:
        return f"list of {_allowed(parts[0], ())}"
    if parts:
        return " or ".join(_allowed(part, bounds) for part in parts)
    if kind is NoneType:
        return "none"
    name = {bool: "true or false", int: "integer", float: "number", str: "text"}.get(kind, str(kind))
    limits = [
        f"{sign} {getattr(bound, key)}" for bound in bounds for key, sign in _SIGNS.items() if hasattr(bound, key)
    ]
    return f"{name} {' and '.join(limits)}" if limits else name


def nearest(name: str, known: Iterable[str], alike: float = 0.5) -> str:
    """What to do about a name that is not known: the one that was meant perhaps, or else all there are."""
    folded = {one.casefold(): one for one in known}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=alike)
    return f"did you mean `{folded[close[0]]}`?" if close else f"choose one of: {', '.join(folded.values())}"
