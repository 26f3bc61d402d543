"""The roofline's definitions against published and hand-made figures, regimes with their evidence, and bottlenecks."""

from dataclasses import replace

import pytest

from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.measured.measurement import Finding, KernelResources, Measurement
from pytest_bandwidth.domain.measured.roofline import (
    BOTTLENECK_FOUND,
    DISPATCH_SECONDS,
    GROWTH_FOUND,
    OVERHEAD_FOUND,
    RegimeFinding,
    access_sentence,
    attainable_flops,
    bottleneck_of,
    growth_sentence,
    interface_bytes_per_second,
    regime_of,
    ridge_of,
    ridge_point,
    utilization_class,
    with_doubled_batch,
    with_regime,
)
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.outcomes.outcome import outcome_of
from pytest_bandwidth.suite import traffic_models as traffic

GPU = DeviceIdentity("cuda", "a card", 2**34, "GPU-1", timed_on="gpu")
HOST = DeviceIdentity("cpu", "a processor", 2**34, "host-1")
M1_PRO_BYTES, M1_PRO_FLOPS = 205e9, 5.3e12


def measured(
    seconds: float,
    moved: Traffic,
    *,
    device: DeviceIdentity = GPU,
    host_seconds: float | None = None,
    probe_gbps: float | None = None,
    **more,
) -> Measurement:
    """Five rounds of equal length."""
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


# ---- definitions ----------------------------------------------------------------------------------------------------


def test_a_share_that_tells_nothing_has_no_class_and_is_no_evidence_of_memory_bound():
    decision = Decision(Status.UNDECIDED, Rule.NO_BASELINE)
    for seconds, share in ((0.5e-3, "excellent"), (0.4e-3, None)):
        row = measured(seconds, Traffic(10**6, 0), probe_gbps=1, flop_declared=False)
        assert outcome_of("t.py::t", "t.py::t", row, decision, "").utilization_class == share
        assert (regime_of(row) is None) is (share is None)


def test_a_memory_interface_carries_its_lines_times_their_rate():
    assert interface_bytes_per_second(6.40e9, 256) == pytest.approx(204.8e9)  # LPDDR5 of an M1 Pro
    assert interface_bytes_per_second(8, 3) * 8 == 24  # three lines of 8 bit/s
    assert interface_bytes_per_second(20e9, 320) == pytest.approx(800e9)  # RX 7900 XT


@pytest.mark.parametrize(("peak_gbps", "flop_per_byte"), [(2000, 156), (2039, 153)])
def test_the_ridge_point_of_an_a100_with_fp16_tensor_cores(peak_gbps, flop_per_byte):
    assert ridge_point(312e12, peak_gbps * 1e9) == pytest.approx(flop_per_byte, abs=0.05)


def test_under_the_ridge_memory_sets_the_rate_and_over_it_the_arithmetic_does():
    assert attainable_flops(10, 312e12, 2e12) == 20e12
    assert attainable_flops(156, 312e12, 2e12) == 312e12
    assert attainable_flops(1000, 312e12, 2e12) == 312e12


def test_memory_and_compute_time_of_an_add_of_a_million_floats():
    add = traffic.add(1_000_000, "float32")
    assert add.bytes_moved / M1_PRO_BYTES == pytest.approx(58.5e-6, abs=0.05e-6)
    assert add.flop / M1_PRO_FLOPS == pytest.approx(0.189e-6, abs=0.0005e-6)


def test_memory_and_compute_time_of_a_4096_gemm():
    gemm = traffic.gemm(4096, 4096, 4096, "float32")
    assert gemm.bytes_moved / M1_PRO_BYTES == pytest.approx(0.98e-3, abs=0.005e-3)
    assert gemm.flop / M1_PRO_FLOPS == pytest.approx(25.9e-3, abs=0.05e-3)


def test_the_crossover_of_the_intensity_sweep_is_at_the_ridge_point():
    ridge = ridge_point(19.5e12, 1.5e12)
    assert ridge * 4 == pytest.approx(52)  # FLOP per float32 moved


@pytest.mark.parametrize(
    ("gbps", "percent", "name"), [(380, 68, "good"), (220, 39, "fair"), (180, 32, "poor"), (420, 75, "good")]
)
def test_classes_worked_on_a_560_gb_per_s_peak(gbps, percent, name):
    assert round(gbps / 560 * 100) == percent
    assert utilization_class(gbps / 560) == name


@pytest.mark.parametrize(
    ("share", "name"),
    [(0.801, "excellent"), (0.80, "good"), (0.60, "fair"), (0.35, "poor"), (0.0, "poor"), (1.2, "excellent")],
)
def test_a_share_on_a_bound_belongs_to_the_class_below(share, name):
    assert utilization_class(share) == name


def test_the_bounds_of_the_classes_are_settings():
    assert utilization_class(0.85, (0.9, 0.8, 0.7)) == "good"
    assert utilization_class(0.65, (0.9, 0.8, 0.7)) == "poor"
    row = measured(1e-3, traffic.copy(10**6, "float32"), peak=Peak(10e9, "said"))
    decision = Decision(Status.UNDECIDED, Rule.NO_BASELINE)
    assert outcome_of("t.py::t", "t.py::t", row, decision, "").utilization_class == "good"
    stricter = outcome_of("t.py::t", "t.py::t", row, decision, "", class_bounds=(0.99, 0.95, 0.9))
    assert stricter.utilization_class == "poor"


# ---- the roofline's regimes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "regime", "evidence"),
    [
        (256, "memory-bound", "42.7 FLOP/byte, under the ridge point at 153"),
        (1024, "compute-bound", "171 FLOP/byte, over the ridge point at 153"),
    ],
)
def test_a_gemm_is_on_the_side_of_the_ridge_that_its_size_puts_it(side, regime, evidence):
    gemm = traffic.gemm(side, side, side, "float32")
    found = regime_of(measured(1e-3, gemm, peak=Peak(2039e9, "datasheet"), peak_flops=312e12))
    assert found == RegimeFinding(regime, evidence)


def test_an_intensity_at_the_ridge_point_itself_is_compute_bound():
    work = Traffic(500, 500, 2000)
    assert regime_of(measured(1e-6, work, peak=Peak(1e9, ""), peak_flops=2e9)).regime == "compute-bound"
    assert regime_of(measured(1e-6, work, peak=Peak(1e9, ""), peak_flops=2.001e9)).regime == "memory-bound"


@pytest.mark.parametrize(("timed_on", "measured_here"), [("host", True), ("gpu", False)])
def test_a_hosts_flops_are_measured_even_where_its_bandwidth_is_told(timed_on, measured_here):
    device = replace(HOST, timed_on=timed_on)
    work = measured(1e-3, Traffic(10**6, 10**6, 10**7), device=device, peak=Peak(20e9, "said"), peak_flops=80e9)
    assert ridge_of(work).measured is measured_here


def test_where_no_peak_is_known_the_ridge_is_that_of_the_rates_measured():
    work = measured(1e-3, Traffic(10**6, 10**6, 10**7), device=HOST, probe_gbps=20, peak_flops=80e9)
    assert ridge_of(work).point == pytest.approx(4)
    assert regime_of(work) == RegimeFinding(
        "compute-bound", "5.00 FLOP/byte, over the ridge point at 4.00 (by the rates measured here)"
    )


def test_without_flops_or_bandwidth_there_is_no_ridge():
    work = Traffic(10**6, 10**6, 10**7)
    assert ridge_of(measured(1e-3, work, peak=Peak(1e12, ""))) is None
    assert ridge_of(measured(1e-3, work, peak_flops=1e12)) is None


def test_moving_alone_is_memory_bound_however_slow():
    assert regime_of(measured(1.0, traffic.copy(10**6, "float32"), probe_gbps=1000)) == RegimeFinding(
        "memory-bound", "it computes nothing"
    )


def test_flop_that_nobody_declared_are_not_taken_for_none():
    """A callable with arrays alone: zero FLOP are not said, so only its share of the probe is evidence."""
    quick = measured(1e-3, Traffic(8 * 10**6, 8 * 10**6), probe_gbps=20, flop_declared=False)
    slow = replace(quick, rounds=replace(quick.rounds, kernel_seconds=(2e-3,) * 5))
    assert regime_of(quick) == RegimeFinding("memory-bound", "it reaches 80 % of the probe's bandwidth")
    assert regime_of(slow) is None


def test_computing_work_of_an_unknown_ridge_is_judged_by_the_probe():
    work = Traffic(8 * 10**6, 8 * 10**6, 10**6)
    assert regime_of(measured(1e-3, work, probe_gbps=20)).evidence == "it reaches 80 % of the probe's bandwidth"
    assert regime_of(measured(1e-2, work, probe_gbps=20)) is None


def test_what_was_not_timed_has_no_regime():
    assert regime_of(Measurement(None, traffic.copy(8, "float32"), GPU, "ptx", Rounds())) is None


# ---- overhead -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "regime"), [(9.9e-6, "memory-bound"), (10.1e-6, "overhead-bound")])
def test_dispatch_longer_than_the_device_work_is_overhead(host, regime):
    """Host-inclusive time of more than twice the device's: dispatch takes longer than the work."""
    found = regime_of(measured(5e-6, traffic.copy(1000, "float32"), host_seconds=host))
    assert found.regime == regime
    if regime == "overhead-bound":
        assert found.evidence == "the host needs 10.1 µs for 5 µs of device work"


def test_overhead_comes_before_the_roofline():
    gemm = traffic.gemm(1024, 1024, 1024, "float32")
    work = measured(5e-6, gemm, host_seconds=50e-6, peak=Peak(2039e9, ""), peak_flops=312e12)
    assert regime_of(work).regime == "overhead-bound"


@pytest.mark.parametrize(("seconds", "regime"), [(9e-6, "overhead-bound"), (11e-6, "memory-bound")])
def test_on_the_host_an_empty_kernel_is_the_measure_of_dispatch(seconds, regime):
    found = regime_of(
        measured(seconds, traffic.copy(1000, "float32"), device=HOST, detail={DISPATCH_SECONDS: 5e-6}),
    )
    assert found.regime == regime
    if regime == "overhead-bound":
        assert found.evidence == "a kernel without any work takes 5 µs here, this one 9 µs"


def test_the_growth_is_stated_with_its_figures():
    assert growth_sentence(12.1e-6, 12.6e-6) == "twice the batch takes 4 % longer: 12.1 µs, then 12.6 µs"
    assert growth_sentence(10e-6, 9e-6) == "twice the batch takes 10 % less: 10 µs, then 9 µs"
    assert growth_sentence(1e-3, 2e-3) == "twice the batch takes 100 % longer: 1 ms, then 2 ms"


def test_a_doubled_batch_that_was_seen_is_the_regimes_evidence():
    finding = Finding(OVERHEAD_FOUND, growth_sentence(12.1e-6, 12.6e-6))
    work = measured(12.1e-6, traffic.triad(1000, "float32"), probe_gbps=1, findings=(finding,))
    assert regime_of(work) == RegimeFinding("overhead-bound", finding.text)


def interleaved_with(*interleaved: tuple[float, ...]) -> Measurement:
    rounds = Rounds(kernel_seconds=(9e-6, 10e-6, 12e-6), interleaved=interleaved)
    return Measurement(None, Traffic(1000, 0), GPU, "events", rounds)


@pytest.mark.parametrize(
    ("doubled", "code", "growth"),
    [
        (11e-6, OVERHEAD_FOUND, "10 % longer: 10 µs, then 11 µs"),
        (11.1e-6, GROWTH_FOUND, "11 % longer: 10 µs, then 11.1 µs"),
        (20e-6, GROWTH_FOUND, "100 % longer: 10 µs, then 20 µs"),
    ],
)
def test_the_medians_are_told_and_decide(doubled, code, growth):
    found = with_doubled_batch(interleaved_with((doubled / 2, doubled, doubled * 3)))
    assert found.findings == (Finding(code, f"twice the batch takes {growth}"),)
    assert found.rounds.interleaved == ()
    assert (with_regime(found).regime == "overhead-bound") is (code == OVERHEAD_FOUND)


@pytest.mark.parametrize("beside", [(), ((),)])
def test_without_a_doubled_batch_nothing_changes(beside):
    assert with_doubled_batch(interleaved_with(*beside)) == interleaved_with(*beside)


COUNTED = DeviceIdentity("traffic", "traffic sm_90", None, "model", timed_on="nothing")


def of_traffic(moved: Traffic, **more) -> Measurement:
    return Measurement(None, moved, COUNTED, "ptx", Rounds(), **more)


def counted(sectors: int, fewest: int, pattern: str) -> dict:
    return {"sectors": sectors, "coalescing": fewest / sectors, "pattern": pattern, "requests": 1}


COPY = traffic.copy(1024, "float32")


def test_strided_reads_are_told_with_the_sectors_they_need():
    detail = {"loads": counted(1024, 128, "strided (32 bytes)"), "stores": counted(128, 128, "coalesced")}
    assert bottleneck_of(of_traffic(COPY, detail=detail)) == "strided reads ask for 8.0× the sectors they need"


def test_of_reads_and_writes_the_one_that_wastes_more_sectors_is_told():
    detail = {"loads": counted(150, 100, "misaligned"), "stores": counted(3200, 400, "strided (64 bytes)")}
    assert bottleneck_of(of_traffic(COPY, detail=detail)) == "strided writes ask for 8.0× the sectors they need"


def test_a_pattern_that_most_requests_do_not_show_is_not_named():
    detail = {"loads": counted(200, 100, "coalesced")}
    assert bottleneck_of(of_traffic(COPY, detail=detail)) == "reads ask for 2.0× the sectors they need"


@pytest.mark.parametrize("detail", [{}, {"loads": counted(128, 128, "coalesced")}, {"stores": {"requests": 0}}])
def test_well_ordered_accesses_have_no_bottleneck(detail):
    assert bottleneck_of(of_traffic(COPY, detail=detail)) is None


def test_a_misaligned_warp_is_worth_telling_and_a_ragged_end_is_not():
    assert access_sentence("reads", "misaligned", 5 / 4) == "misaligned reads ask for 1.2× the sectors they need"
    assert access_sentence("reads", "strided", 8, "bytes") == "strided reads ask for 8.0× the bytes they need"
    assert access_sentence("reads", "coalesced", 1.05) is None


def test_spills_are_told():
    resources = KernelResources(registers=255, local_bytes=128, shared_bytes=0)
    assert "128 B of local memory a thread" in bottleneck_of(of_traffic(COPY, resources=resources))
    assert bottleneck_of(of_traffic(COPY, resources=replace(resources, local_bytes=0))) is None


def test_bytes_that_a_model_asks_for_again_are_told():
    naive = traffic.gemm(256, 256, 256, "float32", tile=1)
    assert bottleneck_of(of_traffic(naive)) == (
        "reads ask for 256× the distinct bytes: what caches do not serve comes from memory again"
    )
    assert bottleneck_of(of_traffic(traffic.softmax(8, 1024, "float32", row_reads=2))) is None
    assert bottleneck_of(of_traffic(Traffic(0, 8, requested_read=8))) is None


def test_a_suites_own_finding_comes_first():
    own = Finding(BOTTLENECK_FOUND, "strided reads ask for 8.0× the bytes they need")
    resources = KernelResources(registers=255, local_bytes=128, shared_bytes=0)
    assert bottleneck_of(of_traffic(COPY, findings=(own,), resources=resources)) == own.text
