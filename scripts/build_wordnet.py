"""Builds the embedded graph `wordnet-small` from the data files of WordNet 3.0 (Debian package `wordnet-base`).

Nodes are synsets, edges are pointers, labels are lexicographer files, features are hashed words of the definition.
Only integers and stable hashes are used, so the same data files give the same arrays on every machine.
"""

import argparse
import hashlib
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

POS_FILES = {"n": "data.noun", "v": "data.verb", "a": "data.adj", "r": "data.adv"}
BUCKETS = 2048
SOURCE = (
    "wordnet-small: synsets of WordNet 3.0 (as in Debian wordnet-base 1:3.0-37), their pointers as undirected edges, "
    "lexicographer files as labels, hashed word counts of the definitions as features. "
    "WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved. "
    "Licence: WordNet 3.0, see wordnet-small.LICENSE.txt."
)
# The position in this list is the lexicographer file number, as in lexnames(5WN).
# fmt: off
CLASS_NAMES = [
    "adj.all", "adj.pert", "adv.all", "noun.Tops", "noun.act", "noun.animal", "noun.artifact",
    "noun.attribute", "noun.body", "noun.cognition", "noun.communication", "noun.event", "noun.feeling",
    "noun.food", "noun.group", "noun.location", "noun.motive", "noun.object", "noun.person",
    "noun.phenomenon", "noun.plant", "noun.possession", "noun.process", "noun.quantity", "noun.relation",
    "noun.shape", "noun.state", "noun.substance", "noun.time", "verb.body", "verb.change", "verb.cognition",
    "verb.communication", "verb.competition", "verb.consumption", "verb.contact", "verb.creation",
    "verb.emotion", "verb.motion", "verb.perception", "verb.possession", "verb.social", "verb.stative",
    "verb.weather", "adj.ppl",
]
# fmt: on


@dataclass(frozen=True)
class Synset:
    """One line of a data file; an id is a letter for the file and the offset in it, such as `n00001740`."""

    id: str
    lex_file: int
    gloss: str
    targets: tuple[str, ...]


def build(source: Path) -> Arrays:
    """Reads the four data files in `source` and returns the arrays of the graph."""
    synsets = sorted(_read(source), key=lambda s: _stable_hash("order", s.id))
    ids = [s.id for s in synsets]
    return {
        "edge_index": _edges(synsets),
        "y": _labels(synsets),
        **_masks(ids),
        **_features([s.gloss for s in synsets]),
        "class_name": np.array(CLASS_NAMES),
        "node_ids": np.array(ids),
        "source": np.array(SOURCE),
    }


def digest(arrays: Arrays) -> str:
    """Computes the SHA-256 of names, types, shapes and bytes of the arrays; it does not depend on the compression."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        array = array.astype(array.dtype.newbyteorder("<"))
        total.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def save(arrays: Arrays, out: Path) -> None:
    """Writes a compressed `.npz` that loads without pickle."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            # An entry opened by name has the fixed date of 1980, so every build gives the same file.
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def _read(source: Path) -> Iterator[Synset]:
    missing = [name for name in POS_FILES.values() if not (source / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{', '.join(missing)} not found in {source}; install the Debian package `wordnet-base` "
            "or give the folder of the WordNet 3.0 data files with --source"
        )
    for pos, name in POS_FILES.items():
        with (source / name).open(encoding="ascii") as lines:
            # The lines of the license at the top of each file start with two spaces.
            yield from (_parse(pos, line) for line in lines if not line.startswith("  "))


def _parse(pos: str, line: str) -> Synset:
    """Parses one synset in the format of wndb(5WN): the head, a bar, the gloss."""
    head, _, gloss = line.partition(" | ")
    fields = head.split()
    first = 4 + 2 * int(fields[3], 16)
    pointers = fields[first + 1 : first + 1 + 4 * int(fields[first])]
    # Satellite adjectives (s) are in the same file as the other adjectives (a).
    targets = tuple(p.replace("s", "a") + offset for offset, p in zip(pointers[1::4], pointers[2::4], strict=True))
    return Synset(pos + fields[0], int(fields[1]), gloss.strip(), targets)


def _stable_hash(purpose: str, text: str) -> bytes:
    return hashlib.blake2b(f"{purpose}:{text}".encode(), digest_size=16).digest()


def _edges(synsets: Sequence[Synset]) -> NDArray[np.int32]:
    """Returns both directions of every pointer between different synsets, once each, sorted by (row, column)."""
    position = {s.id: i for i, s in enumerate(synsets)}
    unknown = {t for s in synsets for t in s.targets if t not in position}
    if unknown:
        raise ValueError(f"{len(unknown)} pointers have an unknown target, such as {min(unknown)}")
    pairs = {(i, position[t]) for i, s in enumerate(synsets) for t in s.targets if t != s.id}
    pairs |= {(j, i) for i, j in pairs}
    return np.ascontiguousarray(np.array(sorted(pairs), dtype=np.int32).reshape(-1, 2).T)


def _labels(synsets: Sequence[Synset]) -> NDArray[np.int64]:
    y = np.array([s.lex_file for s in synsets], dtype=np.int64)
    if y.size and y.max() >= len(CLASS_NAMES):
        raise ValueError(f"lexicographer file number {y.max()} is not one of the {len(CLASS_NAMES)} of WordNet 3.0")
    return y


def _masks(ids: Sequence[str]) -> Arrays:
    """Splits 60/20/20 by the rank of a second hash, independent of the hash that orders the nodes."""
    ranked = np.array(sorted(range(len(ids)), key=lambda i: _stable_hash("split", ids[i])), dtype=np.int64)
    cuts = [len(ids) * 6 // 10, len(ids) * 8 // 10]
    masks: Arrays = {}
    for name, nodes in zip(("train_mask", "val_mask", "test_mask"), np.split(ranked, cuts), strict=True):
        masks[name] = np.zeros(len(ids), dtype=np.bool_)
        masks[name][nodes] = True
    return masks


def _features(glosses: Sequence[str]) -> Arrays:
    """Returns hashed word counts of the glosses as compressed sparse rows."""
    rows = [sorted(_word_counts(gloss).items()) for gloss in glosses]
    return {
        "x_indptr": np.cumsum([0, *map(len, rows)], dtype=np.int32),
        "x_indices": np.array([bucket for row in rows for bucket, _ in row], dtype=np.int32),
        "x_data": np.array([count for row in rows for _, count in row], dtype=np.float16),
        "x_shape": np.array([len(rows), BUCKETS], dtype=np.int64),
    }


def _word_counts(gloss: str) -> Counter[int]:
    # The examples start at the first quotation mark; they often contain the words of the synset itself.
    definition = gloss.partition('"')[0].lower()
    return Counter(zlib.crc32(word.encode()) % BUCKETS for word in re.findall("[a-z]+", definition))


def main(argv: Sequence[str] | None = None) -> None:
    """Builds the file and prints its content."""
    parser = argparse.ArgumentParser(description="Builds wordnet-small from the data files of WordNet 3.0.")
    root = Path(__file__).resolve().parents[1]
    parser.add_argument("--source", type=Path, default=Path("/usr/share/wordnet"), help="folder of data.noun and so on")
    parser.add_argument("--out", type=Path, default=root / "src/lazygnn/data/wordnet-small.npz", help="file to write")
    args = parser.parse_args(argv)
    try:
        arrays = build(args.source)
    except FileNotFoundError as error:
        parser.error(str(error))
    save(arrays, args.out)
    splits = "/".join(str(int(arrays[f"{split}_mask"].sum())) for split in ("train", "val", "test"))
    print(
        f"{args.out.name}: {arrays['y'].size} nodes, {arrays['edge_index'].shape[1] // 2} undirected edges, "
        f"{np.unique(arrays['y']).size} classes, {arrays['x_data'].size} feature entries in {BUCKETS} columns, "
        f"train/val/test {splits}, {args.out.stat().st_size} bytes, sha256 of the content {digest(arrays)}"
    )


if __name__ == "__main__":
    main()
