"""Say whether two measurements can be compared at all: the same bytes, timing method and device settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.device import COMPILER_SETTING
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.verdict import Rule


@dataclass(frozen=True, slots=True)
class MeasurementSetup:
    """Hold what makes figures comparable at all: byte counts, timing method, and the device's settings."""

    bytes_read: int
    bytes_written: int
    method: str
    settings: Mapping[str, str]

    def by_any_compiler(self) -> MeasurementSetup:
        """Return the setup of what executes the same PTX, whichever compiler it is from."""
        return replace(self, settings={k: v for k, v in self.settings.items() if k != COMPILER_SETTING})


@dataclass(frozen=True, slots=True)
class Difference:
    """Hold what two setups differ in. rule: of the MISMATCH; name: of the field or setting; here, there: its values."""

    rule: str
    name: str
    here: str | int
    there: str | int


def setup_of(measurement: Measurement) -> MeasurementSetup:
    """Return how a measurement was taken."""
    traffic = measurement.traffic
    return MeasurementSetup(traffic.bytes_read, traffic.bytes_written, measurement.method, measurement.device.settings)


def difference_of(setup: MeasurementSetup, entry: Entry) -> Difference | None:
    """Return the first thing that forbids a comparison with the entry; None where the two can be compared."""
    for name, now, then in (
        ("bytes_read", setup.bytes_read, entry.bytes_read),
        ("bytes_written", setup.bytes_written, entry.bytes_written),
    ):
        if then is not None and then != now:
            return Difference(Rule.BYTES, name, now, then)
    if entry.method is not None and entry.method != setup.method:
        return Difference(Rule.METHOD, "method", setup.method, entry.method)
    for setting, before in entry.settings.items():
        here = setup.settings.get(setting)
        if here is not None and here != before:
            return Difference(f"setting:{setting}", setting, here, before)
    return None
