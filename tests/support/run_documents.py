"""Make results, run documents and their files: real measurements and verdicts over invented figures of no device.

`outcome`, `run_of`, `save` and `saved` show the asked-for figures exactly, so that tests can stand on a boundary; what
`outcomes` makes scatters over all operations, sizes and both precisions, as the renderers meet it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Peak, device_plain
from pytest_bandwidth.domain.measured.measurement import Dropped, Finding, KernelResources, Measurement, Rounds
from pytest_bandwidth.domain.measured.metrics import Metrics, choose_metric
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.judging.decide import decide_stored
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.judging.stored import reference_of
from pytest_bandwidth.outcomes.outcome import Outcome, outcome_of
from pytest_bandwidth.reports.documents import document, render_json
from pytest_bandwidth.reports.wording import Context, failure_message, reason_of

PEAK = Peak(1000e9, "invented for tests")
PEAK_FLOPS = {"fp32": 20e12, "fp16": 160e12}
GPU = DeviceIdentity(
    "cuda", "Imaginary GPU", 64 * 2**30, "GPU-1", {"mig": "off"}, {"cuda_driver": "1.0"}, timed_on="gpu"
)
HOST = DeviceIdentity("cpu", "Imaginary host", 16 * 2**30, "host-1", {"threads": "4"}, {"processors": 4})
MODEL = DeviceIdentity("traffic", "traffic sm_90", None, "model", {"arch": "sm_90"}, timed_on="nothing")
MEASURED_ONLY = Decision(Status.UNDECIDED, Rule.NO_BASELINE)
BYTES = 2**28
_turns = count(1)
DEVICE = DeviceIdentity(
    kind="cuda",
    name="Imaginary GPU",
    memory_bytes=64 * 2**30,
    serial="GPU-00000000-imaginary",
    settings={"mig": "off", "ecc": "on"},
    facts={"driver_version": "0.0", "l2_bytes": 32 * 2**20, "max_sm_clock_mhz": 1500},
    timed_on="gpu",
)
ENVIRONMENT = {
    "python": "3.11.2",
    "pytest": "9.0.0",
    "pytest_bandwidth": "0.1.0",
    "host": "nowhere",
    "os": "Linux",
    "commit": "0123456",
    "started_at": "2026-01-02T03:04:05Z",
    "command": "pytest tests --bandwidth-baseline=baselines/imaginary.yaml",
}
# operation → (share of the peak that it reaches, FLOP per byte)
OPERATIONS = {
    "copy": (0.90, 0.0),
    "scale": (0.89, 0.125),
    "add": (0.88, 0.083),
    "triad": (0.87, 0.167),
    "dot": (0.93, 0.25),
    "transpose": (0.62, 0.0),
    "softmax": (0.74, 0.63),
    "layernorm": (0.78, 1.25),
    "gather": (0.31, 0.0),
    "gemm": (0.12, 160.0),
}


def measured(
    traffic: Traffic,
    gbps: float,
    probe_gbps: float,
    rng: random.Random,
    *,
    samples: int = 40,
    precision: str | None = None,
) -> Measurement:
    """Make a measurement whose samples scatter by about 1 % around the asked-for figures."""
    kernel = tuple(traffic.bytes_moved / gbps / 1e9 * rng.lognormvariate(0, 0.01) for _ in range(samples))
    probe = tuple(traffic.bytes_moved / probe_gbps / 1e9 * rng.lognormvariate(0, 0.006) for _ in range(samples))
    rounds = Rounds(
        kernel_seconds=kernel,
        probe_seconds=probe,
        host_kernel_seconds=tuple(s + 8e-6 for s in kernel),
        kernel_first=tuple(i % 2 == 0 for i in range(samples)),
        probe_bytes=traffic.bytes_moved,
        probe_name="copy",
        dropped=(Dropped(3, kernel[0] * 1.4, "throttled", "SM clock at 61 %"),),
        stop="precision",
        warmup_seconds=0.21,
        warmup_runs=80,
    )
    return Measurement(
        label=None,
        traffic=traffic,
        device=DEVICE,
        method="events+block",
        rounds=rounds,
        peak=PEAK,
        precision=precision,
        peak_flops=PEAK_FLOPS.get(precision or ""),
        resources=KernelResources(32, 0, 4096, 1024, 0.75),
        conditions_before=Conditions(1410, 1215, 48, 201.5, (), (), None),
        conditions_after=Conditions(1380, 1215, 53, 288.0, ("software power cap",), (), None),
        findings=(Finding("asked", "asks for 1.2 × the bytes that it declares"),),
    )


def entry_of(key: str, gbps: float, probe_gbps: float, runs: int, rng: random.Random, spread: float = 0.004) -> Entry:
    """Make a baseline entry with so many runs around the figures; none makes it look written by hand."""
    lines = tuple(
        Run(
            gbps=gbps * rng.lognormvariate(0, spread),
            probe_gbps=probe_gbps,
            samples=40,
            gpu="GPU-00000000",
            commit=f"{rng.randrange(16**7):07x}",
            at=f"2025-12-{day + 1:02d}T04:00:00Z",
        )
        for day in range(runs)
    )
    return Entry(key, gbps=gbps, judged_on="relative" if runs else None, runs=lines)


def judged(measurement: Measurement, entry: Entry | None, tolerance: float = 0.05) -> Decision:
    """Return the decision of the real rule; what is slow is confirmed by three new processes that agree with it."""
    if entry is None:
        return Decision(Status.UNDECIDED, Rule.NO_ENTRY, facts={"path": "the baseline"})
    figures = Metrics(measurement.gbps or 0.0, measurement.relative, measurement.probe_gbps, measurement.utilization)
    figure = choose_metric(None, entry, figures, None)
    reference = reference_of(entry, figure, on_host=False)
    assert reference is not None
    observed = figures.of(figure) or 0.0
    fresh = [observed * f for f in (0.998, 1.001, 1.003)]
    decision = decide_stored(reference, observed, fresh, tolerance, 3, None)
    assert isinstance(decision, Decision)
    return decision


def run_document(outcomes: Sequence[Outcome], **changes: Any) -> dict[str, Any]:
    """Return what --bandwidth-json writes for these outcomes."""
    known = {"run_id": "20260102-030405-abcd", "environment": ENVIRONMENT, "baseline_path": "baselines/imaginary.yaml"}
    return {**run_of(*outcomes, device=DEVICE, **known), **changes}


def outcomes(count: int, *, failing: int = 0, unjudged: int = 0, seed: int = 1, samples: int = 40) -> list[Outcome]:
    """Make so many results over all operations, sizes and both precisions; the first fail or cannot be judged."""
    rng = random.Random(seed)
    return [_one(index, count, failing, unjudged, rng, samples) for index in range(count)]


def _one(index: int, count: int, failing: int, unjudged: int, rng: random.Random, samples: int) -> Outcome:
    operation = list(OPERATIONS)[index % len(OPERATIONS)]
    precision = ("fp32", "fp16")[index // len(OPERATIONS) % 2]
    size = 2 ** (20 + index // (2 * len(OPERATIONS)) % 6)
    share, intensity = OPERATIONS[operation]
    element = 4 if precision == "fp32" else 2
    moved = 2 * size * element
    ramp = 1 / (1 + 6e6 / moved)
    flop = int(intensity * moved * (4 / element))
    probe = 910 * ramp
    nodeid = f"tests/kernels/test_{operation}.py::test_{operation}[{precision}-{size}]"
    if count > 120:
        nodeid = nodeid.replace("]", f"-{index}]")
    place = index * 7919 % count  # spread over the run, so that order does not come by luck
    usual = share * 1000 * ramp
    gbps = usual * (0.86 if place < failing else 1.0)
    traffic = Traffic(moved // 2, moved - moved // 2, flop=flop)
    measurement = measured(traffic, gbps, probe, rng, precision=precision, samples=samples)
    entry: Entry | None = entry_of(nodeid, usual, probe, 5, rng)
    tolerance = 0.05
    kind = place - failing
    if 0 <= kind < unjudged:
        entry = None if kind % 2 else entry_of(nodeid, usual, probe, 2, rng, spread=0.03)
        tolerance = 0.02
    decision = judged(measurement, entry, tolerance)
    message = None
    if decision.status.always_fails:
        context = Context(("registers 32 → 96",), f"pytest '{nodeid}' --bandwidth-update", f"test_{operation}.py:12")
        message = failure_message(Judged(measurement, entry, decision), context)
    tags = {"operation": operation, "precision": precision, "n": size}
    return outcome_of(
        nodeid,
        nodeid,
        Judged(measurement, entry, decision),
        reason_of(decision),
        message=message,
        file=nodeid.split("::")[0],
        line=12 + index,
        tags=tags,
    )


def counted(nodeid: str = "tests/test_copy.py::test_strided") -> Outcome:
    """Make a result of a device that counts traffic instead of taking time."""
    measurement = Measurement(
        label=None,
        traffic=Traffic(4096, 4096),
        device=replace(DEVICE, kind="traffic", name="traffic sm_90"),
        method="ptx",
        rounds=Rounds(),
        counts={"load_sectors": 1024, "store_sectors": 128},
        detail={
            "loads": _access(1024, "strided (32 bytes)"),
            "stores": _access(128, "coalesced"),
            "atomics": {**_access(0, "none"), "requests": 0, "sectors_per_request": None, "coalescing": None},
            "kernel": "copy_f32",
            "blocks": 4,
            "blocks_run": 4,
            "sample_spread": None,
            "thread_instructions": 20480,
            "lane_occupancy": 1.0,
            "lines": [
                {
                    "file": "copy.cu",
                    "line": 7,
                    "text": "float x = a[8 * i];",
                    "loads": _access(1024, "strided (32 bytes)"),
                },
                {"file": "copy.cu", "line": 8, "stores": _access(128, "coalesced")},
            ],
            "arrays": [{"name": "a", "nbytes": 4096, "bytes_read": 4096, "bytes_written": 0}],
            "modelled_floor_seconds": {"Imaginary GPU": 8.2e-9},
        },
    )
    facts = {"changes": (("load_sectors", 128, 1024),), "pattern": "loads coalesced", "same_code": False}
    decision = Decision(Status.REGRESSED, Rule.COUNTS, facts=facts)
    judged = Judged(measurement, None, decision)
    return outcome_of(nodeid, nodeid, judged, reason_of(decision), message=failure_message(judged))


def _access(sectors: int, pattern: str) -> dict[str, Any]:
    """Make what the traffic device says of one kind of access, over 32 requests of 128 bytes."""
    return {
        "accesses": 1024,
        "requests": 32,
        "bytes_requested": 4096,
        "sectors": sectors,
        "sectors_per_request": sectors / 32,
        "coalescing": 128 / sectors if sectors else None,
        "pattern": pattern,
    }


def improved() -> Outcome:
    """Make a result well above its baseline."""
    nodeid, rng = "tests/test_fast.py::test_improved", random.Random(9)
    measurement = measured(Traffic(2**28, 2**28), 900, 910, rng)
    entry = entry_of(nodeid, 700, 910, 5, rng)
    decision = judged(measurement, entry)
    assert decision.status is Status.IMPROVED
    assert math.isclose(decision.numbers.reference or 0, 700 / 910, rel_tol=0.02)
    return outcome_of(nodeid, nodeid, Judged(measurement, entry, decision), reason_of(decision))


def outcome(
    key: str,
    gbps: float | None,
    probe_gbps: float | None = 900.0,
    *,
    device: DeviceIdentity = GPU,
    traffic: Traffic | None = None,
    method: str = "events",
    decision: Decision = MEASURED_ONLY,
    conditions: Conditions | None = None,
    invalid: str | None = None,
    peak: Peak | None = PEAK,
    counts: Mapping[str, int] | None = None,
) -> Outcome:
    """Make one row; every sample shows the asked-for figures exactly, so that tests can stand on a boundary."""
    traffic = traffic or Traffic(BYTES // 2, BYTES // 2)
    rounds = Rounds(
        kernel_seconds=() if gbps is None else (traffic.bytes_moved / gbps / 1e9,) * 8,
        probe_seconds=() if probe_gbps is None else (traffic.bytes_moved / probe_gbps / 1e9,) * 8,
        host_kernel_seconds=() if gbps is None else (traffic.bytes_moved / gbps / 1e9,) * 8,
        kernel_first=() if gbps is None else (True, False) * 4,
        probe_bytes=traffic.bytes_moved,
        probe_name="copy",
    )
    nodeid, _, label = key.partition(" @ ")
    measurement = Measurement(
        label=label or None,
        traffic=traffic,
        device=device,
        method=method,
        rounds=rounds,
        peak=peak,
        conditions_after=conditions or Conditions(),
        counts=counts or {},
        invalid=None if invalid is None else Finding("invalid", invalid),
    )
    if invalid is not None:
        decision = Decision(Status.UNDECIDED, "invalid", facts={"text": invalid})
    return outcome_of(nodeid, key, Judged(measurement, None, decision), reason_of(decision))


def run_of(*rows: Outcome, device: DeviceIdentity = GPU, peak: Peak | None = PEAK, **changes: Any) -> dict[str, Any]:
    """Make a whole document; every one is another run."""
    run_id = f"20260102T030405Z-{next(_turns):08x}"
    return {**document(run_id, {}, device_plain(device, peak), {"strict": False}, rows, None), **changes}


def save(path: Path, plain: Mapping[str, Any]) -> Path:
    """Write a document as --bandwidth-json does."""
    path.write_text(render_json(plain), encoding="utf-8")
    return path


def saved(path: Path, figures: Mapping[str, float], *, probe_gbps: float = 900.0, **device: Any) -> Path:
    """Make a run of one process: GB/s by key, all beside the same probe. device: changes to the GPU's identity."""
    identity = replace(GPU, **device)
    rows = [outcome(key, gbps, probe_gbps, device=identity) for key, gbps in figures.items()]
    return save(path, run_of(*rows, device=identity))
