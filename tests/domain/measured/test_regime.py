"""What twice the work in the same rounds makes of a measurement."""

import pytest

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import Finding, Measurement
from pytest_bandwidth.domain.measured.regime import GROWTH_FOUND, OVERHEAD_FOUND, with_doubled_batch, with_regime
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic


def measured(*interleaved: tuple[float, ...]) -> Measurement:
    rounds = Rounds(kernel_seconds=(9e-6, 10e-6, 12e-6), interleaved=interleaved)
    return Measurement(
        None, Traffic(1000, 0), DeviceIdentity("cuda", "gpu", None, "0", timed_on="gpu"), "events", rounds
    )


@pytest.mark.parametrize(
    ("doubled", "code", "growth"),
    [
        (11e-6, OVERHEAD_FOUND, "10 % longer: 10 µs, then 11 µs"),
        (11.1e-6, GROWTH_FOUND, "11 % longer: 10 µs, then 11.1 µs"),
        (20e-6, GROWTH_FOUND, "100 % longer: 10 µs, then 20 µs"),
    ],
)
def test_the_medians_are_told_and_decide(doubled, code, growth):
    found = with_doubled_batch(measured((doubled / 2, doubled, doubled * 3)))
    assert found.findings == (Finding(code, f"twice the batch takes {growth}"),)
    assert found.rounds.interleaved == ()
    assert (with_regime(found).regime == "overhead-bound") is (code == OVERHEAD_FOUND)


@pytest.mark.parametrize("beside", [(), ((),)])
def test_without_a_doubled_batch_nothing_changes(beside):
    assert with_doubled_batch(measured(*beside)) == measured(*beside)
