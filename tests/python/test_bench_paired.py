"""bench/runner/paired.py: the ratio of two contenders in turns, its interval, its verdict."""

from __future__ import annotations

import math
import random

import pytest

from bench.runner import paired


def noisy(count: int, true_ratio: float, noise: float, seed: int) -> list[tuple[float, float]]:
    dice = random.Random(seed)
    return [
        (dice.lognormvariate(0, noise), true_ratio * dice.lognormvariate(0, noise))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("degrees", "confidence", "wanted"),
    [(3, 0.95, 3.182), (5, 0.95, 2.571), (10, 0.95, 2.228), (30, 0.99, 2.750), (1000, 0.95, 1.962)],
)
def test_the_quantile_of_t_is_that_of_the_tables(
    degrees: int, confidence: float, wanted: float
) -> None:
    assert paired.t_quantile(degrees, confidence) == pytest.approx(wanted, rel=0.008)


def test_an_interval_of_known_pairs_is_the_one_computed_by_hand() -> None:
    # Log ratios -x, 0, 0, x: mean 0, deviation x * sqrt(2 / 3), four pairs, t(3) = 3.1588 here.
    x = math.log(1.1)
    pairs = [(1.1, 1.0), (2.0, 2.0), (3.0, 3.0), (1.0, 1.1)]
    ratio, low, high = paired.ratio_interval(pairs)
    half = paired.t_quantile(3) * x * math.sqrt(2 / 3) / 2
    assert ratio == pytest.approx(1)
    assert (low, high) == (pytest.approx(math.exp(-half)), pytest.approx(math.exp(half)))
    assert paired.half_width(low, high) == pytest.approx(math.exp(half) - 1)


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    held = 0
    for seed in range(400):
        _, low, high = paired.ratio_interval(noisy(12, 1.05, 0.1, seed))
        held += low <= 1.05 <= high
    # 380 are wanted; 4 standard deviations of a binomial to either side.
    assert 362 <= held <= 397


def test_a_high_cost_in_few_slices_is_in_the_ratio() -> None:
    pairs = [(1.0, 1.5 if at % 10 == 0 else 1.0) for at in range(200)]
    ratio, low, _ = paired.ratio_interval(pairs)
    assert ratio == pytest.approx(1.5**0.1) and low > 1.02


def test_a_block_that_drifts_evenly_favours_nobody() -> None:
    for block in (0, 1):
        assert paired.pair_of(block, [1.0, 2.0, 3.0, 4.0]) == (2.5, 2.5)
    assert paired.pair_of(0, [1.0, 5.0, 5.0, 1.0]) == (1.0, 5.0)
    assert paired.pair_of(1, [5.0, 1.0, 1.0, 5.0]) == (1.0, 5.0)
    with pytest.raises(ValueError, match="block 0 has 3 samples; wanted 4"):
        paired.pair_of(0, [1.0, 2.0, 3.0])


def test_an_interval_that_holds_one_is_noise_and_a_limit_widens_it() -> None:
    assert paired.verdict(0.99, 1.01) == "within noise"
    assert paired.verdict(1.001, 1.01) == "slower"
    assert paired.verdict(0.98, 0.999) == "faster"
    assert paired.verdict(1.001, 1.05, limit=0.02) == "within noise"
    assert paired.verdict(1.021, 1.05, limit=0.02) == "slower"
    assert paired.verdict(0.90, 0.98, limit=0.02) == "faster"
    assert paired.verdict(0.90, 0.981, limit=0.02) == "within noise"


def test_pairs_that_say_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="3 pairs; wanted at least 4"):
        paired.ratio_interval([(1.0, 1.0)] * 3)
    with pytest.raises(ValueError, match=r"pair 2 is \(0.0, 1.0\)"):
        paired.ratio_interval([(1.0, 1.0), (1.0, 1.0), (0.0, 1.0), (1.0, 1.0)])
