"""Others on a host: past some use of its processors, neither a drop nor its absence can be told from theirs.

A thread that has to share its processor waits for the scheduler's tick; on a 2-core host with one core taken, a kernel
with 11 % more work took the same 16 ms as without, kernel and probe alike.
"""

from __future__ import annotations

from pytest_bandwidth.domain.measurement import Finding, Measurement

# In processors, and as a share of them.
BUSY_PROCESSORS, BUSY_SHARE = 0.5, 1 / 16


def busy_with_others(measurement: Measurement, limit: float | None = None) -> Finding | None:
    """Why a host's measurement is invalid: others used at least `limit` processors while it was taken.

    limit: half a processor or a sixteenth of all, whichever is more, unless said.
    """
    used = measurement.conditions_after.others_processors
    if not measurement.device.on_host or used is None:
        return None
    if limit is None:
        processors = measurement.device.facts.get("processors")
        limit = max(BUSY_PROCESSORS, (processors if isinstance(processors, int) else 1) * BUSY_SHARE)
    if used < limit:
        return None
    who = ", ".join(measurement.conditions_after.others)
    return Finding("others", f"others kept {used:.1f} processors busy meanwhile{f' ({who})' if who else ''}")
