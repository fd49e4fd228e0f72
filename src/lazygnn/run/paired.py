"""Compares two series of scores seed by seed: the mean difference, its interval, and how likely it is by chance."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

# share of comparisons of equal methods that are allowed to find a difference
LEVEL = 0.05
_TERMS = 500
_TINY = 1e-300


@dataclass(frozen=True)
class Difference:
    """The difference of two series of scores over their common seeds.

    Attributes:
        seeds: The common seeds.
        mean: Mean of the differences; `None` without a common seed.
        low: Lower end of the interval of 95 %; `None` where it is not defined.
        high: Upper end of that interval.
        p: Probability of a mean at least as far from zero, if the two were equal; `None` for less than two seeds.
    """

    seeds: tuple[int, ...]
    mean: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None


def paired_difference(scores: Mapping[int, float], reference: Mapping[int, float]) -> Difference:
    """Returns the mean difference by Student's t for paired samples; both arguments hold a score by seed.

    Differences that are all the same have no interval. Their probability is that of equal signs by chance.
    """
    seeds = tuple(sorted(scores.keys() & reference.keys()))
    found = [scores[seed] - reference[seed] for seed in seeds]
    if not found:
        return Difference(seeds, None)
    mean = statistics.fmean(found)
    if len(found) < 2:
        return Difference(seeds, mean)
    error = statistics.stdev(found) / math.sqrt(len(found))
    # a spread that is only rounding counts as none
    if error <= 1e-12 * max(abs(value) for value in found):
        p = 1.0 if mean == 0 else min(1.0, 2 / 2 ** len(found))
        return Difference(seeds, mean, mean if mean == 0 else None, mean if mean == 0 else None, p)
    freedom = len(found) - 1
    half = error * t_quantile(LEVEL, freedom)
    return Difference(seeds, mean, mean - half, mean + half, two_sided_p(mean / error, freedom))


def adjusted(probabilities: Sequence[float]) -> list[float]:
    """Returns probabilities that account for their number, by the method of Holm."""
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    out, largest = [0.0] * len(probabilities), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * probabilities[index]))
        out[index] = largest
    return out


def two_sided_p(t: float, freedom: int) -> float:
    """Returns the probability of a value of Student's t distribution at least as far from zero as `t`."""
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


@cache
def t_quantile(p: float, freedom: int) -> float:
    """Returns the positive `t` with `two_sided_p(t, freedom) == p`, by bisection."""
    low, high = 0.0, 1.0
    while two_sided_p(high, freedom) > p:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, freedom) > p else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Returns the regularized incomplete beta function by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # the fraction converges quickly on this side alone
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    numerator, denominator = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    fraction = denominator
    for m in range(1, _TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            denominator = 1 / (1 + term * denominator or _TINY)
            numerator = 1 + term / numerator or _TINY
            fraction *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-15:
            break
    return front * fraction / a
