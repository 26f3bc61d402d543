"""Order and virtual time on the card, as one process saw them."""

from typing import Any

import pytest
from card_processes import Card

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def seen(shared_card: Card) -> Any:
    return shared_card.told("streams", JITTER=0, PROCESS_JITTER=0)


def test_a_stream_waits_for_anothers_event(seen: Any) -> None:
    assert seen["order"] == 12
    assert seen["waited ms"] == pytest.approx(10, rel=0.01)  # 15 million cycles at 1500 MHz


def test_streams_run_side_by_side(seen: Any) -> None:
    assert seen["not blocked s"] < 1e-3
    assert [seen["busy"], seen["done"]] == [False, True]


def test_the_default_stream_and_blocking_streams_wait_for_each_other(seen: Any) -> None:
    assert seen["legacy"] == 12345


def test_work_behind_a_held_kernel_starts_when_the_host_releases_it(seen: Any) -> None:
    assert seen["held"] is False
    assert seen["gave up"] == 0
    assert 0 < seen["behind the hold ms"] < 0.01


def test_a_kernel_that_nobody_releases_gives_up_in_virtual_time(seen: Any) -> None:
    assert seen["gave up alone"] == 1
    assert seen["gave up after s"] == pytest.approx(0.25, rel=0.02)


def test_host_functions_and_graphs_run_when_they_should(seen: Any) -> None:
    assert seen["not yet"] == 0
    assert seen["host function"] == ["called"]
    assert seen["graph"] == [0, 7878]


def test_sleeping_takes_just_that_long(seen: Any) -> None:
    assert seen["slept"] == pytest.approx(0.01, rel=1e-4)
