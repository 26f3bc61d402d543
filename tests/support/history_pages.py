"""Make up trends of a history, and the page that shows them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from pytest_bandwidth.features.history.page import render_history
from pytest_bandwidth.features.history.trend import Point, Trend, with_levels

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def point(number: int, **changes) -> Point:
    known = {
        "run_id": f"r{number}",
        "at": BEGIN + timedelta(hours=6 * number),
        "commit": f"c{number // 2}",
        "uncommitted": False,
        "serial": "GPU-1",
        "status": "OK",
        "judged_on": "relative",
        "gbps": 900.0 - 50 * (number >= 10),
        "relative": 0.9 - 0.05 * (number >= 10),
        "sectors": None,
    }
    return Point(**{**known, **changes})


def trend(count: int = 20, starts=(10,), test="tests/t.py::test_copy", device="Imaginary GPU", **changes) -> Trend:
    points = tuple(point(i, **changes) for i in range(count))
    return with_levels(Trend(test, "cuda", device, points, "relative"), [s for s in starts if s < count])


def page_of(trends: list[Trend]) -> str:
    return render_history(trends, lambda: trends)
