"""The roofline's definitions against published and hand-made figures, regimes with their evidence, and bottlenecks."""

from dataclasses import replace

import pytest

from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.measured.measurement import Finding, KernelResources, Measurement, Rounds
from pytest_bandwidth.domain.measured.roofline import (
    BOTTLENECK_FOUND,
    CYCLES,
    DISPATCH_SECONDS,
    GROWTH_FOUND,
    OVERHEAD_FOUND,
    SM_CLOCK_MHZ,
    bottleneck_of,
    regime_of,
    ridge_of,
    utilization_class,
    with_doubled_batch,
    with_regime,
)
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.outcomes.outcome import outcome_of

GPU = DeviceIdentity("cuda", "a card", 2**34, "GPU-1", timed_on="gpu")
HOST = DeviceIdentity("cpu", "a processor", 2**34, "host-1")


def measured(
    seconds: float,
    moved: Traffic,
    *,
    device: DeviceIdentity = GPU,
    host_seconds: float | None = None,
    probe_gbps: float | None = None,
    **more,
) -> Measurement:
    probes = {}
    if probe_gbps is not None:
        probes = {"probe_bytes": 10**6, "probe_seconds": (10**6 / (probe_gbps * 1e9),) * 5}
    rounds = Rounds(
        kernel_seconds=(seconds,) * 5,
        host_kernel_seconds=(host_seconds or seconds,) * 5,
        kernel_first=(True,) * 5,
        **probes,
    )
    return Measurement(None, moved, device, "events+block" if device is GPU else "clock", rounds, **more)


def test_a_share_that_tells_nothing_has_no_class_and_is_no_evidence_of_memory_bound():
    decision = Decision(Status.UNDECIDED, Rule.NO_BASELINE)
    for seconds, share in ((0.5e-3, "excellent"), (0.4e-3, None)):
        row = measured(seconds, Traffic(10**6, 0), probe_gbps=1, flop_declared=False)
        assert outcome_of("t.py::t", "t.py::t", Judged(row, None, decision), "").utilization_class == share
        assert (regime_of(row) is None) is (share is None)


@pytest.mark.parametrize(
    ("flop", "clock_mhz", "cycles"), [(10**10, 1410.0, 1_410_000), (10**10, None, None), (10**6, 1410.0, None)]
)
def test_a_compute_bound_run_says_its_cycles(flop, clock_mhz, cycles):
    row = measured(1e-3, Traffic(10**6, 0, flop), peak=Peak(1e12, ""), peak_flops=1e13)
    told = with_regime(row.with_detail(SM_CLOCK_MHZ, clock_mhz))
    said = [finding.text for finding in told.findings if finding.code == CYCLES]
    assert told.detail.get(CYCLES) == cycles
    assert said == ([] if cycles is None else ["one run takes 1,410,000 cycles of the SM clock, which was 1410 MHz"])


@pytest.mark.parametrize(
    ("share", "name"),
    [
        *((0.801, "excellent"), (0.80, "good"), (0.601, "good"), (0.60, "fair"), (0.35, "poor"), (1.2, "excellent")),
    ],
)
def test_a_share_on_a_bound_belongs_to_the_class_below(share, name):
    assert utilization_class(share) == name


def test_the_bounds_of_the_classes_are_settings():
    row = measured(1e-3, Traffic(4 * 10**6, 4 * 10**6), peak=Peak(10e9, "said"))
    judged = Judged(row, None, Decision(Status.UNDECIDED, Rule.NO_BASELINE))
    assert outcome_of("t.py::t", "t.py::t", judged, "").utilization_class == "good"
    stricter = outcome_of("t.py::t", "t.py::t", judged, "", class_bounds=(0.99, 0.95, 0.9))
    assert stricter.utilization_class == "poor"


A100 = {"peak": Peak(2039e9, "datasheet"), "peak_flops": 312e12}
LARGE_GEMM = Traffic(8 << 20, 4 << 20, 2 << 30)
AT_THE_RIDGE, MOVING, COMPUTING = Traffic(500, 500, 2000), Traffic(8 * 10**6, 8 * 10**6), Traffic(10**6, 10**6, 10**7)
SMALL_COPY, LARGE_COPY = Traffic(4000, 4000), Traffic(4 * 10**6, 4 * 10**6)
DOUBLED = Finding(OVERHEAD_FOUND, "twice the batch takes 4 % longer: 12.1 µs, then 12.6 µs")


@pytest.mark.parametrize(
    ("work", "regime", "evidence"),
    [
        (measured(1e-3, LARGE_GEMM, **A100), "compute-bound", "171 FLOP/byte, over the ridge point at 153"),
        (measured(1e-6, AT_THE_RIDGE, peak=Peak(1e9, ""), peak_flops=2e9), "compute-bound", "2.00 FLOP/byte, over"),
        (measured(1e-6, AT_THE_RIDGE, peak=Peak(1e9, ""), peak_flops=2.001e9), "memory-bound", "2.00 FLOP/byte, under"),
        (
            measured(1e-3, COMPUTING, device=HOST, probe_gbps=20, peak_flops=80e9),
            "compute-bound",
            "5.00 FLOP/byte, over the ridge point at 4.00 (by the rates measured here)",
        ),
        # What moves alone is memory-bound however slow; FLOP that nobody declared are not taken for none.
        (measured(1.0, LARGE_COPY, probe_gbps=1000), "memory-bound", "it computes nothing"),
        (measured(1e-3, MOVING, probe_gbps=20, flop_declared=False), "memory-bound", "it reaches 80 % of the probe's"),
        (measured(2e-3, MOVING, probe_gbps=20, flop_declared=False), None, ""),
        # Of an unknown ridge the probe tells.
        (measured(1e-3, replace(MOVING, flop=10**6), probe_gbps=20), "memory-bound", "it reaches 80 % of the probe's"),
        (measured(1e-2, replace(MOVING, flop=10**6), probe_gbps=20), None, ""),
        (Measurement(None, SMALL_COPY, GPU, "ptx", Rounds()), None, ""),
        # Host-inclusive time of more than twice the device's: dispatch takes longer than the work.
        (measured(5e-6, SMALL_COPY, host_seconds=9.9e-6), "memory-bound", "it computes nothing"),
        (
            measured(5e-6, SMALL_COPY, host_seconds=10.1e-6),
            "overhead-bound",
            "the host needs 10.1 µs for 5 µs of device work",
        ),
        # On the host an empty kernel is the measure of dispatch.
        (
            measured(9e-6, SMALL_COPY, device=HOST, detail={DISPATCH_SECONDS: 5e-6}),
            "overhead-bound",
            "a kernel without any work takes 5 µs here, this one 9 µs",
        ),
        (measured(11e-6, SMALL_COPY, device=HOST, detail={DISPATCH_SECONDS: 5e-6}), "memory-bound", "it computes"),
        (measured(12.1e-6, COMPUTING, probe_gbps=1, findings=(DOUBLED,)), "overhead-bound", DOUBLED.text),
    ],
)
def test_a_regime_is_told_with_its_evidence(work, regime, evidence):
    found = regime_of(work)
    assert (found.regime if found else None) == regime
    assert found is None or found.evidence.startswith(evidence)


@pytest.mark.parametrize(("timed_on", "measured_here"), [("host", True), ("gpu", False)])
def test_a_hosts_flops_are_measured_even_where_its_bandwidth_is_told(timed_on, measured_here):
    device = replace(HOST, timed_on=timed_on)
    work = measured(1e-3, Traffic(10**6, 10**6, 10**7), device=device, peak=Peak(20e9, "said"), peak_flops=80e9)
    assert ridge_of(work).measured is measured_here


def interleaved_with(*interleaved: tuple[float, ...]) -> Measurement:
    rounds = Rounds(kernel_seconds=(9e-6, 10e-6, 12e-6), interleaved=interleaved)
    return Measurement(None, Traffic(1000, 0), GPU, "events", rounds)


@pytest.mark.parametrize(
    ("doubled", "code", "growth"),
    [
        (9e-6, OVERHEAD_FOUND, "10 % less: 10 µs, then 9 µs"),
        (11e-6, OVERHEAD_FOUND, "10 % longer: 10 µs, then 11 µs"),
        (11.1e-6, GROWTH_FOUND, "11 % longer: 10 µs, then 11.1 µs"),
    ],
)
def test_the_medians_are_told_and_decide(doubled, code, growth):
    found = with_doubled_batch(interleaved_with((doubled / 2, doubled, doubled * 3)))
    assert found.findings == (Finding(code, f"twice the batch takes {growth}"),)
    assert found.rounds.interleaved == ()
    assert (with_regime(found).regime == "overhead-bound") is (code == OVERHEAD_FOUND)


COUNTED = DeviceIdentity("traffic", "traffic sm_90", None, "model", timed_on="nothing")


def counted(sectors: int, fewest: int, pattern: str) -> dict:
    return {"sectors": sectors, "coalescing": fewest / sectors, "pattern": pattern, "requests": 1}


COPY = Traffic(4096, 4096)


SPILLED = KernelResources(registers=255, local_bytes=128, shared_bytes=0)
OWN = Finding(BOTTLENECK_FOUND, "strided reads ask for 8.0× the bytes they need")


@pytest.mark.parametrize(
    ("moved", "more", "said"),
    [
        (
            COPY,
            {"detail": {"loads": counted(1024, 128, "strided (32 bytes)"), "stores": counted(128, 128, "coalesced")}},
            "strided reads ask for 8.0× the sectors they need",
        ),
        (  # the one that wastes more sectors
            COPY,
            {"detail": {"loads": counted(150, 100, "misaligned"), "stores": counted(3200, 400, "strided (64 bytes)")}},
            "strided writes ask for 8.0× the sectors they need",
        ),
        # A pattern that most requests do not show is not named.
        (COPY, {"detail": {"loads": counted(200, 100, "coalesced")}}, "reads ask for 2.0× the sectors they need"),
        (COPY, {}, None),
        (COPY, {"detail": {"loads": counted(128, 128, "coalesced")}}, None),
        (COPY, {"detail": {"stores": {"requests": 0}}}, None),
        (COPY, {"resources": SPILLED}, "128 B of local memory a thread (spilled"),
        (COPY, {"resources": replace(SPILLED, local_bytes=0)}, None),
        (
            Traffic(1 << 19, 1 << 18, 1 << 25, 1 << 27, 1 << 18),
            {},
            "reads ask for 256× the distinct bytes: each miss of the caches reads memory again",
        ),
        (Traffic(1 << 15, 1 << 15, 5 << 13, 1 << 16, 1 << 15), {}, None),
        (Traffic(0, 8, requested_read=8), {}, None),
        (COPY, {"resources": SPILLED, "findings": (OWN,)}, OWN.text),  # a suite's own comes first
    ],
)
def test_the_bottleneck_is_what_wastes_bandwidth(moved, more, said):
    found = bottleneck_of(Measurement(None, moved, COUNTED, "ptx", Rounds(), **more))
    assert found is None if said is None else found.startswith(said)
