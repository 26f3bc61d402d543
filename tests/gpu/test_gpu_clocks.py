"""The counted SM clock: what it needs, what it is compared with, and what it is not diluted by."""

import time
from statistics import median

import pytest
from gpu_work import BUDGET, copy_task, large, measured, spinner

from pytest_bandwidth.devices.cuda.device import CudaDevice

pytestmark = pytest.mark.usefixtures("nvidia")


def counted_mhz(device: CudaDevice, hold_seconds: float) -> float:
    """Return the clock counted in samples behind a blocking kernel that spins for so long before."""
    work = spinner(device, 200_000)

    def held() -> None:
        work()
        time.sleep(hold_seconds)

    device._timer.begin(cold=False)
    with device._current():
        for _ in range(20):
            device._timer.time(held, None)
    return median(device._timer.clocks_mhz)


def test_warm_up_takes_time_and_the_clock_is_counted(device: CudaDevice) -> None:
    found = measured(device, copy_task(device, large(device)))
    assert found.rounds.warmup_runs > 3
    assert found.rounds.warmup_seconds >= 0.05 * BUDGET.max_seconds
    counted, reported = found.detail["sm_clock_counted_mhz"], found.detail["sm_clock_reported_mhz"]
    assert counted is not None
    if reported is not None:
        assert 0.5 < counted / reported < 2


def test_spinning_before_the_work_does_not_dilute_the_clock(device: CudaDevice) -> None:
    short, long = counted_mhz(device, 50e-6), counted_mhz(device, 5e-3)
    assert long == pytest.approx(short, rel=0.1)


def test_the_common_clock_ticks_often_enough(device: CudaDevice) -> None:
    # Some cards step once a microsecond, some 32 times as often: an interval of twenty steps has to be short.
    assert device._runtime._shortest_ns <= 100_000


def test_a_nominal_clock_out_of_reach_is_told_and_drops_nothing(device: CudaDevice) -> None:
    # As on a card whose clocks were locked low, or a laptop's, which never reaches its maximum.
    measured(device, copy_task(device, large(device)))
    real, device._nominal_clock_mhz = device._nominal_clock_mhz, 1.5 * (device._timer.clock_mhz or 3000.0)
    try:
        found = measured(device, copy_task(device, large(device)))
    finally:
        device._nominal_clock_mhz = real
    assert found.invalid is None
    assert not [d for d in found.rounds.dropped if d.code == "throttled"]
    assert "sm-clock-low" in {f.code for f in found.findings}
