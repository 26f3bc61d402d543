"""The least time of a run, by hand: its bytes at the peak, from three sources, or its FLOP; less is impossible."""

from dataclasses import replace

import pytest

from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.measured.explanation import EXPLAINED
from pytest_bandwidth.domain.measured.measurement import LARGEST_FLOP_SHARE, Measurement, Rounds
from pytest_bandwidth.domain.measured.validity import faster_than_light
from pytest_bandwidth.domain.traffic import Traffic

GPU = DeviceIdentity("cuda", "A GPU", None, "g", timed_on="gpu")
STEP = 1e-6
# 3 MB in 4 µs, at 1 TB/s at most: 3 µs, which is three quarters.
TIMED = Measurement(
    None, Traffic(2_000_000, 1_000_000), GPU, "events", Rounds(kernel_seconds=(4e-6,)), Peak(1e12, "its datasheet")
)


def explained(measurement, least_bytes):
    return replace(measurement, detail={EXPLAINED: {"least_bytes": least_bytes}})


def computing(flop, seconds=4e-6, tensor_flops=None, device=GPU):
    rounds = Rounds(kernel_seconds=(seconds,))
    return replace(
        TIMED,
        traffic=Traffic(2_000_000, 1_000_000, flop),
        rounds=rounds,
        precision="fp32",
        peak_flops=1e13,
        tensor_flops=tensor_flops,
        device=device,
    )


@pytest.mark.parametrize(
    ("measurement", "share", "by"),
    [
        (TIMED, 0.75, "declared bytes"),
        (explained(TIMED, 1_000_000), 0.25, "explained bytes"),
        (explained(TIMED, 0), 0.75, "declared bytes"),  # not known
        (explained(TIMED, 9_000_000), 0.75, "declared bytes"),  # a table of which it reads some rows
        (replace(TIMED, counted=Traffic(2_600_000, 1_000_000)), 0.9, "counted bytes"),
        (replace(explained(TIMED, 1), counted=Traffic(600_000, 200_000)), 0.2, "counted bytes"),
        (replace(TIMED, counted=Traffic(2_000_000, 9_000_000)), 0.75, "counted bytes"),  # scratch in a cache
        (computing(36_000_000), 0.9, "FLOP"),
        (computing(29_000_000), 0.75, "declared bytes"),
        (computing(80_000_000, tensor_flops=1e14), 0.75, "declared bytes"),
        (computing(360_000_000, tensor_flops=1e14), 0.9, "FLOP"),
        (computing(36_000_000, tensor_flops=1e14), 0.9, "FLOP"),
    ],
)
def test_the_least_time_is_the_longer_of_bytes_and_flop(measurement, share, by):
    assert measurement.sol == pytest.approx(share)
    assert measurement.least.by == by


def test_without_a_known_peak_or_a_sample_there_is_no_share():
    assert replace(computing(36_000_000), peak=None).sol is None
    assert replace(TIMED, rounds=Rounds()).sol is None


def at(measurement, seconds):
    return replace(measurement, rounds=Rounds(kernel_seconds=(seconds,)))


COUNTED = replace(TIMED, counted=Traffic(2_600_000, 1_000_000))
BOOST = 1e-5 / LARGEST_FLOP_SHARE


@pytest.mark.parametrize(
    ("measurement", "limit", "said"),
    [
        (TIMED, 3e-6, "1000 GB/s is more than the peak of 1000 GB/s (its datasheet): the work was served from a cache"),
        (COUNTED, 3.6e-6, "its median is 3.6 µs, and the 3.6 MB that its kernel touches need 3.6 µs at the peak of"),
        (
            computing(100_000_000),
            BOOST,
            "12.0 TFLOP/s are more than the 10.0 of fp32 in its datasheet: check flop= and",
        ),
        (
            computing(10**9, tensor_flops=1e14),
            BOOST,
            "120 TFLOP/s are more than the 100 of tensor cores in its datasheet: check flop=",
        ),
    ],
)
def test_what_takes_less_than_the_least_time_is_impossible(measurement, limit, said):
    assert faster_than_light(at(measurement, limit * (1 + STEP))) is None
    found = faster_than_light(at(measurement, limit * (1 - STEP)))
    assert found.code == "faster-than-light"
    assert found.text.startswith(said)


def test_flop_of_a_host_are_no_limit_which_were_measured_once():
    host = DeviceIdentity("cpu", "A host", None, "h", timed_on="host")
    assert faster_than_light(computing(10**9, device=host)) is None
    assert computing(10**9, device=host).sol > LARGEST_FLOP_SHARE
