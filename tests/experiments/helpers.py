"""What the tests of the experiments share."""

from pathlib import Path

import numpy as np


def small_graph(path: Path) -> Path:
    rng = np.random.default_rng(0)
    split = rng.integers(0, 3, 60)
    masks = {f"{name}_mask": split == index for index, name in enumerate(("train", "val", "test"))}
    np.savez(
        path, edge_index=rng.integers(0, 60, (2, 150)), x=rng.normal(size=(60, 3)), y=rng.integers(0, 2, 60), **masks
    )
    return path
