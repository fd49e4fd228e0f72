"""Options: a pydantic model is the schema, TOML holds values, JSON records a run. Unknown names are errors."""

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, PrivateAttr, SerializeAsAny, ValidationError
from pydantic.fields import FieldInfo

from lazygnn.errors import ConfigError, wrong_type
from lazygnn.tunable import Choices, Range
from lazygnn.untrusted.text import parse_toml

# options that were renamed: old name -> new name
RENAMED = {"fanout": "num_neighbors"}
# options of training that only learning reads
_LEARNING = (
    "lr",
    "optimizer",
    "weight_decay",
    "rest_weight_decay",
    "decay_layers",
    "schedule",
    "warmup_epochs",
    "clip_norm",
    "patience",
    "eval_every",
    "class_weight",
)
# decimals of a number that is shown and not computed with
_SHOWN_DECIMALS = 6
_SHOWN_CHARACTERS = 200
_MAX_INTEGER = 2**63 - 1
_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


class Options(BaseModel):
    """A group of options: frozen, without unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, /, **values: Any) -> None:
        """Refuses unknown names and wrong values by a `ConfigError`."""
        _check_numbers(type(self), values)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _explained(type(self), error) from None

    def ignored(self) -> dict[str, str]:
        """Returns a message for every option without effect, by name: the reason and the remedy."""
        return {}

    def differs(self, name: str) -> bool:
        """Returns whether the value of an option is not its default."""
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    def resolved(self) -> Self:
        """Returns the same options with those filled in that were left empty or `auto` and follow from others."""
        return self

    def chosen(self) -> dict[str, Any]:
        """Returns the values that `resolved` fills in, rounded for display."""
        filled = self.resolved()
        chosen = {name: value for name, value in filled if value != getattr(self, name)}
        return {
            name: round(value, _SHOWN_DECIMALS) if isinstance(value, float) else value for name, value in chosen.items()
        }


class TrainerOptions(Options):
    """Training, the same for every method."""

    epochs: int = Field(200, ge=0, description="passes over the training nodes")
    lr: Annotated[float, Range(1e-4, 0.1, log=True)] = Field(0.01, gt=0, description="learning rate")
    optimizer: Literal["adam", "adamw"] = Field("adam", description="adamw decouples the weight decay")
    weight_decay: Annotated[float, Choices((0.0, 1e-5, 1e-4, 5e-4, 5e-3))] = Field(
        0.0, ge=0, description="weight decay"
    )
    rest_weight_decay: float = Field(0.0, ge=0, description="weight decay of the layers after `decay_layers`")
    decay_layers: int | None = Field(None, ge=1, description="layers that `weight_decay` applies to; empty means all")
    schedule: Literal["constant", "cosine"] = Field("constant", description="learning rate schedule")
    warmup_epochs: int = Field(0, ge=0, description="epochs over which the learning rate rises from zero")
    clip_norm: float | None = Field(None, gt=0, description="largest norm of the gradient; empty means no clipping")
    patience: int | None = Field(None, ge=1, description="epochs without a better value of `criterion` to stop after")
    eval_every: int = Field(1, ge=1, description="epochs between evaluations")
    diagnose_every: int = Field(0, ge=0, description="epochs between diagnoses of the histories; 0 means never")
    checkpoint_every: int | None = Field(None, ge=1, description="batches between checkpoints")
    checkpoint_minutes: float = Field(10.0, gt=0, description="minutes between checkpoints")
    keep_checkpoint: bool = Field(True, description="keep the last checkpoint of a run that has ended, to train longer")
    logger: Literal["none", "tensorboard"] = Field(
        "none", description="tensorboard: also write the log for TensorBoard, into the run folder"
    )
    metric: str = Field(
        "auto",
        description="accuracy, balanced-accuracy, micro-f1, macro-f1, roc-auc, average-precision, r2, mae or rmse; "
        "auto means the metric of the task",
    )
    criterion: Literal["score", "score-loss"] = Field(
        "score",
        description="what the best epoch, and the weights of a mixture, are chosen by on validation; "
        "score-loss: the score less the loss at its best temperature",
    )
    threshold: Annotated[float, Field(gt=0, lt=1)] | Literal["validation"] = Field(
        0.5,
        description="probability from which one of several labels is predicted; validation: the best there",
    )
    class_weight: Literal["none", "balanced"] = Field(
        "none", description="balanced: weigh every class alike in the loss, however rare it is"
    )
    standardize_targets: bool = Field(
        True, description="learn regression targets with mean 0 and deviation 1; predictions stay in their own units"
    )
    standardize_features: Literal["auto", "on", "off"] = Field(
        "auto",
        description="scale columns of features to mean 0 and deviation 1; auto does so where scales are very different",
    )
    precision: Literal["float32", "tf32", "bfloat16"] = Field("float32", description="arithmetic of a training step")
    cuda_graphs: Literal["auto", "off"] = Field("auto", description="replay repeated training steps on a GPU")
    parts_per_step: int | None = Field(
        None, ge=1, description="parts that ranks train before a step, together; empty means one for every rank"
    )
    wire: Literal["float32", "bfloat16", "int8"] = Field(
        "float32", description="number format of the rows that ranks send to each other"
    )
    exchange_every: int = Field(1, ge=1, description="epochs between two exchanges of rows around the parts of ranks")
    rank_timeout: float = Field(
        600.0, gt=0, description="seconds after which a rank that does not answer ends the training"
    )
    compile: bool = Field(False, description="compile the MLP with `torch.compile` on a GPU")

    def ignored(self) -> dict[str, str]:
        """Adds options of learning where there are no epochs, and a decay of no layer."""
        found = super().ignored()
        if self.epochs == 0:
            return found | {
                name: f"`{name}` is {getattr(self, name)}, but `epochs` is 0, so that nothing is learned; omit `{name}`"
                for name in _LEARNING
                if self.differs(name)
            }
        if self.decay_layers is None and self.differs("rest_weight_decay"):
            found["rest_weight_decay"] = (
                f"`rest_weight_decay` is {self.rest_weight_decay}, but `decay_layers` is empty, so that `weight_decay` "
                "applies to all layers; set `decay_layers`, or omit `rest_weight_decay`"
            )
        return found


class Asked(NamedTuple):
    """What a configuration was made from.

    Attributes:
        recipe: The data set whose recipe was asked for; `default` is none.
        values: The options that were set.
    """

    recipe: str
    values: dict[str, Any]


class Config(Options):
    """Everything that a run depends on; `resolve` and `read_config` in `lazygnn.methods` make one.

    Attributes:
        method: Name of the method.
        dataset: Name or path of the graph.
        seed: Seed of weights, dropout and batches.
        device: `auto`, `cpu` or `cuda`.
        root: Folder of data files.
        trainer: Options of training.
        model: Options of the method, as they were set.
    """

    method: str
    dataset: str
    seed: int = Field(0, ge=0)
    device: str = "auto"
    root: str | None = None
    trainer: TrainerOptions
    model: SerializeAsAny[InstanceOf[Options]]
    _asked: Asked | None = PrivateAttr(None)

    def __eq__(self, other: object) -> bool:
        """Compares what is recorded."""
        return isinstance(other, Config) and dict(self) == dict(other)

    __hash__ = Options.__hash__

    @property
    def asked(self) -> Asked | None:
        """What `resolve` was asked without a graph; `None` if a graph was given. It is not recorded."""
        return self._asked

    def without_graph(self, asked: Asked) -> Self:
        """Returns the configuration with a note that it was made without a graph."""
        noted = self.model_copy()
        noted._asked = asked
        return noted

    def record(self, chosen: Mapping[str, Any] = {}) -> str:
        """Returns the configuration as JSON; values in `chosen` replace options that were left open."""
        values = self.model_dump()
        for group in (values, values["trainer"], values["model"]):
            group.update({name: chosen[name] for name in group.keys() & chosen.keys()})
        return json.dumps(values, indent=2)


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Reads `key=value` pairs; a value that is not TOML is a string, or a list of words such as `[mlp, decoupled]`."""
    values = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"`{assignment}` is not of the form key=value, such as `epochs=5`")
        try:
            values[key.strip()] = parse_toml(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[key.strip()] = _words(text.strip())
        except ValueError as error:
            raise ConfigError(f"cannot read the value of `{key.strip()[:80]}`: {error}") from error
    return values


def _words(text: str) -> str | list[str] | None:
    """Returns a text without quotes as a string, as a list in brackets, or as `None` if it is empty."""
    if text.startswith("[") and text.endswith("]"):
        return [word.strip() for word in text[1:-1].split(",")]
    return text or None


def read_options(path: Path) -> dict[str, Any]:
    """Reads a TOML file of options without tables."""
    values = read_toml(path)
    for name, value in values.items():
        if isinstance(value, dict):
            raise ConfigError(
                f"`{path}` has a table `{name}`; a file of options has no tables: remove the line `[{name}]`"
            )
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a TOML file of options, with or without tables."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no file `{path}`; give the path of a TOML file of options") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the options in `{path}`: {error}") from error


def split_options(values: Mapping[str, Any], groups: Mapping[str, type[Options]]) -> dict[str, Options]:
    """Assigns flat `values` to the groups that have options of those names, and checks each group.

    Raises:
        ConfigError: A name that was renamed or that no group has, or a value that a group refuses.
    """
    owner = {name: group for group, model in groups.items() for name in model.model_fields}
    assigned: dict[str, dict[str, Any]] = {group: {} for group in groups}
    for name, value in values.items():
        if not isinstance(name, str):
            raise ConfigError(wrong_type("option", name, "name options by text"))
        if name in ("seed", "device", "root"):
            raise ConfigError(f"`{name}` belongs to a run; give it as `--{name} {value}`, in Python to `resolve`")
        if name in RENAMED:
            raise ConfigError(f"option `{name}` is now `{RENAMED[name]}`; use the new name")
        if name not in owner:
            raise ConfigError(f"unknown option `{name}`; {nearest(name, owner)}")
        accepts_none_by_name = "none" in get_args(groups[owner[name]].model_fields[name].annotation)
        means_none = isinstance(value, str) and value == "none" and not accepts_none_by_name
        assigned[owner[name]][name] = None if means_none else value
    return {group: model(**assigned[group]) for group, model in groups.items()}


def rename(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns stored options under their present names."""
    return {RENAMED.get(name, name): value for name, value in values.items()}


def _check_numbers(model: type[Options], values: Mapping[str, Any]) -> None:
    """Refuses numbers that pydantic would take for others."""
    for name, value in values.items():
        if isinstance(value, int) and abs(value) > _MAX_INTEGER:
            raise ConfigError(f"option `{name}` has {value.bit_length()} bits; give an integer of at most 63")
        field = model.model_fields.get(name)
        # it would count as 0 or 1
        if isinstance(value, bool) and field is not None and not mentions(field.annotation, bool):
            raise ConfigError(f"option `{name}` is {_shown(value)}: give {allowed(field)}")


def _explained(model: type[Options], error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    name = _name(first["loc"])
    if first["type"] == "extra_forbidden":
        return ConfigError(f"unknown option `{name}`; {nearest(name, model.model_fields)}")
    # an option of several types has a message for each of them
    messages = [_message(part["type"], part["msg"]) for part in error.errors() if _name(part["loc"]) == name]
    return ConfigError(f"option `{name or model.__name__}` is {_shown(first['input'])}: {', or '.join(messages)}")


def _message(kind: str, text: str) -> str:
    return f"{text.lower()}, in square brackets" if kind == "list_type" else text.lower()


def _name(location: Sequence[str | int]) -> str:
    """Returns where a refused value is: the name of the option, and positions in a list."""
    return ".".join(str(part) for index, part in enumerate(location) if index == 0 or isinstance(part, int))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def mentions(kind: Any, wanted: type) -> bool:
    """Returns whether a type, or one that it is made of, is `wanted`."""
    return kind is wanted or any(mentions(part, wanted) for part in get_args(kind))


def allowed(field: FieldInfo) -> str:
    """Returns the values that an option accepts: its choices, or its type and bounds."""
    return _allowed(field.annotation, field.metadata)


def _allowed(kind: Any, bounds: Sequence[Any]) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        # bounds of a part of a type are in a field of its own
        return _allowed(parts[0], [bound for part in parts[1:] for bound in getattr(part, "metadata", [part])])
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
    """Returns the remedy for an unknown name: the most similar known one, or else all of them."""
    folded = {one.casefold(): one for one in known}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=alike)
    return f"did you mean `{folded[close[0]]}`?" if close else f"choose one of: {', '.join(folded.values())}"
