"""Write what a failing test says: observation, limit, evidence, likely cause, remedy, on one line each."""

from __future__ import annotations

from pytest_bandwidth.domain.judging.dram import MAX_RATIO
from pytest_bandwidth.domain.judging.drift import DRIFT
from pytest_bandwidth.domain.judging.drop import FIRST_RUNS
from pytest_bandwidth.domain.judging.floors import confirmations_text, is_by_floor
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.rounds import is_share_told
from pytest_bandwidth.domain.units import digits, format_bytes, format_gbps, format_percent, format_seconds
from pytest_bandwidth.domain.verdict import Status, Verdict

REMEDIES = {
    Status.REGRESSED: "If intended: --bandwidth-update.",
    Status.NOT_COMPARABLE: "If intended: --bandwidth-update; else measure as the baseline did.",
    Status.NO_BASELINE: "To write it: --bandwidth-update-new.",
    Status.INVALID: "Quiet the device and run again.",
    Status.DEVICE: "Look at the device (clocks, temperature, other users), and at the test's input data.",
    Status.UNCONFIRMED: "Run again on a quiet machine.",
}

AGAINST_REMEDY = "If intended: accept it in review; --bandwidth-against stores nothing that could be updated."
RATIO_REMEDY = "If intended: raise max_dram_ratio in the test's marker, or declare what is moved."
FLOOR_REMEDY = "If intended: lower the floor in the test's marker."
# What an update of the baseline would mend, were there one.
_BY_UPDATE = (Status.REGRESSED, Status.NOT_COMPARABLE, Status.NO_BASELINE)


def failure_message(
    name: str,
    measurement: Measurement,
    verdict: Verdict,
    causes: tuple[str, ...] = (),
    *,
    against: bool = False,
    profile: str | None = None,
) -> str:
    """Write the message of a verdict that fails its test. against: it compares with a revision, not with a baseline.

    profile: the path of a profiler's report.
    """
    parts = [f"{name} {observation(measurement)}."]
    if verdict.status is Status.REGRESSED and verdict.code == "drop":
        parts.append(_limit(verdict))
        if verdict.why_not:
            parts.append(f"{verdict.why_not[0].upper()}{verdict.why_not[1:]}.")
    else:
        parts.append(f"{verdict.status}: {verdict.reason}.")
    if verdict.confirmations:
        parts.append(_confirmed(verdict))
    elif verdict.status is Status.REGRESSED and verdict.code == "drop":
        parts.append("Not confirmed in fresh processes (--bandwidth-confirm=0).")
    if causes:
        parts.append(f"Likely cause: {'; '.join(causes)}.")
    if profile is not None:
        parts.append(f"Profile: {profile}.")
    if (remedy := _remedy(verdict, against=against)) is not None:
        parts.append(remedy)
    return " ".join(parts)


def _remedy(verdict: Verdict, *, against: bool) -> str | None:
    if verdict.status is Status.REGRESSED and is_by_floor(verdict):
        return FLOOR_REMEDY
    if verdict.code == MAX_RATIO:
        return RATIO_REMEDY
    if against and verdict.status in _BY_UPDATE:
        return AGAINST_REMEDY
    runs = min(verdict.baseline_runs or 1, FIRST_RUNS)
    if verdict.status is Status.REGRESSED and runs > 1:  # one run alone could tell little of the next drop
        return f"If intended: --bandwidth-update --bandwidth-runs={runs}."
    return REMEDIES.get(verdict.status)


def strict_message(name: str, measurement: Measurement) -> str | None:
    """Return why a test fails with `strict` though its verdict passes; None where nothing speaks against it.

    Its baseline has drifted, or its kernel touches fewer bytes than are declared.
    """
    drift = next((finding for finding in measurement.findings if finding.code == DRIFT), None)
    if drift is not None:
        return f"{name} {observation(measurement)}. Drift: {drift.text}."
    declared = measurement.traffic
    for verb, said in (("read", declared.bytes_read), ("written", declared.bytes_written)):
        seen = measurement.counts.get(f"distinct_bytes_{verb}")
        if seen is not None and seen < said:
            less = f"{seen:,} of the {said:,} bytes that are declared {verb}"
            return f"{name} touches {less}: declare what one run has to move, or let the kernel do all of its work."
    return None


def observation(measurement: Measurement) -> str:
    """Write what was seen: moved 805 MB in 2.91 ms: 277 GB/s (62 % of peak)."""
    moved = f"moved {format_bytes(measurement.bytes_moved)}"
    if measurement.seconds is None or measurement.gbps is None:
        return moved
    seen = f"{moved} in {format_seconds(measurement.seconds)}: {format_gbps(measurement.gbps)}"
    shares = []
    if measurement.peak is not None and measurement.utilization is not None:
        shares.append(f"{format_percent(measurement.utilization)} of peak")
    if measurement.relative is not None and measurement.probe_gbps is not None and is_share_told(measurement.relative):
        shares.append(f"{format_percent(measurement.relative, 1)} of the probe's {format_gbps(measurement.probe_gbps)}")
    return f"{seen} ({', '.join(shares)})" if shares else seen


def _limit(verdict: Verdict) -> str:
    reference, allowed = verdict.reference or 0.0, verdict.allowed_drop or 0.0
    least = reference * (1 - allowed)
    percent = f"−{allowed * 100:.3g} %"
    if verdict.figure == "relative":
        return (
            f"Baseline {format_percent(reference, 1)} of the probe allows ≥ {format_percent(least, 1)} ({percent}); "
            f"seen {format_percent(verdict.observed or 0, 1)} (−{(verdict.drop or 0) * 100:.3g} %)."
        )
    seen = f"−{(verdict.drop or 0) * 100:.3g} %"
    return f"Baseline {format_gbps(reference)} allows ≥ {digits(least)} ({percent}); seen {seen}."


def _confirmed(verdict: Verdict) -> str:
    count = len(verdict.confirmations)
    word = "Confirmed in" if verdict.status is Status.REGRESSED else "Seen in"
    show = (lambda v: format_percent(v, 1)) if verdict.figure == "relative" else digits
    values = confirmations_text(verdict) if is_by_floor(verdict) else ", ".join(map(show, verdict.confirmations))
    return f"{word} {count} fresh process{'' if count == 1 else 'es'} ({values})."
