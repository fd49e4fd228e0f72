import numpy as np
import pytest
from scipy import stats

from lazygnn.run.paired import LEVEL, Difference, adjusted, paired_difference, t_quantile, two_sided_p


@pytest.mark.parametrize("freedom", [1, 2, 4, 9, 99])
def test_student_t_is_that_of_scipy(freedom: int) -> None:
    for t in (0.0, 0.01, 0.5, 2.0, 12.7, 1e6):
        assert two_sided_p(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-9, abs=1e-15)
        assert two_sided_p(-t, freedom) == two_sided_p(t, freedom)
    assert t_quantile(LEVEL, freedom) == pytest.approx(stats.t.isf(LEVEL / 2, freedom), rel=1e-9)


def test_the_difference_is_that_of_a_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    one, other = dict(enumerate(rng.normal(0.1, 1, 7))), dict(enumerate(rng.normal(0, 1, 9)))
    found = paired_difference(one, other)
    expected = stats.ttest_rel([one[seed] for seed in range(7)], [other[seed] for seed in range(7)])
    interval = expected.confidence_interval()
    assert found.seeds == tuple(range(7))
    assert found.p == pytest.approx(expected.pvalue)
    assert found.low == pytest.approx(interval.low)
    assert found.high == pytest.approx(interval.high)


def test_equal_methods_differ_as_rarely_as_the_level_says() -> None:
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(2, 2000, 3))
    found = [paired_difference(dict(enumerate(a)), dict(enumerate(b))).p for a, b in zip(*draws, strict=True)]
    # three standard errors around the level
    assert 0.035 < np.mean([p is not None and p < LEVEL for p in found]) < 0.065


def test_few_or_no_common_seeds_have_no_interval() -> None:
    assert paired_difference({0: 0.5}, {1: 0.5}) == Difference((), None)
    assert paired_difference({0: 0.75, 1: 0.1}, {0: 0.5}) == Difference((0,), 0.25)


def test_differences_that_are_all_the_same_are_judged_by_their_signs() -> None:
    scores = {seed: 0.1 * seed for seed in range(8)}
    shifted = {seed: score + 0.25 for seed, score in scores.items()}
    found = paired_difference(shifted, scores)
    assert found.mean == pytest.approx(0.25)
    assert (found.low, found.p) == (None, 2 / 2**8)
    # two seeds alone prove nothing
    assert paired_difference({0: 0.3, 1: 0.4}, {0: 0.1, 1: 0.2}).p == 0.5
    assert paired_difference(scores, scores) == Difference(tuple(range(8)), 0.0, 0.0, 0.0, 1.0)


def test_several_comparisons_are_adjusted_by_the_method_of_holm() -> None:
    assert adjusted([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert adjusted([0.6, 0.9]) == [1.0, 1.0]
    assert adjusted([0.02]) == [0.02]
