"""Absolute limits of a test."""

from dataclasses import replace

import pytest
from entries_of_shares import at

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.judging.floors import Floors, confirm_floor, confirmations_text, look_at_floors
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Status, Verdict
from pytest_bandwidth.reports.message import failure_message


def test_floors_name_the_first_that_is_missed_and_hold_at_equality():
    floors = Floors(min_gbps=90.0, min_relative=0.9)
    assert look_at_floors(at(0.9), floors) is None
    missed = look_at_floors(at(0.89), floors)
    assert missed is not None
    assert missed.code == "floor:min_gbps"
    assert (missed.observed, missed.reference) == (pytest.approx(89), 90)


def test_floor_is_confirmed_by_the_median_of_fresh_processes():
    floors = Floors(min_gbps=90.0)
    first = look_at_floors(at(0.8), floors)
    assert first is not None
    assert confirm_floor(first, [at(0.8), at(0.85), at(1.0)], floors).status is Status.REGRESSED
    assert confirm_floor(first, [at(0.8), at(0.95), at(1.0)], floors).status is Status.UNCONFIRMED
    assert confirm_floor(first, [], floors).status is Status.REGRESSED


@pytest.mark.parametrize(
    ("floors", "confirmations", "text"),
    [
        (Floors(min_relative=0.9), (0.8, 0.7, 0.85), "80.0 %, 70.0 %, 85.0 % of the probe"),
        (Floors(min_gbps=90.0), (80, 70, 85), "80.0, 70.0, 85.0 GB/s"),
        (Floors(min_utilization=0.5), (0.4, 0.35, 0.425), "40.0 %, 35.0 %, 42.5 % of peak"),
    ],
)
def test_the_confirmations_of_a_floor_are_of_its_own_figure(floors, confirmations, text):
    here, *fresh = (replace(at(share), utilization=share / 2) for share in (0.6, 0.8, 0.7, 0.85))
    first = look_at_floors(here, floors)
    assert first is not None
    verdict = confirm_floor(first, fresh, floors)
    assert verdict.status is Status.REGRESSED
    assert verdict.confirmations == pytest.approx(confirmations)
    assert confirmations_text(verdict) == text


def test_a_missed_floor_says_what_was_seen_here_and_what_in_the_fresh_processes():
    floors = Floors(min_relative=0.9)
    first = look_at_floors(at(0.6), floors)
    assert first is not None
    verdict = confirm_floor(first, [at(0.8), at(0.7), at(0.85)], floors)
    assert verdict.reason == (
        "60.0 % of the probe, min_relative asks for 90.0 % of the probe, here; "
        "in the median of 3 fresh processes 80.0 % of the probe, min_relative asks for 90.0 % of the probe"
    )
    assert "Confirmed in 3 fresh processes (80.0 %, 70.0 %, 85.0 % of the probe)." in message(verdict)


LOWER = "If intended: lower the floor in the test's marker."


def test_lowering_a_floor_is_advised_where_it_was_missed_in_the_fresh_processes_too():
    floors = Floors(min_gbps=90.0)
    first = look_at_floors(at(0.8), floors)
    assert first is not None
    assert message(confirm_floor(first, [at(0.8)] * 3, floors)).endswith(LOWER)
    held = confirm_floor(first, [at(1.0)] * 3, floors)
    assert held.status is Status.UNCONFIRMED
    assert message(held).endswith("Run again on a quiet machine.")


@pytest.mark.parametrize("against", [False, True])
def test_a_floor_that_nothing_could_be_held_to_is_not_to_be_lowered(against):
    verdict = Verdict(Status.INVALID, "floor:unseen", "nothing to hold min_relative to: the probe was not timed")
    assert message(verdict, against=against).endswith("Quiet the device and run again.")


def message(verdict, **how):
    measurement = Measurement(None, Traffic(1, 0), DeviceIdentity("cpu", "A host", None, "1"), "clock", Rounds())
    return failure_message("test_copy", measurement, verdict, **how)


def test_a_share_that_some_fresh_processes_lack_confirms_nothing():
    floors = Floors(min_relative=0.9)
    first = look_at_floors(at(0.8), floors)
    assert first is not None
    lacking = replace(at(0.8), relative=None)
    verdict = confirm_floor(first, [at(0.8), lacking, at(0.8)], floors)
    assert verdict.status is Status.UNCONFIRMED
    assert "nothing to hold min_relative to in 1 of 3 fresh processes" in verdict.reason


def test_a_floor_without_its_figure_is_named():
    floors = Floors(min_gbps=90.0, min_relative=0.9)
    assert floors.unseen(at(0.8)) is None
    assert floors.unseen(replace(at(0.8), relative=None)) == "min_relative"
    assert floors.unseen(at(2.0)) is None
    assert floors.unseen(at(2.01)) == "min_relative"
    assert Floors(min_gbps=90.0).unseen(at(2.01)) is None
    assert Floors(min_gbps=90.0).unseen(replace(at(0.8), relative=None)) is None
