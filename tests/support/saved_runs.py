"""Make saved runs for the commands' tests: real rows, by the real renderer, over invented figures of no device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Peak, device_plain
from pytest_bandwidth.domain.measured.measurement import Finding, Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.outcomes.outcome import Outcome, outcome_of
from pytest_bandwidth.reports.documents import document, render_json
from pytest_bandwidth.reports.wording import reason_of

GPU = DeviceIdentity(
    "cuda", "Imaginary GPU", 64 * 2**30, "GPU-1", {"mig": "off"}, {"cuda_driver": "1.0"}, timed_on="gpu"
)
HOST = DeviceIdentity("cpu", "Imaginary host", 16 * 2**30, "host-1", {"threads": "4"}, {"processors": 4})
MODEL = DeviceIdentity("traffic", "traffic sm_90", None, "model", {"arch": "sm_90"}, timed_on="nothing")
PEAK = Peak(1000e9, "invented for tests")
MEASURED_ONLY = Decision(Status.UNDECIDED, Rule.NO_BASELINE)
BYTES = 2**28
_turns = count(1)


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
    return outcome_of(nodeid, key, measurement, decision, reason_of(decision))


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
