"""Conditions around the samples, what is told of them, and which busy processes are ours: by id, context or memory."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_bandwidth.devices import host
from pytest_bandwidth.devices.cuda.health import (
    FINGERPRINT_BYTES,
    LOOK_BACK_SECONDS,
    Health,
    Ownership,
    active_others,
    clock_from_stamps,
    clocks_disagree,
    describe,
    ecc_finding,
    find_ownership,
    grown_process,
    memory_clock_low,
    nominal_clock_mhz,
    own_process,
    parents_of_all,
    process_tree,
    shortest_interval_ns,
    slowdown_finding,
    sm_clock_low,
    throttled,
)
from pytest_bandwidth.devices.cuda.management import GpuReading, ProcessUse, decode_event_reasons

BUSY = GpuReading(1755.0, 2619.0, 61.0, 412.0, ("software power cap",), 0)


@dataclass
class Nvml:
    """NVML's side: a reading, who was busy, and since when it was asked."""

    state: GpuReading = BUSY
    uses: tuple[ProcessUse, ...] | None = ()
    since: list[int] = field(default_factory=list)

    def reading(self) -> GpuReading:
        return self.state

    def activity(self, since_us: int) -> tuple[ProcessUse, ...] | None:
        self.since.append(since_us)
        return self.uses

    def process_name(self, pid: int) -> str:
        return f"/usr/bin/program{pid}"


def health(nvml: Any, counted: float | None = None, own: Ownership | None = None) -> Health:
    return Health(nvml, own or Ownership(frozenset({1})), lambda: counted, wall=lambda: 1000.0)


def test_without_nvml_only_the_counted_clock_is_known() -> None:
    found = health(None, counted=1500.0).conditions()
    assert found.sm_clock_mhz == 1500.0
    assert found.memory_clock_mhz is None
    assert found.others == ()


def test_a_reading_becomes_conditions() -> None:
    found = health(Nvml()).conditions()
    assert (found.sm_clock_mhz, found.memory_clock_mhz, found.temperature_c, found.power_w) == (1755, 2619, 61, 412)
    assert found.event_reasons == ("software power cap",)


def test_the_counted_clock_comes_before_the_reported_one() -> None:
    watched = health(Nvml(), counted=1400.0)
    assert watched.conditions().sm_clock_mhz == 1400.0
    assert watched.reading.sm_clock_mhz == 1755.0


def test_busy_others_are_named_and_we_are_not() -> None:
    nvml = Nvml(uses=(ProcessUse(1, 99), ProcessUse(7, 80)))
    assert health(nvml).conditions().others == ("program7 (pid 7, 80 %)",)


def test_only_the_time_since_the_last_look_counts_and_no_more_than_a_second() -> None:
    nvml: Any = Nvml()
    now = [1000.0]
    watched = Health(nvml, Ownership(), lambda: None, wall=lambda: now[0])
    for later in (0.5, 0.25, 60.0):
        now[0] += later
        watched.conditions()
    # From when it was opened; from the last look; no more than a second back.
    assert nvml.since == [1_000_000_000, 1_000_500_000, int((1060.75 - LOOK_BACK_SECONDS) * 1e6)]


def test_what_was_busy_before_a_measurement_is_nobodys_fault() -> None:
    nvml: Any = Nvml()
    now = [1000.0]
    watched = Health(nvml, Ownership(), lambda: None, wall=lambda: now[0])
    now[0] += 0.5  # a fresh process of ours measured, say
    assert watched.begin() is BUSY
    now[0] += 0.25
    watched.conditions()
    assert nvml.since == [1_000_500_000]


def test_new_ecc_errors_are_told() -> None:
    finding = ecc_finding(GpuReading(uncorrected_ecc_errors=1), GpuReading(uncorrected_ecc_errors=3))
    assert finding is not None
    assert "2 uncorrectable" in finding.text
    assert ecc_finding(BUSY, BUSY) is None
    assert ecc_finding(GpuReading(), BUSY) is None


@pytest.mark.parametrize("bit", [0x8, 0x20, 0x40, 0x80])
def test_clocks_held_down_by_heat_or_power_supply_are_told(bit: int) -> None:
    finding = slowdown_finding(decode_event_reasons(bit | 0x4))
    assert finding is not None
    assert finding.code == "slowdown"
    assert f"reports {decode_event_reasons(bit)[0]} around the samples, expected none" in finding.text


def test_each_reason_is_told_once() -> None:
    reasons = decode_event_reasons(0x8 | 0x40)
    finding = slowdown_finding((*reasons, *reasons))
    assert finding is not None
    assert "reports hardware slowdown, hardware thermal slowdown around" in finding.text


@pytest.mark.parametrize("bits", [0x0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x200, 0x400, 0x1000])
def test_what_is_normal_under_load_or_a_setting_is_no_finding(bits: int) -> None:
    assert slowdown_finding(decode_event_reasons(bits)) is None


def stamps(*pairs: tuple[int, int]) -> "np.ndarray[tuple[int, int], np.dtype[np.uint64]]":
    return np.array(pairs, np.uint64)


def test_cycles_per_nanosecond_are_gigahertz() -> None:
    assert clock_from_stamps(stamps((1000, 50)), stamps((101_000, 150_050)), 10_000) == pytest.approx(1500.0)


def test_each_multiprocessor_is_compared_with_itself_and_the_median_counts() -> None:
    before = stamps((1000, 9_000_000), (1000, 5), (1000, 77))
    after = stamps((101_000, 9_140_000), (101_000, 150_005), (101_000, 10_077))  # 1400, 1500 and a stray 100 MHz
    assert clock_from_stamps(before, after, 10_000) == pytest.approx(1400.0)


def test_multiprocessors_that_were_not_stamped_twice_do_not_count() -> None:
    before = stamps((0, 0), (1000, 5), (1000, 5))
    after = stamps((101_000, 1), (0, 0), (101_000, 160_005))
    assert clock_from_stamps(before, after, 10_000) == pytest.approx(1600.0)


def test_an_interval_too_short_for_the_clock_tells_nothing() -> None:
    before, after = stamps((1000, 0)), stamps((10_999, 15_000))
    assert clock_from_stamps(before, after, 10_000) is None
    assert clock_from_stamps(before, stamps((11_000, 15_000)), 10_000) is not None


def test_no_stamps_tell_nothing() -> None:
    assert clock_from_stamps(np.zeros((4, 2), np.uint64), np.zeros((4, 2), np.uint64), 1) is None


def test_a_coarse_clock_needs_a_longer_interval() -> None:
    assert shortest_interval_ns(32) == 10_000
    assert shortest_interval_ns(1024) == 20 * 1024


def test_the_default_application_clock_is_nominal_where_there_is_one() -> None:
    assert nominal_clock_mhz(585, 1590) == 585  # a T4, which cannot hold its maximum
    assert nominal_clock_mhz(None, 2520) == 2520
    assert nominal_clock_mhz(None, None) is None


def test_throttled_below_three_quarters_of_the_samples_before() -> None:
    before = [1000.0, 200.0, 1000.0]
    assert throttled(749.0, before) is not None
    assert throttled(750.0, before) is None
    assert throttled(None, before) is None
    assert throttled(1.0, []) is None


def test_a_clock_that_stays_below_three_quarters_of_nominal_is_told() -> None:
    finding = sm_clock_low(1480.0, 1980.0)
    assert finding is not None
    assert finding.code == "sm-clock-low"
    for said in ("was 1480 MHz", "at least 75 %", "nominal 1980", "slower GPU", "nvidia-smi"):
        assert said in finding.text
    assert sm_clock_low(1485.0, 1980.0) is None
    assert sm_clock_low(None, 1980.0) is None
    assert sm_clock_low(100.0, None) is None


def test_a_counted_clock_well_below_the_reported_one_is_told_where_the_gpu_is_held_back() -> None:
    finding = clocks_disagree(1000.0, 1500.0, slowed=True)
    assert finding is not None
    assert "1000 MHz" in finding.text
    # The one is of the samples, the other of an instant after them: alone they may differ.
    assert clocks_disagree(1000.0, 1500.0, slowed=False) is None
    assert clocks_disagree(1400.0, 1500.0, slowed=True) is None
    assert clocks_disagree(1500.0, 300.0, slowed=True) is None  # the driver has already let it idle
    assert clocks_disagree(None, 1500.0, slowed=True) is None
    assert clocks_disagree(1500.0, None, slowed=True) is None


def test_a_memory_clock_below_nine_tenths_of_its_maximum_is_told() -> None:
    finding = memory_clock_low(899.0, 1000.0)
    assert finding is not None
    assert finding.code == "memory-clock"
    for said in ("was 899 MHz", "at least 90 %", "maximum of 1000", "slower memory", "nvidia-smi"):
        assert said in finding.text
    assert memory_clock_low(900.0, 1000.0) is None
    assert memory_clock_low(1000.0, 1000.0) is None


@pytest.mark.parametrize(("found", "largest"), [(None, 1000.0), (500.0, None), (None, None), (500.0, 0)])
def test_a_memory_clock_of_which_little_is_known_is_no_finding(found: float | None, largest: float | None) -> None:
    assert memory_clock_low(found, largest) is None


MIB = 1 << 20


def test_our_own_id_in_the_list_is_us() -> None:
    assert own_process({7: 1}, {7: 1, 4711: 1}, 4711) == 4711


def test_in_a_container_we_are_the_entry_that_appeared() -> None:
    assert own_process({900: 1}, {900: 1, 31337: 1}, 12) == 31337


def test_two_that_appeared_at_once_tell_nothing() -> None:
    assert own_process({}, {5: 1, 6: 1}, 12) is None


def test_lists_that_nvml_does_not_give_tell_nothing() -> None:
    assert own_process(None, {5: 1}, 12) is None
    assert own_process({}, None, 12) is None


def test_the_process_whose_memory_grew_by_what_we_took_is_us() -> None:
    before = {5: 300 * MIB, 6: 500 * MIB}
    assert grown_process(before, {5: 300 * MIB + FINGERPRINT_BYTES, 6: 501 * MIB}, FINGERPRINT_BYTES) == 5
    assert grown_process(before, {5: 600 * MIB, 6: 900 * MIB}, FINGERPRINT_BYTES) is None
    both = {5: 300 * MIB + FINGERPRINT_BYTES, 6: 500 * MIB + FINGERPRINT_BYTES}
    assert grown_process(before, both, FINGERPRINT_BYTES) is None
    assert grown_process({5: None}, {5: None}, FINGERPRINT_BYTES) is None


def nothing_grew() -> tuple[None, None]:
    return None, None


def test_on_the_host_our_whole_tree_is_ours() -> None:
    pid = os.getpid()
    ownership = find_ownership({}, {pid: 1}, nothing_grew, environ={})
    assert ownership.known
    uses = [ProcessUse(pid, 99), ProcessUse(os.getppid(), 99), ProcessUse(2**22 + 1, 99)]
    assert active_others(uses, ownership) == (uses[2],)


def test_a_child_started_later_is_ours_as_well() -> None:
    ownership = find_ownership({}, {os.getpid(): 1}, nothing_grew, environ={})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert active_others([ProcessUse(child.pid, 99)], ownership) == ()
        child.communicate(b"\n")


def test_a_child_that_has_ended_is_still_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    # NVML names it for up to a second more.
    monkeypatch.setattr(host, "_ours", set())
    ownership = find_ownership({}, {os.getpid(): 1}, nothing_grew, environ={})
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert active_others([ProcessUse(child.pid, 99)], ownership) == (ProcessUse(child.pid, 99),)
    host.remember(child.pid)
    assert active_others([ProcessUse(child.pid, 99)], ownership) == ()


def test_in_a_container_only_our_own_host_id_is() -> None:
    ownership = find_ownership({1: 1}, {1: 1, 31337: 1}, nothing_grew, environ={})
    assert ownership.own == {31337}
    assert "another pid namespace" in ownership.how


def test_a_context_that_was_open_before_is_recognised_by_its_memory() -> None:
    def fingerprint() -> tuple[dict[int, int | None], dict[int, int | None]]:
        return {31337: 300 * MIB, 8: 40 * MIB}, {31337: 300 * MIB + FINGERPRINT_BYTES, 8: 40 * MIB}

    uses: dict[int, int | None] = {31337: 300 * MIB, 8: 40 * MIB}
    assert find_ownership(uses, uses, fingerprint, environ={}).own == {31337}


def test_where_we_cannot_be_found_nobody_is_accused() -> None:
    ownership = find_ownership({1: 1, 2: 1}, {1: 1, 2: 1}, nothing_grew, environ={})
    assert not ownership.known
    assert active_others([ProcessUse(1, 100)], ownership) == ()


def test_others_are_those_that_are_busy_not_those_that_are_there() -> None:
    uses = [ProcessUse(1, 100), ProcessUse(2, 4), ProcessUse(3, 5), ProcessUse(9, 80)]
    assert active_others(uses, Ownership(frozenset({9}))) == (ProcessUse(1, 100), ProcessUse(3, 5))
    assert active_others(None, Ownership()) == ()


PARENTS = {1: 0, 10: 1, 20: 10, 30: 20, 31: 20, 40: 30, 50: 10}


def test_a_tree_is_all_above_and_all_below() -> None:
    assert process_tree(30, PARENTS) == {10, 20, 30, 40}


def test_the_workers_of_one_pytest_are_one_tree() -> None:
    assert process_tree(30, PARENTS, siblings_too=True) == {10, 20, 30, 31, 40}


def test_a_process_without_a_known_parent_is_its_own_tree() -> None:
    assert process_tree(99, PARENTS) == {99}


def test_the_real_proc_knows_our_parent() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("no /proc on this system")
    assert parents_of_all()[os.getpid()] == os.getppid()


def test_program_names_with_brackets_and_spaces_are_parsed(tmp_path: Path) -> None:
    for pid, text in (("7", "7 (a (b) c) S 3 7 7"), ("8", "8 (x) R 7"), ("9", "garbage")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_text(text)
    (tmp_path / "10").mkdir()  # ended meanwhile
    assert parents_of_all(tmp_path) == {7: 3, 8: 7}


def test_a_process_in_words() -> None:
    assert describe(ProcessUse(4711, 80), "/usr/bin/python3.11") == "python3.11 (pid 4711, 80 %)"
    assert describe(ProcessUse(4711, 80), None) == "process (pid 4711, 80 %)"
