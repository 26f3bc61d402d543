"""Numbers with units, as people write them, and what the last digit of one is worth."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_bandwidth.domain import units

READ = {
    units.parse_gbps: {" 1747.1GB/s ": 1747.1, "1.7 TB/s": 1700.0, "1 MiB/s": 2**20 / 1e9, "1e3": 1000.0, "5.": 5.0},
    units.parse_fraction: {"5 %": 0.05, "0.05": 0.05, "0": 0.0, "99.9%": 0.999, ".5": 0.5},
    # A share of a probe may pass 100 %.
    units.parse_share: {"0.857": 0.857, "1000%": 10.0},
    units.parse_bytes: {"64MiB": 2**26, "1.5 kB": 1500, "0 B": 0},
    units.parse_count: {"0268435456": 268435456, str(2**63 - 1): 2**63 - 1},
    units.parse_positive: {" 0.9961 ": 0.9961},
}


@pytest.mark.parametrize(("parse", "text", "value"), [(p, *one) for p, texts in READ.items() for one in texts.items()])
def test_read(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (units.parse_gbps, "0", "positive bandwidth"),
        (units.parse_gbps, "5 gb/s", "found unit 'gb/s', expected one of MB/s, GB/s"),
        (units.parse_gbps, "nan", "expected a number"),
        (units.parse_gbps, "1e308 GB/s", r"found '1e308 GB/s', expected a bandwidth of 1e\+09 GB/s at most"),
        (units.parse_gbps, "1e999", "expected a finite number"),
        (units.parse_gbps, "٥", "expected a number"),
        (units.parse_gbps, "1" * 70, "expected a number"),
        (units.parse_fraction, "200", "expected a fraction below 1 or a percentage such as 5%"),
        (units.parse_fraction, "100%", "at least 0 % and below 100 %"),
        (units.parse_fraction, "-1%", "at least 0 % and below 100 %"),
        (units.parse_fraction, "5 GB/s", "found unit 'GB/s', expected % or none"),
        (units.parse_share, "85.7", "expected a share below 1 or a percentage such as 85.7%"),
        (units.parse_share, "1000.1%", "between 0 % and 1000 %"),
        (units.parse_share, "-0.1", "between 0 % and 1000 %"),
        (units.parse_positive, "0", "expected a positive number without a unit"),
        (units.parse_positive, "0.9 GB/s", "expected a positive number without a unit"),
        (units.parse_count, str(2**63), "expected a whole number"),
        (units.parse_count, "9" * 5000, "expected a whole number"),
        *((units.parse_bytes, one, "found") for one in ("1", "1 mb", "-1 B", "0.5 B", "1e400 B")),
        (units.parse_moment, "2026-11-21T04:00:59", "does not match"),
    ],
)
def test_refused(parse: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse(text)
    assert len(str(caught.value)) < 200


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=80))
def test_any_text_is_a_finite_number_or_a_value_error(text: str) -> None:
    for parse in (parse for parse in READ if parse is not units.parse_bytes):
        try:
            found = parse(text)
        except ValueError:
            continue
        assert math.isfinite(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_bytes(805e6), "805 MB"),
        (units.format_bytes_against(116_100, 116_200), "116,100 B"),
        (units.format_bytes_against(116_100, 117_100), "116 kB"),
        (units.format_bytes_against(116_100, 116_100), "116 kB"),
        (units.format_seconds(2.91e-3), "2.91 ms"),
        (units.format_seconds(58.5e-6), "58.5 µs"),
        (units.format_gbps(277.0), "277 GB/s"),
        (units.format_gbps(41.5), "41.5 GB/s"),
        (units.format_percent(0.62), "62 %"),
        (units.format_percent(0.8568, 1), "85.7 %"),
    ],
)
def test_figures_for_people(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(("before", "after", "drop"), [(100, 95, 0.05), (100, 125, -0.25)])
def test_drop_of_log(before: float, after: float, drop: float) -> None:
    assert units.drop_of_log(math.log(before / after)) == pytest.approx(drop, abs=1e-15)
    assert units.log_of_drop(drop) == pytest.approx(math.log(before / after), abs=1e-15)
    assert units.drop_of_log(1e-20) == units.log_of_drop(1e-20) == 1e-20, "the digits of small drops are kept"
