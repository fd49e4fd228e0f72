"""Verdicts on the claims of the paper, computed from numbers."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from common.summary import Cell

Outcome = Literal["reproduced", "reproduced in part", "not reproduced", "not measured"]


class Check(NamedTuple):
    """A claim on one graph.

    Attributes:
        where: The graph, or another place.
        margin: At least zero where the claim holds.
        found: The numbers that were compared, such as `73.1 against 72.7`.
    """

    where: str
    margin: float
    found: str


class Verdict(NamedTuple):
    """A claim, what became of it, and one sentence why."""

    claim: str
    outcome: Outcome
    why: str

    def markdown(self) -> str:
        """Renders the verdict as a line."""
        return f"- **{self.outcome}**: {self.claim}. {self.why}"


def judge(claim: str, checks: Sequence[Check], because: str) -> Verdict:
    """Returns the verdict on a claim that was checked in several places.

    Args:
        claim: As the paper makes it, without a full stop.
        checks: Where it was checked.
        because: The reason where it does not hold, a sentence.
    """
    if not checks:
        return Verdict(claim, "not measured", "Runs are missing.")
    held = sum(check.margin >= 0 for check in checks)
    worst = min(checks, key=lambda check: check.margin)
    count = f"It holds in {held} of {len(checks)} cases" if len(checks) > 1 else "Measured"
    label = "the closest is" if held == len(checks) else "the worst is"
    numbers = f"{count}; {label} {worst.found} on {worst.where}" if len(checks) > 1 else f"{count}: {worst.found}"
    if held == len(checks):
        return Verdict(claim, "reproduced", f"{numbers}.")
    outcome: Outcome = "reproduced in part" if 2 * held >= len(checks) else "not reproduced"
    return Verdict(claim, outcome, f"{numbers}: {because}.")


def at_least(where: str, cell: Cell, other: Cell) -> Check:
    """Checks that a score is not below another by more than the standard error of their difference."""
    error = math.sqrt(_error(cell) ** 2 + _error(other) ** 2)
    return Check(where, cell["mean"] - other["mean"] + error, f"{cell['mean']:.2f} against {other['mean']:.2f}")


def above(where: str, cell: Cell, other: Cell) -> Check:
    """Checks that a score is above another by more than the standard error of their difference."""
    error = math.sqrt(_error(cell) ** 2 + _error(other) ** 2)
    margin = cell["mean"] - other["mean"] - error
    # equal scores without an error are not above each other
    margin = margin if margin != 0 else -1e-9
    return Check(where, margin, f"{cell['mean']:.2f} against {other['mean']:.2f}")


def close(where: str, cell: Cell, other: Cell, points: float) -> Check:
    """Checks that two scores differ by no more than some points."""
    difference = abs(cell["mean"] - other["mean"])
    return Check(where, points - difference, f"{cell['mean']:.2f} against {other['mean']:.2f}")


def _error(cell: Cell) -> float:
    """Returns the standard error of a mean over seeds; zero for a published number."""
    return float(cell.get("deviation", 0.0) / math.sqrt(cell.get("seeds", 1)))
