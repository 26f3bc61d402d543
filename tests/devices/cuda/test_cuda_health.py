"""Conditions around the samples, and what is told of them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from pytest_bandwidth.devices.cuda.health import (
    LOOK_BACK_SECONDS,
    Health,
    Ownership,
    clock_from_stamps,
    clocks_disagree,
    ecc_finding,
    memory_clock_low,
    nominal_clock_mhz,
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
