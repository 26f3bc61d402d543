"""Decide whether a measurement can be judged, and give the reason where it cannot.

A thread that shares its processor waits for the scheduler's tick. On a 2-core host with one core busy, a kernel took
16 ms with and without 11 % more work, and so did its probe. Rounds in which a thread waited are therefore dropped. A
measurement is invalid where too few rounds are left. Where the system does not report waiting threads, a measurement is
invalid if others use too much of the host's processors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.measured.measurement import (
    HELD_UP,
    LARGEST_FLOP_SHARE,
    LARGEST_SHARE,
    RUN_DELAY,
    WRONG,
    Finding,
    Measurement,
    is_warm,
)
from pytest_bandwidth.domain.units import MAX_GBPS, digits, format_bytes, format_gbps, format_percent, format_seconds

CLOCK, FASTER_THAN_LIGHT, ABOVE_PROBE, NO_WORK = "clock", "faster-than-light", "above-probe", "no-work"
# Findings that make a measurement invalid by its own samples alone, and no other that was sampled in the same rounds.
OF_OWN_SAMPLES = (CLOCK, FASTER_THAN_LIGHT, ABOVE_PROBE, NO_WORK)
OTHERS = "others"
# Findings that disappear when other processes end.
OF_OTHERS = (OTHERS, RUN_DELAY, HELD_UP)
TAKEN_AGAIN = "taken-again"
# Of writes of so many times the cache's size, the cache keeps at most a sixteenth.
ENOUGH_CACHES = 16
# The time of a shorter probe is mostly its call: with cold caches, 20 to 60 µs for 4 KiB on a 2-core host.
PROBE_CALL_SECONDS = 1e-4
# No host's memory is slower: the threads of a slower probe waited for a processor, or its call took the time.
LEAST_PROBE_GBPS = 2.0
# Where others keep processors busy, a probe's threads wait: 64 MiB took five times as long on 2 cores at load 8, forty
# times as long at load 13.
HINDERED_FACTOR = 20
# In a measurement's `detail`, on a host: the least time of calling a function that does nothing, in seconds.
CALL_SECONDS = "call_seconds"
# With cold caches, such a call took 8 to 12 µs on a 2-core host, with or without other load. The fastest sample of a
# function that does nothing took 1.05 to 1.48 times that. Functions that moved more than 2 GB/s took at least 1.8
# times that in ten runs (copies of 32 KiB by a memoryview, a bytearray, Numba, NumPy).
LONGER_FACTOR = 1.5
MOST_TRIES_NAMED = 3
# Limits of `busy_with_others`: in processors, and as a share of them.
BUSY_PROCESSORS, BUSY_SHARE = 0.5, 1 / 16


def why_invalid(measurement: Measurement) -> Finding | None:
    """Return why a timed measurement is invalid by its samples, its peak or others on the GPU; None for a valid one."""
    rounds, on_gpu = measurement.rounds, measurement.device.on_gpu
    if rounds.kernel_seconds:
        if any(seconds <= 0 for seconds in (*rounds.kernel_seconds, *rounds.probe_seconds)):
            return Finding(
                CLOCK, "a sample took no time: the work ran elsewhere, or is shorter than the clock's resolution", WRONG
            )
        if (wrong := faster_than_light(measurement) or above_probe(measurement)) is not None:
            return wrong
    elif rounds.disturbed != len(rounds.dropped) or not rounds.too_disturbed:
        reasons = sorted({d.reason for d in rounds.dropped})
        return Finding("no-samples", f"no sample was left: {len(rounds.dropped)} dropped ({'; '.join(reasons)})")
    if rounds.too_disturbed:
        many = f"{rounds.disturbed} of {rounds.disturbed + len(rounds.kernel_seconds)} rounds"
        who = ", ".join(measurement.conditions_after.others)
        seen = f" ({who})" if who else ""
        if on_gpu:
            unseen = (
                "" if who else "; no other process is visible, as in a container: run on a GPU that nobody else uses"
            )
            text = f"other work ran on the GPU in {many}{seen}: the probe took longer{unseen}"
            return Finding(HELD_UP, text)
        share = "" if rounds.run_delay is None else f", {format_percent(rounds.run_delay)} of their time"
        return Finding(RUN_DELAY, f"its threads waited for a processor in {many}{share}{seen}")
    others = measurement.conditions_before.others + measurement.conditions_after.others
    if on_gpu and others:
        return Finding(OTHERS, f"other processes were active on the GPU: {', '.join(sorted(set(others)))}")
    return None


def faster_than_light(measurement: Measurement) -> Finding | None:
    """Return why the work cannot be done in the measured time; None where it can.

    No memory reaches its peak, so errors of the clock need no further margin.
    """
    # Without a known peak, or with a warm cache: a bandwidth that no memory reaches, and no baseline gives.
    known, gbps = None if is_warm(measurement.method) else measurement.peak, measurement.gbps
    peak = known or Peak(MAX_GBPS * 1e9, "of any memory")
    seconds, by_bytes, by_flop = measurement.seconds, measurement.least_by_bytes, measurement.least_by_flop
    if gbps is None or seconds is None:
        return None
    if gbps * 1e9 > peak.bytes_per_second:
        text = _declared_too_fast(measurement, gbps, peak)
    elif by_bytes is not None and by_bytes.seconds > seconds:
        text = (
            f"its median is {format_seconds(seconds)}, and the {format_bytes(by_bytes.amount)} that its kernel touches "
            f"need {format_seconds(by_bytes.seconds)} at the peak of {format_gbps(peak.gbps)} ({peak.source}): check "
            "whether its arrays stay in a cache, and the declared bytes"
        )
    # A host's FLOP/s are measured once, perhaps on a busy machine: faster work is possible.
    elif by_flop is not None and measurement.device.on_gpu and by_flop.seconds > LARGEST_FLOP_SHARE * seconds:
        reached, most = (digits(flops / 1e12) for flops in (by_flop.amount / seconds, by_flop.rate))
        by = "tensor cores" if by_flop.rate == measurement.tensor_flops else measurement.precision
        text = (
            f"{reached} TFLOP/s are more than the {most} of {by} in its datasheet: check flop= and precision=, and "
            "whether the kernel computes all of it"
        )
    else:
        return None
    return Finding(FASTER_THAN_LIGHT, text, WRONG)


def _declared_too_fast(measurement: Measurement, gbps: float, peak: Peak) -> str:
    text = (
        f"{format_gbps(gbps)} is more than the peak of {format_gbps(peak.gbps)} ({peak.source}): the work was served "
        f"from a cache, or moves less than the {format_bytes(measurement.bytes_moved)} that are declared"
    )
    # Written bytes may still be in the GPU's cache when the timing ends.
    cache_bytes, written = measurement.device.facts.get("last_cache_bytes"), measurement.traffic.bytes_written
    if isinstance(cache_bytes, int) and measurement.traffic.bytes_read < written <= ENOUGH_CACHES * cache_bytes:
        text += (
            f"; up to {format_bytes(min(cache_bytes, written))} of the {format_bytes(written)} that it writes may stay "
            f"in the cache at its end: write {format_bytes(ENOUGH_CACHES * cache_bytes)} or more"
        )
    return text


def above_probe(measurement: Measurement) -> Finding | None:
    """Return why a figure far above the probe's cannot be true; None where it can be.

    The probe's fastest sample counts, since other processes hindered it least. The limit is far higher where they
    probably hindered it as well. A known peak replaces the limit. A probe as short as a call is no reference: in some
    processes a cold call takes five times as long as in others, as much as copying half a megabyte. A host's callable
    is then compared with a function that does nothing.
    """
    rounds, gbps, device = measurement.rounds, measurement.gbps, measurement.device
    if gbps is None or not rounds.probe_seconds:
        return None
    fastest_seconds, probe_seconds = min(rounds.kernel_seconds), min(rounds.probe_seconds)
    probe_gbps = rounds.probe_bytes / probe_seconds / 1e9
    believed_gbps, processors = max(probe_gbps, LEAST_PROBE_GBPS), device.facts.get("processors")
    # NumPy's probe has one thread, and its workload may use every processor.
    alone = device.on_host and device.settings.get("threads") == "numpy"
    largest_share = LARGEST_SHARE * (processors if alone and isinstance(processors, int) else 1)
    declared = f"the {format_bytes(measurement.bytes_moved)} that are declared"
    if probe_seconds < PROBE_CALL_SECONDS:
        call_seconds = measurement.detail.get(CALL_SECONDS)
        if not isinstance(call_seconds, float) or fastest_seconds > LONGER_FACTOR * call_seconds:
            return None
        if gbps <= largest_share * believed_gbps:
            return None
        return Finding(
            NO_WORK,
            f"its fastest sample took {format_seconds(fastest_seconds)}, as an empty function does "
            f"({format_seconds(call_seconds)}), so it cannot have moved {declared}; expected a callable that does its "
            "work when it "
            "is called",
            WRONG,
        )
    others = measurement.conditions_after.others_processors
    if probe_gbps < LEAST_PROBE_GBPS or busy_with_others(measurement, others) is not None:
        largest_share *= HINDERED_FACTOR
    if measurement.peak is not None or gbps <= largest_share * believed_gbps:
        return None
    return Finding(
        ABOVE_PROBE,
        f"{format_gbps(gbps)} is more than {format_percent(largest_share)} of the probe's fastest sample "
        f"({format_gbps(probe_gbps)}): the work moves less than {declared}; if it does not, set bandwidth_peak in the "
        "ini file to what the memory reaches",
    )


def busy_with_others(measurement: Measurement, used: float | None, limit: float | None = None) -> Finding | None:
    """Return why a host's measurement is invalid where others used `limit` processors or more; None for fewer.

    limit: half a processor or a sixteenth of all, whichever is more, unless given.
    """
    if not measurement.device.on_host or used is None:
        return None
    if limit is None:
        processors = measurement.device.facts.get("processors")
        limit = max(BUSY_PROCESSORS, (processors if isinstance(processors, int) else 1) * BUSY_SHARE)
    if used < limit:
        return None
    who = ", ".join(measurement.conditions_after.others)
    return Finding(OTHERS, f"other processes kept {used:.1f} processors busy meanwhile{f' ({who})' if who else ''}")


def validated(measurement: Measurement, peak: Peak | None, busy_processors: float | None = None) -> Measurement:
    """Return a device's measurement with the run's peak, and with the reason why it is invalid, if any.

    Where rounds are kept in which a thread waited for a processor, there is no share of the probe. Such a probe is slow
    for another reason than memory, and the share would hide that a kernel became slower.

    peak: the user's, or else the device's. busy_processors: the limit of `busy_with_others`. Where it is not given and
    the system reports waiting threads, only the hypervisor's processors are compared with the default limit.
    """
    held = replace(measurement, peak=peak)
    if measurement.device.counts_only:  # nothing was timed
        return held
    after, accounted = held.conditions_after, busy_processors is None and held.rounds.run_delay is not None
    used = after.stolen_processors if accounted else after.others_processors
    held = replace(held, invalid=why_invalid(held) or busy_with_others(held, used, busy_processors))
    return replace(held, rounds=replace(held.rounds, probe_seconds=())) if held.rounds.disturbed_count else held


def with_earlier_tries(measurement: Measurement, why: Sequence[str]) -> Measurement:
    """Return the measurement with a finding on why the tries before it were invalid."""
    if not why:
        return measurement
    if measurement.invalid is None:
        text = f"taken again, since it was invalid before: {'; '.join(why[-MOST_TRIES_NAMED:])}"
    else:
        text = f"{len(why)} tries before were invalid as well: {'; '.join(why[-MOST_TRIES_NAMED:])}"
    return measurement.with_finding(Finding(TAKEN_AGAIN, text))


def interleaved_measurement(first: Measurement, label: str, seconds: tuple[float, ...]) -> Measurement:
    """Return the measurement of a callable that was sampled in another's rounds.

    It is invalid by its own samples, or because of the device or other processes in those rounds.
    seconds: its samples, one a round.
    """
    rounds = replace(first.rounds, kernel_seconds=seconds, host_kernel_seconds=(), interleaved=())
    one = replace(first, label=label, rounds=rounds, value=None, invalid=None)
    own = why_invalid(one)
    if first.invalid is None:
        return replace(one, invalid=own)
    if first.invalid.code in OF_OWN_SAMPLES:
        of_others = tuple(finding for finding in first.findings if finding.code != TAKEN_AGAIN)
        return replace(one, invalid=own, findings=of_others)
    return replace(one, invalid=own or first.invalid)


def why_no_evidence(row: Mapping[str, Any], peak: Peak | None) -> str | None:
    """Return why a fresh process's row cannot be judged; None where it can.

    peak: the run's. The fresh process read no baseline, which may give it.
    """
    if not row.get("is_valid", True) or not row.get("gbps"):
        return str(row.get("reason"))
    if peak is not None and row["gbps"] > peak.gbps and not is_warm(str(row.get("method"))):
        return f"{format_gbps(row['gbps'])} is more than the peak"
    return None
