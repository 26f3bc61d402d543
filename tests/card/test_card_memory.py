"""The card's memory, as one process with two cards saw it."""

import signal
from typing import Any

import pytest
from card_processes import Card

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def seen(shared_card: Card) -> Any:
    return shared_card.told("memory", DEVICES=2)


def test_copies_arrive_and_fills_end_where_they_should(seen: Any) -> None:
    assert seen["there and back"] is True
    assert seen["filled"] == [-1, 100]
    assert seen["pinned"] == [-1, 100]
    assert seen["by rows"] is True


def test_managed_and_stream_ordered_memory(seen: Any) -> None:
    assert seen["managed type"] == 3
    assert seen["from the pool"] == 1 << 20


def test_memory_is_accounted_for_and_ends(seen: Any) -> None:
    assert seen["taken"] == 1 << 30
    assert seen["given back"] is True
    assert seen["too much"] == "out of memory"


def test_copies_out_of_range_are_refused(seen: Any) -> None:
    assert seen["out of range"].startswith("cudaErrorInvalidValue")
    assert seen["still works"] == 100


def test_a_second_card_and_a_copy_to_it(seen: Any) -> None:
    assert seen["cards"] == 2
    assert seen["peers"] == 1
    assert seen["on the other card"] == [100, 1]


def test_host_code_that_touches_device_memory_crashes(card: Card) -> None:
    touch = "import ctypes, cupy; ctypes.c_int.from_address(cupy.zeros(1).data.ptr).value"
    assert card.run(["-c", touch], {}).returncode == -signal.SIGSEGV


def test_a_kernel_that_writes_nowhere_loses_the_context(card: Card) -> None:
    assert card.told("lost") == ["cudaErrorIllegalAddress"] * 4
