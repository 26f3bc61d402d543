"""Absolute limits of a test."""

from __future__ import annotations

from dataclasses import replace

import pytest
from judged_kernels import at

from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.judging.limits import (
    MarkerOptions,
    figure_of,
    first_exceeded,
    first_missed,
    first_unseen,
    floor_of,
)


def test_floors_name_the_first_that_is_missed_and_hold_at_equality():
    floors = {"min_gbps": 90.0, "min_relative": 0.9}
    assert first_missed(floors, at(0.9)) is None
    assert first_missed(floors, at(0.89)) == ("min_gbps", 90.0, pytest.approx(89.0))
    assert first_missed({"min_relative": 0.9}, at(0.89)) == ("min_relative", 0.9, 0.89)


def test_a_figure_that_is_not_there_misses_nothing_and_is_unseen():
    floors = {"min_gbps": 70.0, "min_relative": 0.9}
    lacking = replace(at(0.8), relative=None)
    assert first_missed(floors, lacking) is None
    assert first_unseen(floors, lacking) == "min_relative"
    assert first_unseen(floors, at(0.8)) is None


@pytest.mark.parametrize(("share", "unseen"), [(2.0, None), (2.01, "min_relative")])
def test_a_share_past_belief_is_unseen(share, unseen):
    assert first_unseen({"min_gbps": 90.0, "min_relative": 0.9}, at(share)) == unseen
    assert first_unseen({"min_gbps": 90.0}, at(share)) is None


def test_each_floor_is_of_its_own_figure():
    figures = replace(at(0.8), utilization=0.4)
    assert [figure_of(name, figures) for name in ("min_gbps", "min_relative", "min_utilization")] == [80.0, 0.8, 0.4]
    assert first_missed({"min_utilization": 0.5}, figures) == ("min_utilization", 0.5, 0.4)
    assert first_unseen({"min_utilization": 0.5}, at(0.8)) == "min_utilization"


def test_floors_are_there_where_one_is_asked_for():
    assert MarkerOptions().floors == {}
    assert MarkerOptions(min_gbps=0.0, tolerance=0.1).floors == {"min_gbps": 0.0}


@pytest.mark.parametrize(
    ("marker", "exceeded"),
    [
        (MarkerOptions(max_registers=64, max_spill_bytes=8), None),
        (MarkerOptions(max_registers=63, max_spill_bytes=0), ("max_registers", 63, 64)),
        (MarkerOptions(max_spill_bytes=0), ("max_spill_bytes", 0, 8)),
        (MarkerOptions(min_gbps=1e9), None),
    ],
)
def test_a_limit_of_resources_holds_at_equality(marker, exceeded):
    found = KernelResources(registers=64, local_bytes=8, shared_bytes=0)
    assert first_exceeded(marker.resource_limits, found) == exceeded


@pytest.mark.parametrize(
    ("rule", "floor"), [("floor:min_gbps", "min_gbps"), ("floors", None), ("pairs", None), ("setting:floor:x", None)]
)
def test_a_rule_names_its_floor(rule, floor):
    assert floor_of(rule) == floor
