"""Kernels of a few microseconds: what stands in their samples beside their work, and what is judged without it."""

from typing import Any

import pytest
from card_processes import Card

# Each kernel starts and drains in 3 µs, and an event is noted half a microsecond later.
LAUNCH_NS, EVENT_NS = 3000, 500
FLOOR = (LAUNCH_NS + EVENT_NS) * 1e-9


@pytest.fixture(scope="module")
def floors(shared_card: Card) -> Any:
    return shared_card.told("floors", LAUNCH_NS=LAUNCH_NS, EVENT_STEP_NS=32)


def test_an_empty_launch_shows_the_floor(floors: Any) -> None:
    assert floors["first"]["floor_seconds"] == pytest.approx(FLOOR, rel=0.01)
    assert floors["first"]["seconds"] > 2 * FLOOR


def test_launches_in_a_graph_share_the_event(floors: Any) -> None:
    launches = floors["graph"]["graph_launches"]
    assert launches > 1
    assert floors["graph"]["floor_seconds"] == pytest.approx((LAUNCH_NS + EVENT_NS / launches) * 1e-9, rel=0.01)


def test_it_is_found_once_in_a_process_and_is_cheap(floors: Any) -> None:
    """By the card's time, calibration included."""
    assert floors["again"]["floor_seconds"] == floors["first"]["floor_seconds"]
    assert 0 < floors["first"]["took"] - floors["again"]["took"] < 0.05


def test_the_step_of_event_times_is_measured(floors: Any) -> None:
    assert floors["first"]["event_step_seconds"] == pytest.approx(32e-9, abs=1e-9)
