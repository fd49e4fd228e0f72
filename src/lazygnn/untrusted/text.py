"""Reads JSON and TOML that others wrote: a bounded depth, bounded numbers, and memory in proportion to the text.

Whatever is wrong with a text is a `ValueError`.
"""

import json
import re
import tomllib
from typing import Any

from lazygnn.untrusted.budget import in_words

MAX_DEPTH = 64
# tomllib takes time in the square of some texts, and options are short
_MAX_TOML = 2**20
# bytes in memory, at most, for every opening bracket, comma and colon of a JSON text
_COSTS = {b"[": 72, b"{": 200, b",": 40, b":": 130}
_FACTOR, _SLACK = 14, 128 * 2**20
_OPENING = (b"[", b"{")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
# what may separate keys; the dots of one key are between two of them
_OUTSIDE_KEYS = re.compile(r"[^\w\"'. \t-]+")


def parse_json(content: bytes | str) -> Any:
    """Returns the value of a JSON text."""
    check_json(content)
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from error


def check_json(content: bytes | str) -> None:
    """Refuses a JSON text that is nested too deep, or that takes much more memory than it has bytes."""
    raw = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    claimed = sum(cost * raw.count(sign) for sign, cost in _COSTS.items())
    if claimed > _FACTOR * len(raw) + _SLACK:
        raise ValueError(f"it takes {in_words(claimed)} of memory for {in_words(len(raw))} of text")
    _check_depth(raw)


def parse_toml(text: str) -> dict[str, Any]:
    """Returns the values of a TOML text; integers have at most 64 bits, as the format says."""
    if len(text) > _MAX_TOML:
        raise ValueError(f"it has {in_words(len(text))}, options have at most {in_words(_MAX_TOML)}")
    if any(piece.count(".") >= MAX_DEPTH for piece in _OUTSIDE_KEYS.split(text)):
        raise ValueError(f"a key has more than {MAX_DEPTH} parts")
    try:
        values = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from error
    _check_values(values, MAX_DEPTH)
    return values


def _check_depth(raw: bytes) -> None:
    if sum(map(raw.count, _OPENING)) <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKETS.finditer(_STRING.sub(b"", raw)):
        depth += 1 if bracket.group() in _OPENING else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


def _check_values(value: object, depth: int) -> None:
    if depth == 0:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(f"a number has {value.bit_length()} bits, but integers have at most 64")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_values(item, depth - 1)
