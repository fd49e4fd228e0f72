import json
import random

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save

from lazygnn.errors import DivergenceError
from lazygnn.run.weights import pack_weights, unpack_weights

WEIGHTS = {"a": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).T, "b": torch.arange(4)}


def test_weights_are_read_back_unchanged() -> None:
    loaded = unpack_weights(pack_weights(WEIGHTS))
    assert loaded.keys() == WEIGHTS.keys()
    assert all(torch.equal(loaded[name], value) for name, value in WEIGHTS.items())


def test_the_same_weights_are_the_same_file() -> None:
    assert pack_weights(WEIGHTS) == pack_weights({name: value.clone() for name, value in WEIGHTS.items()})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_never_written(value: float) -> None:
    with pytest.raises(DivergenceError, match="weight `b` is not finite; lower `lr` or set `clip_norm`"):
        pack_weights({"a": torch.ones(2), "b": torch.tensor([1.0, value])})


def test_a_flip_of_any_bit_is_found_or_changes_nothing() -> None:
    content, draw, found = pack_weights(WEIGHTS), random.Random(0), 0
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << draw.randrange(8)
        try:
            loaded = unpack_weights(bytes(flipped))
        except (ValueError, SafetensorError):
            found += 1
        else:
            # the name of the digest, or a space, may change without an effect
            assert loaded.keys() == WEIGHTS.keys()
            assert all(torch.equal(loaded[name], value) for name, value in WEIGHTS.items())
    assert found > 0.9 * len(content)


def test_a_file_without_a_digest_is_read() -> None:
    content = save({"a": torch.ones(2)})
    assert "sha256" not in json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
    assert unpack_weights(content)["a"].tolist() == [1.0, 1.0]


def test_a_wrong_digest_counts_only_if_it_is_verified() -> None:
    content = bytearray(pack_weights({"a": torch.ones(2)}))
    content[-1] ^= 1
    with pytest.raises(ValueError, match="its digest does not match its content"):
        unpack_weights(bytes(content))
    assert unpack_weights(bytes(content), verify=False)["a"].shape == (2,)
