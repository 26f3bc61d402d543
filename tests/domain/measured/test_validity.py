"""What cannot be judged, and why: more than the peak, and figures of a busy host."""

import re
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Peak
from pytest_bandwidth.domain.measured.measurement import Finding, Measurement, Rounds
from pytest_bandwidth.domain.measured.validity import (
    CALL_SECONDS,
    PROBE_CALL_SECONDS,
    busy_with_others,
    interleaved_measurement,
    validated,
    why_invalid,
    why_no_evidence,
)
from pytest_bandwidth.domain.traffic import Traffic


def on_host(others, processors=2, kind="cpu"):
    device = DeviceIdentity(
        kind, "A host", None, "h", facts={"processors": processors}, timed_on="gpu" if kind == "cuda" else "host"
    )
    after = Conditions(others=("make (7): 0.90 processors",), others_processors=others)
    return Measurement(None, Traffic(8, 0), device, "clock", Rounds(), conditions_after=after)


@pytest.mark.parametrize(
    ("others", "processors", "busy"), [(0.49, 2, False), (0.5, 2, True), (1.99, 32, False), (2.0, 32, True)]
)
def test_half_a_processor_or_a_sixteenth_of_all(others, processors, busy):
    found = busy_with_others(on_host(others, processors), others)
    assert (found is not None) is busy
    if found is not None:
        assert found.text == f"other processes kept {others} processors busy meanwhile (make (7): 0.90 processors)"


def test_the_user_can_say_what_busy_is_unknown_is_not_busy_and_gpus_have_a_rule_of_their_own():
    assert busy_with_others(on_host(0.9), 0.9, limit=1.0) is None
    assert busy_with_others(on_host(0.1), 0.1, limit=0.05) is not None
    assert busy_with_others(on_host(None), None) is None
    assert busy_with_others(on_host(0.9, kind="cuda"), 0.9) is None


def test_where_waiting_threads_are_accounted_for_only_a_hypervisor_is_held_to_a_limit_that_nobody_said():
    busy = on_host(1.9)
    accounted = replace(busy, rounds=Rounds(kernel_seconds=(1e-3,) * 3, run_delay=0.01))
    stolen = replace(accounted, conditions_after=replace(busy.conditions_after, stolen_processors=0.6))
    assert validated(accounted, None).invalid is None
    assert validated(accounted, None, 1.0).invalid.code == "others"
    assert validated(stolen, None).invalid.text.startswith("other processes kept 0.6 processors busy")


@pytest.mark.parametrize(
    ("read", "written", "advised"), [(0, 10**9, True), (10**9, 10**9, False), (0, 17 * 96 * 10**6, False)]
)
def test_a_write_above_the_peak_that_a_cache_may_have_kept_is_told_to_write_more(read, written, advised):
    device = DeviceIdentity("cuda", "A GPU", None, "g", {}, {"last_cache_bytes": 96 * 10**6}, timed_on="gpu")
    rounds = Rounds(kernel_seconds=(1e-6,))
    text = why_invalid(Measurement(None, Traffic(read, written), device, "events", rounds, Peak(9e11, "sheet"))).text
    assert (
        "; up to 96 MB of the 1 GB that it writes may stay in the cache at its end: write 1.54 GB" in text
    ) == advised


@pytest.mark.parametrize(("method", "code"), [("events", "faster-than-light"), ("events+warm", None)])
def test_a_warm_cache_may_give_more_than_the_memorys_peak(method, code):
    device = DeviceIdentity("cuda", "A GPU", None, "g", timed_on="gpu")
    peak, rounds = Peak(9e11, "sheet"), Rounds(kernel_seconds=(1e-3,))
    invalid = why_invalid(Measurement(None, Traffic(10**9, 0), device, method, rounds, peak))
    assert (invalid and invalid.code) == code
    why = why_no_evidence({"gbps": 1000.0, "method": method}, peak)
    assert (why is None) == (code is None)


@pytest.mark.parametrize(("users", "code"), [(2000.0, None), (900.0, "faster-than-light")])
def test_the_users_peak_counts_instead_of_the_devices(users, code):
    device = DeviceIdentity("cuda", "A GPU", None, "g", timed_on="gpu")
    timed = Measurement(None, Traffic(10**9, 0), device, "events", Rounds(kernel_seconds=(1e-3,)), Peak(9e11, "sheet"))
    found = validated(replace(timed, invalid=why_invalid(timed)), Peak(users * 1e9, "bandwidth_peak in the ini file"))
    assert (found.invalid.code if found.invalid else None) == code
    assert found.utilization == pytest.approx(1000 / users)


def timed(gbps, probe_gbps, probe_seconds=1e-3, **settings):
    """A host's measurement of 1 MB; its probe's other sample was hindered."""
    device = DeviceIdentity("cpu", "A host", None, "h", settings, {"processors": 8})
    kernel = 1e6 / gbps / 1e9
    moved = round(probe_gbps * 1e9 * probe_seconds)
    rounds = Rounds(kernel_seconds=(kernel,) * 2, probe_seconds=(probe_seconds, 10.0), probe_bytes=moved)
    return Measurement(None, Traffic(10**6, 0), device, "clock", rounds)


def beside_others(measurement):
    return replace(measurement, conditions_after=Conditions(others=("cc1",), others_processors=0.9))


@pytest.mark.parametrize(
    ("measurement", "valid"),
    [
        (timed(199.0, 100.0), True),
        (timed(201.0, 100.0), False),
        (replace(timed(201.0, 100.0), peak=Peak(250e9, "bandwidth_peak")), True),
        (timed(201.0, 100.0, 0.99 * PROBE_CALL_SECONDS), True),  # a call's cost
        (timed(79.0, 0.5), True),
        (timed(81.0, 0.5), False),
        (timed(1599.0, 100.0, threads="numpy"), True),  # a probe of one thread
        (timed(1601.0, 100.0, threads="numpy"), False),
        (beside_others(timed(3_999.0, 100.0)), True),  # other processes kept the probe's threads waiting
        (beside_others(timed(4_001.0, 100.0)), False),
    ],
)
def test_a_share_of_the_probe_that_cannot_be_is_invalid(measurement, valid):
    found = why_invalid(measurement)
    assert (found is None) is valid
    if found is not None:
        assert found.code == "above-probe"
        assert re.search(r"of the probe's fastest sample \((100|0\.50) GB/s\)", found.text)


@pytest.mark.parametrize(
    ("seconds", "probe_seconds", "others", "beside", "invalid"),
    [
        (1.49e-5, 9e-5, 0.0, 1e-5, True),
        (1.51e-5, 9e-5, 0.0, 1e-5, False),
        (1.51e-5, 9e-5, 0.0, 2e-5, True),
        (1.49e-5, 9e-5, 0.0, None, False),  # a launch, a GPU, or two in turn
        (1.49e-5, 9e-5, 0.9, 1e-5, True),
        (1.49e-5, 9e-4, 0.9, 1e-5, False),  # others hindered the probe
        (1.49e-5, 3e-5, 0.0, 1e-5, False),  # less than 200 % of the probe
        (5.00e-5, 9e-5, 0.0, 5e-5, False),  # no more than 4 GB/s
    ],
)
def test_a_callable_that_takes_no_longer_than_one_that_does_nothing_is_invalid(
    seconds, probe_seconds, others, beside, invalid
):
    hindered, moved = 1.1 * seconds, 1 << 17
    rounds = Rounds((hindered, seconds, hindered), (probe_seconds,) * 3, probe_bytes=moved)
    detail = {} if beside is None else {CALL_SECONDS: beside}
    found = why_invalid(replace(on_host(others), traffic=Traffic(moved, 0), rounds=rounds, detail=detail))
    assert (found is not None) is invalid
    if found is not None:
        assert found.code == "no-work"
        assert "131 kB that are declared" in found.text


def test_of_callables_that_are_compared_the_one_that_does_nothing_is_invalid():
    rounds = Rounds((5e-5,) * 3, (9e-5,) * 3, interleaved=((1e-5,) * 3,), probe_bytes=65_536)
    first = replace(on_host(0.0), traffic=Traffic(65_536, 0), rounds=rounds, detail={CALL_SECONDS: 1e-5})
    assert why_invalid(first) is None
    assert interleaved_measurement(first, "nothing", rounds.interleaved[0]).invalid.code == "no-work"
    does_nothing = replace(first, invalid=Finding("no-work", "it takes no longer"))
    assert interleaved_measurement(does_nothing, "work", (5e-5,) * 3).invalid is None
