"""Files of weights: safetensors with a digest of their content, and never with numbers that are not finite."""

import hashlib

from safetensors.torch import load, save
from torch import Tensor

from lazygnn.errors import DivergenceError
from lazygnn.untrusted.text import parse_json

# in the metadata of a file
_DIGEST = "sha256"


def pack_weights(weights: dict[str, Tensor]) -> bytes:
    """Returns the content of a file of weights.

    Raises:
        DivergenceError: A weight is not finite.
    """
    for name, value in weights.items():
        if not bool(value.isfinite().all()):
            raise DivergenceError(f"weight `{name}` is not finite; lower `lr` or set `clip_norm`")
    # `save_file` would make them readable for the owner only
    dense = {name: value.contiguous().cpu() for name, value in weights.items()}
    return save(dense, {_DIGEST: _digest(dense)})


def unpack_weights(content: bytes, *, verify: bool = True) -> dict[str, Tensor]:
    """Returns the weights in the content of a file; its digest is checked, which files of earlier versions lack.

    Raises:
        ValueError: The digest does not match.
        safetensors.SafetensorError: The content is not a file of weights.
    """
    weights = load(content)
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    if verify and header.get("__metadata__", {}).get(_DIGEST, digest := _digest(weights)) != digest:
        raise ValueError("its digest does not match its content")
    return weights


def _digest(weights: dict[str, Tensor]) -> str:
    # the file of the same weights is always the same
    return hashlib.sha256(save(weights)).hexdigest()
