"""Student's t against published tables (NIST/SEMATECH e-Handbook, §1.3.6.7.2) and exact cases; summaries of samples."""

import math
import random
from statistics import median, stdev

import pytest

from pytest_bandwidth.domain.statistics import noise, precision_of_median, quantile, t_quantile

TABLE = [
    (0.99, 1, 31.821),
    (0.999, 9, 4.297),
    (0.999, 24, 3.467),
    (0.975, 100, 1.984),
]


@pytest.mark.parametrize(("probability", "degrees", "expected"), TABLE)
def test_agrees_with_published_tables(probability, degrees, expected):
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize("probability", [0.6, 0.9, 0.99, 0.9999])
def test_one_degree_of_freedom_is_cauchys_distribution_and_two_have_a_closed_form(probability):
    a = 2 * probability - 1
    assert t_quantile(probability, 1) == pytest.approx(math.tan(math.pi * (probability - 0.5)), rel=1e-9)
    assert t_quantile(probability, 2) == pytest.approx(a * math.sqrt(2 / (1 - a * a)), rel=1e-9)


@pytest.mark.parametrize(("probability", "degrees"), [(0.5, 3), (1.0, 3), (0.9, 0)])
def test_refuses_what_has_no_answer(probability, degrees):
    with pytest.raises(ValueError, match="expected"):
        t_quantile(probability, degrees)


def test_quantile_interpolates_between_order_statistics():
    assert quantile([4, 1, 3, 2], 0.25) == pytest.approx(1.75)
    with pytest.raises(ValueError, match="at least one"):
        quantile([], 0.5)


def test_noise_is_iqr_over_median_and_precision_predicts_the_medians_scatter():
    assert noise([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2.0 / 3.0)
    assert precision_of_median([1.0, 1.1, 1.2]) == math.inf
    draw = random.Random(20)
    medians = [median(draw.gauss(1.0, 0.02) for _ in range(61)) for _ in range(400)]
    claimed = median(precision_of_median([draw.gauss(1.0, 0.02) for _ in range(61)]) for _ in range(100))
    assert claimed == pytest.approx(stdev(medians), rel=0.2)
