"""Student's t and Fisher's F against published tables (NIST/SEMATECH e-Handbook, §1.3.6.7.2 and 3) and exact cases."""

import math

import pytest

from pytest_bandwidth.domain.statistics import t_quantile, upper_tail

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


@pytest.mark.parametrize("degrees", [1, 3, 7.5, 24, 300])
def test_quantile_inverts_the_tail(degrees):
    for probability in (0.75, 0.99, 0.999):
        assert upper_tail(t_quantile(probability, degrees), degrees) == pytest.approx(1 - probability, rel=1e-9)


@pytest.mark.parametrize(("probability", "degrees"), [(0.5, 3), (1.0, 3), (0.9, 0)])
def test_refuses_what_has_no_answer(probability, degrees):
    with pytest.raises(ValueError, match="expected"):
        t_quantile(probability, degrees)
