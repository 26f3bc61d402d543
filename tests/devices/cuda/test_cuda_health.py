"""Conditions around the samples, and what is told of them."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_bandwidth.devices.cuda.health import LOOK_BACK_SECONDS, Health, Ownership, ecc_finding, slowdown_finding
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
