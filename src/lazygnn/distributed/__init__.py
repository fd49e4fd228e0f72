"""Training by several processes, each of which owns some parts of the graph; `torchrun` starts them.

A process is a rank. Ranks take every step together. What they compute depends on the parts and not on the number of
ranks.
"""

import os
from collections.abc import Mapping


def is_launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether `torchrun` has started this process as one of several."""
    return environment.get("WORLD_SIZE", "1") not in ("", "1") and "RANK" in environment


def is_first(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether this process talks to the user: the first of several ranks, or the only process."""
    return not is_launched(environment) or environment["RANK"] == "0"


def is_restarted(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether `torchrun` has started all ranks again after one of them failed."""
    return environment.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")
