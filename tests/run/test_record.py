import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lazygnn.errors import CheckpointError
from lazygnn.run.record import make_record, read_record, seal

TENSORS: dict[str, Any] = {"size": 8, "sha256": "0" * 64, "names": ["x"]}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
@settings(max_examples=40, deadline=None)
def test_any_json_state_is_read_back_exactly(state: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        path.write_bytes(seal(make_record(3, TENSORS, state)))
        found = read_record(path)
    assert (found["number"], found["tensors"]) == (3, TENSORS)
    # unlike equality, the text distinguishes 1 from 1.0 and True, and 0.0 from -0.0
    assert repr(found["state"]) == repr(state)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"loss": [0.0, float("nan")]}, r"`state.loss\[1\]` is nan, which JSON cannot represent"),
        ({"best": float("-inf")}, "`state.best` is -inf, .* store None or text"),
        ({"a": {1: 2}}, "`state.a` has the key 1; JSON keys are text"),
        ({"\ud800": 2}, r"`state` has the key '\\ud800'"),
        ({"a": "\ud83d\ude00"}, "is not valid Unicode text"),
        ({"betas": (0.9, 0.99)}, "`state.betas` is a tuple; give JSON values"),
        ({"x": torch.ones(1)}, "`state.x` is a Tensor; .* arrays in `tensors`"),
        ({"x": "a" * 2**24}, "`state` takes 16,777,[0-9]+ bytes as JSON, at most 16,777,216"),
    ],
)
def test_a_state_that_json_would_change_is_refused(state: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_record(0, TENSORS, state)


def test_a_state_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested more than 64 deep, or contains itself"):
        make_record(0, TENSORS, {"loop": loop})


def test_the_record_is_plain_json_and_ends_in_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    text = seal(make_record(3, TENSORS, {"epoch": 7}))
    assert list(json.loads(text)) == ["format", "version", "number", "tensors", "state", "sha256"]
    path.write_bytes(text.replace(b'"epoch": 7', b'"epoch": 8'))
    with pytest.raises(CheckpointError, match=r"`record.json` is corrupt: its digest does not match"):
        read_record(path)
