"""Counts what ranks send to each other, at the collectives."""

from dataclasses import dataclass


@dataclass
class Traffic:
    """The bytes that this rank has sent to others, and the seconds that it has waited for them.

    Attributes:
        halo: Bytes of rows around parts, in training.
        reduced: Bytes of gradients. A sum over `R` ranks sends `2 (R - 1) / R` times its size from every rank.
        evaluated: Bytes of rows around parts in products with the matrix of the graph, as in evaluation.
        exposed: Seconds of waiting in training, in which this rank did not compute.
        epochs: Epochs that were counted.
    """

    halo: int = 0
    reduced: float = 0.0
    evaluated: int = 0
    exposed: float = 0.0
    epochs: int = 0

    def add_sum(self, num_bytes: int, num_ranks: int) -> None:
        """Counts a sum over ranks."""
        self.reduced += 2 * (num_ranks - 1) / num_ranks * num_bytes


def summarize(counted: list[Traffic]) -> dict[str, float]:
    """Returns the bytes of an epoch, of all ranks together, and the longest wait of a rank in it.

    Args:
        counted: The traffic of every rank.
    """
    epochs = max(max((each.epochs for each in counted), default=0), 1)
    return {
        "ranks": len(counted),
        "halo_bytes_per_epoch": round(sum(each.halo for each in counted) / epochs),
        "allreduce_bytes_per_epoch": round(sum(each.reduced for each in counted) / epochs),
        "evaluation_bytes": sum(each.evaluated for each in counted),
        "exposed_seconds_per_epoch": max((each.exposed for each in counted), default=0.0) / epochs,
    }
