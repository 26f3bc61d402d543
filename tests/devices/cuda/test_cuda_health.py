"""Conditions around the samples, findings about them, and which busy processes are the run's own: by id or context."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_model import Nvml

from pytest_bandwidth.devices import host
from pytest_bandwidth.devices.cuda.health import (
    LOOK_BACK_SECONDS,
    Health,
    Ownership,
    active_others,
    clock_from_stamps,
    find_ownership,
    parents_of_all,
    process_tree,
    shortest_interval_ns,
    throttled,
)
from pytest_bandwidth.devices.cuda.management import GpuReading, decode_event_reasons
from pytest_bandwidth.domain.device import Conditions

BUSY = GpuReading(Conditions(1755.0, 2619.0, 61.0, 412.0, ("software power cap",)), 0)


def health(nvml: Any, counted: float | None = None, own: Ownership | None = None) -> Health:
    return Health(nvml, own or Ownership(frozenset({1})), lambda: counted, wall=lambda: 1000.0)


def test_busy_others_are_named_and_we_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(uses={1: 99, 7: 80})
    assert health(nvml).conditions().others == ("program7 (pid 7, 80 %)",)
    monkeypatch.setattr(nvml, "process_name", lambda _: None)
    assert health(nvml).conditions().others == ("process (pid 7, 80 %)",)


def test_only_the_time_since_the_last_look_or_a_measurements_begin_counts_and_no_more_than_a_second() -> None:
    nvml: Any = Nvml(BUSY)
    now = [1000.0]
    watched = Health(nvml, Ownership(), lambda: None, wall=lambda: now[0])
    for later in (0.5, 0.25, 60.0):
        now[0] += later
        watched.conditions()
    now[0] += 0.5  # a new process of ours measured, say
    assert watched.begin() is BUSY
    now[0] += 0.25
    watched.conditions()
    # From when it was opened; from the last look; no more than a second back; from the measurement's begin.
    assert nvml.since == [1_000_000_000, 1_000_500_000, int((1060.75 - LOOK_BACK_SECONDS) * 1e6), 1_061_250_000]


@pytest.mark.parametrize(
    ("bits", "told"),
    [
        *((0x4 | bit, decode_event_reasons(bit)[0]) for bit in (0x8, 0x20, 0x40, 0x80)),
        (0x8 | 0x40, "hardware slowdown, hardware thermal slowdown"),
        # What is normal under load, or a setting, is no finding.
        *((bits, None) for bits in (0x0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x200, 0x400, 0x1000)),
    ],
)
def test_clocks_held_down_by_heat_or_power_supply_are_told_once(bits: int, told: str | None) -> None:
    found = list(health(None).findings(GpuReading(), decode_event_reasons(bits) * 2, None, None))
    assert len(found) == (told is not None)
    assert told is None or f"reports {told} around the samples, expected no throttling" in found[0].text


@pytest.mark.parametrize(
    ("counted", "nominal", "read", "largest", "slowed", "told"),
    [
        (1480.0, 1980.0, (), None, (), {"sm-clock-low": "was 1480 MHz over the samples, expected at least 75 %"}),
        *((counted, nominal, (), None, (), {}) for counted, nominal in ((1485, 1980), (None, 1980), (100, None))),
        (1000.0, None, (1500.0,), None, ("idle", "hardware slowdown"), {"sm-clock": "1000 MHz", "slowdown": ""}),
        # The one is of the samples, the other of an instant after them: alone they may differ.
        (1000.0, None, (1500.0,), None, (), {}),
        *(  # idle already in the first
            (counted, None, (reported,), None, ("hardware slowdown",), {"slowdown": ""})
            for counted, reported in ((1500, 300), (1400, 1500), (None, 1500), (1500, None))
        ),
        (
            None,
            None,
            (None, 899.0),
            1000.0,
            (),
            {"memory-clock": "was 899 MHz after the samples"},
        ),
        *((None, None, (None, found), 1000, (), {}) for found in (900, None)),
        *((None, None, (None, 500), largest, (), {}) for largest in (None, 0)),
    ],
)
def test_what_is_told_of_clocks(
    counted: Any, nominal: Any, read: Any, largest: Any, slowed: tuple[str, ...], told: dict[str, str]
) -> None:
    watched = health(None, counted)
    watched.reading = GpuReading(Conditions(*read))
    found = {finding.code: finding.text for finding in watched.findings(GpuReading(), slowed, nominal, largest)}
    assert found.keys() == told.keys()
    assert all(words in found[code] for code, words in told.items())


@pytest.mark.parametrize(("before", "after", "new"), [(1, 3, 2), (0, 0, 0), (None, 0, 0), (0, None, 0)])
def test_new_memory_errors_are_told(before: int | None, after: int | None, new: int) -> None:
    watched = health(None)
    watched.reading = GpuReading(uncorrected_ecc_errors=after)
    found = [one.text for one in watched.findings(GpuReading(uncorrected_ecc_errors=before), (), None, None)]
    assert [text.partition(" ECC")[0] for text in found] == [f"the GPU's memory had {new} uncorrectable"] * (new > 0)


@pytest.mark.parametrize(
    ("clock", "before", "drops"),
    [(749, [1000, 200, 1000], True), (750, [1000, 200, 1000], False), (None, [1000], False), (1, [], False)],
)
def test_a_clock_that_fell_drops_the_sample(clock: float | None, before: list[float], drops: bool) -> None:
    assert (throttled(clock, before) is not None) is drops


@pytest.mark.parametrize(
    ("before", "after", "mhz"),
    [
        ([(1000, 50)], [(101_000, 150_050)], 1500.0),  # cycles per nanosecond
        (  # each multiprocessor is compared with itself: 1400, 1500 and a stray 100 MHz
            [(1000, 9_000_000), (1000, 5), (1000, 77)],
            [(101_000, 9_140_000), (101_000, 150_005), (101_000, 10_077)],
            1400.0,
        ),
        # Those that were not stamped twice do not count.
        ([(0, 0), (1000, 5), (1000, 5)], [(101_000, 1), (0, 0), (101_000, 160_005)], 1600.0),
        ([(1000, 0)], [(10_999, 15_000)], None),
        ([(1000, 0)], [(11_000, 15_000)], 1500.0),
        ([(0, 0)] * 4, [(0, 0)] * 4, None),
    ],
)
def test_the_clock_is_the_median_over_intervals_that_are_long_enough(
    before: Any, after: Any, mhz: float | None
) -> None:
    found = clock_from_stamps(np.array(before, np.uint64), np.array(after, np.uint64), 10_000)
    assert found == (mhz if mhz is None else pytest.approx(mhz))


def test_a_coarse_clock_needs_a_longer_interval() -> None:
    assert (shortest_interval_ns(32), shortest_interval_ns(1024)) == (10_000, 20 * 1024)


# This process, whose id is another in each run.
HERE = 0


def test_on_the_host_our_whole_tree_is_ours() -> None:
    pid = os.getpid()
    ownership = find_ownership({}, {pid: 1}, environ={})
    assert ownership.known
    uses = {pid: 99, os.getppid(): 99, 2**22 + 1: 99}
    assert active_others(uses, ownership) == {2**22 + 1: 99}


def test_a_child_is_ours_even_once_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    # NVML names it for up to a second more.
    monkeypatch.setattr(host, "_ours", set())
    ownership = find_ownership({}, {os.getpid(): 1}, environ={})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert active_others({child.pid: 99}, ownership) == {}
        child.communicate(b"\n")
    assert active_others({child.pid: 99}, ownership) == {child.pid: 99}
    host.remember(child.pid)
    assert active_others({child.pid: 99}, ownership) == {}


@pytest.mark.parametrize(
    ("before", "after", "own"),
    [
        ({7: 1}, {7: 1, HERE: 1}, HERE),
        (None, {HERE: 1, 5: 1}, HERE),
        ({900: 1}, {900: 1, 2**22 + 1: 1}, 2**22 + 1),  # in a container the entry that appeared
        *((before, {5: 1, 6: 1}, None) for before in ({}, {5: 1, 6: 1})),  # two at once tell nothing
        (None, {5: 1}, None),
        ({}, None, None),
    ],
)
def test_we_are_the_entry_that_appeared_else_nobody_is_accused(before: Any, after: Any, own: int | None) -> None:
    if after is not None and HERE in after:
        after, own = {**after, os.getpid(): after.pop(HERE)}, os.getpid()
    ownership = find_ownership(before, after, environ={})
    assert (ownership.known, ownership.own) == (own is not None, frozenset({own} - {None}))
    assert bool(active_others({4: 100}, ownership)) is ownership.known


def test_others_are_those_that_are_busy_not_those_that_are_there() -> None:
    uses = {1: 100, 2: 4, 3: 5, 9: 80}
    assert active_others(uses, Ownership(frozenset({9}))) == {1: 100, 3: 5}
    assert active_others(None, Ownership()) == {}


PARENTS = {1: 0, 10: 1, 20: 10, 30: 20, 31: 20, 40: 30, 50: 10}


def test_a_tree_is_all_above_and_all_below_and_the_workers_of_one_pytest_are_one() -> None:
    assert process_tree(30, PARENTS) == {10, 20, 30, 40}
    assert process_tree(30, PARENTS, siblings_too=True) == {10, 20, 30, 31, 40}
    assert process_tree(99, PARENTS) == {99}


def test_program_names_with_brackets_and_spaces_are_parsed(tmp_path: Path) -> None:
    for pid, text in (("7", "7 (a (b) c) S 3 7 7"), ("8", "8 (x) R 7"), ("9", "garbage")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_text(text)
    (tmp_path / "10").mkdir()  # ended meanwhile
    assert parents_of_all(tmp_path) == {7: 3, 8: 7}
