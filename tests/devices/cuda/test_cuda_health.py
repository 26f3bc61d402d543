"""Conditions around the samples, what is told of them, and which busy processes are ours: by id, context or memory."""

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
    FINGERPRINT_BYTES,
    LOOK_BACK_SECONDS,
    Health,
    Ownership,
    active_others,
    clock_from_stamps,
    clocks_disagree,
    ecc_finding,
    find_ownership,
    memory_clock_low,
    own_process,
    parents_of_all,
    process_tree,
    shortest_interval_ns,
    slowdown_finding,
    sm_clock_low,
    throttled,
)
from pytest_bandwidth.devices.cuda.management import GpuReading, decode_event_reasons
from pytest_bandwidth.domain.device import Conditions
from pytest_bandwidth.domain.measured.measurement import Finding

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
    now[0] += 0.5  # a fresh process of ours measured, say
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
    finding = slowdown_finding(decode_event_reasons(bits) * 2)
    assert (finding is None) is (told is None)
    assert finding is None or f"reports {told} around the samples, expected none" in finding.text


def ecc(before: int | None, after: int | None) -> Finding | None:
    return ecc_finding(*(GpuReading(uncorrected_ecc_errors=errors) for errors in (before, after)))


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (ecc(1, 3), "ecc", ("2 uncorrectable",)),
        *((ecc(*errors), None, ()) for errors in ((0, 0), (None, 0), (0, None))),
        *(
            (throttled(clock, [1000.0, 200.0, 1000.0]), code, ())
            for clock, code in ((749.0, "throttled"), (750.0, None))
        ),
        *((throttled(clock, before), None, ()) for clock, before in ((None, [1000.0]), (1.0, []))),
        (
            sm_clock_low(1480.0, 1980.0),
            "sm-clock-low",
            ("was 1480 MHz", "at least 75 %", "nominal 1980", "slower GPU", "nvidia-smi"),
        ),
        *((sm_clock_low(*clocks), None, ()) for clocks in ((1485.0, 1980.0), (None, 1980.0), (100.0, None))),
        (clocks_disagree(1000.0, 1500.0, slowed=True), "sm-clock", ("1000 MHz",)),
        # The one is of the samples, the other of an instant after them: alone they may differ.
        (clocks_disagree(1000.0, 1500.0, slowed=False), None, ()),
        (clocks_disagree(1500.0, 300.0, slowed=True), None, ()),  # the driver has already let it idle
        *(
            (clocks_disagree(*clocks, slowed=True), None, ())
            for clocks in ((1400.0, 1500.0), (None, 1500.0), (1500.0, None))
        ),
        (
            memory_clock_low(899.0, 1000.0),
            "memory-clock",
            ("was 899 MHz", "at least 90 %", "maximum of 1000", "slower memory", "nvidia-smi"),
        ),
        *((memory_clock_low(found, 1000.0), None, ()) for found in (900.0, None)),
        *((memory_clock_low(500.0, largest), None, ()) for largest in (None, 0)),
    ],
)
def test_what_is_told_of_errors_and_clocks(found: Finding | None, code: str | None, words: tuple[str, ...]) -> None:
    assert (found.code if found else None) == code
    assert all(said in (found.text if found else "") for said in words)


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


MIB = 1 << 20


@pytest.mark.parametrize(
    ("before", "after", "pid", "own"),
    [
        ({7: 1}, {7: 1, 4711: 1}, 4711, 4711),
        ({900: 1}, {900: 1, 31337: 1}, 12, 31337),  # in a container the entry that appeared
        ({}, {5: 1, 6: 1}, 12, None),  # two at once tell nothing
        (None, {5: 1}, 12, None),
        ({}, None, 12, None),
    ],
)
def test_we_are_the_entry_that_appeared(before: Any, after: Any, pid: int, own: int | None) -> None:
    assert own_process(before, after, pid) == own


def nothing_grew() -> tuple[None, None]:
    return None, None


def test_on_the_host_our_whole_tree_is_ours() -> None:
    pid = os.getpid()
    ownership = find_ownership({}, {pid: 1}, nothing_grew, environ={})
    assert ownership.known
    uses = {pid: 99, os.getppid(): 99, 2**22 + 1: 99}
    assert active_others(uses, ownership) == {2**22 + 1: 99}


def test_a_child_is_ours_even_once_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    # NVML names it for up to a second more.
    monkeypatch.setattr(host, "_ours", set())
    ownership = find_ownership({}, {os.getpid(): 1}, nothing_grew, environ={})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert active_others({child.pid: 99}, ownership) == {}
        child.communicate(b"\n")
    assert active_others({child.pid: 99}, ownership) == {child.pid: 99}
    host.remember(child.pid)
    assert active_others({child.pid: 99}, ownership) == {}


def test_a_context_that_was_open_before_is_recognised_by_its_memory() -> None:
    def fingerprint() -> tuple[dict[int, int | None], dict[int, int | None]]:
        return {31337: 300 * MIB, 8: 40 * MIB}, {31337: 300 * MIB + FINGERPRINT_BYTES, 8: 40 * MIB}

    uses: dict[int, int | None] = {31337: 300 * MIB, 8: 40 * MIB}
    assert find_ownership(uses, uses, fingerprint, environ={}).own == {31337}


def test_where_we_cannot_be_found_nobody_is_accused() -> None:
    ownership = find_ownership({1: 1, 2: 1}, {1: 1, 2: 1}, nothing_grew, environ={})
    assert not ownership.known
    assert active_others({1: 100}, ownership) == {}


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
