"""Add hardware counters to the evidence of judged tests, judge by them, and profile regressions.

Counts hardly differ from run to run, even on a busy machine: they find changes that timing cannot.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import pytest

from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.code.ptx_normal_form import is_same_but_for_target
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.measured.measurement import NOTE, Finding
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import format_bytes, format_percent
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.evidence.fresh_processes import JudgedTest
from pytest_bandwidth.evidence.processes.requests import OldKernel
from pytest_bandwidth.features.counters import CountersOptions
from pytest_bandwidth.features.counters.counted import Counters, CountRequest
from pytest_bandwidth.features.counters.dram_traffic import (
    DIFFERS,
    RISEN,
    UNCOUNTED,
    UNPROFILED,
    CountersFailed,
    DramTraffic,
    detail_of,
)
from pytest_bandwidth.features.counters.profilers import REPORT_SUFFIX
from pytest_bandwidth.judging.decide import counts_of, most_allowed, with_further_evidence
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.options.options import options_of, places_of
from pytest_bandwidth.session.publishing.run_files import check_writable

_COUNTERS = pytest.StashKey[Counters]()
# Names of the rules: above the baseline's counts, above the marker's limit, no counts for that limit.
RULE_DRAM, RULE_RATIO, RULE_UNCOUNTED = "dram", "max_dram_ratio", "max_dram_ratio-uncounted"
# A smaller relative difference between DRAM bytes and declared bytes is not reported.
TOLERANCE = 0.02
# Written data may stay in the cache after a run. Fewer counted runs do not show how much that varies.
ENOUGH_COUNTS = 3


def check_options(config: pytest.Config, identity: DeviceIdentity) -> None:
    """Raise UsageError for a profiler that was named but cannot count, and for a folder that is not writable."""
    options = options_of(config, CountersOptions)
    if options.profile is not None:
        check_writable(places_of(config)["profile"], config.invocation_params.dir / options.profile, a_file=False)
    if options.counters in ("auto", "off"):
        return
    try:
        _counters(config, identity).check()
    except CountersFailed as error:
        raise UsageError(f"--bandwidth-counters: {error}") from None


def count_and_profile(config: pytest.Config, test: JudgedTest, judged: dict[str, Judged]) -> None:
    """Add counts to each judged measurement, and a profiler report to each that is REGRESSED."""
    options = options_of(config, CountersOptions)
    asked, reports, most = options.counters, options.profile, test.marker.max_dram_ratio
    # Only on a GPU, unless a profiler was named.
    is_counted = asked != "off" and (asked != "auto" or test.identity.on_gpu)
    for key, one in judged.items():
        if is_counted:
            judged[key] = _counted(one, test, _counters(config, test.identity))
        elif test.is_judged and most is not None and one.measurement.device.on_gpu:
            text = f"max_dram_ratio={most:g} is not checked without counters: run with --bandwidth-counters=auto"
            judged[key] = noted(one, UNCOUNTED, text)
    if reports is None or not test.is_judged:
        return
    for key, one in judged.items():
        if one.decision.status is not Status.REGRESSED:
            continue
        report = reports / f"{file_name(key, test.identity.serial)}{REPORT_SUFFIX}"
        test.progress.show("profiles the regression")
        request = test.request(CountRequest, label=one.measurement.label)
        try:
            # In the folder that was checked at start, even if a test has changed the current folder.
            at = test.invocation.folder / report
            lacks = _counters(config, test.identity).profile(test, request, at)
        except CountersFailed as error:
            judged[key] = noted(one, UNPROFILED, f"no profile: {error}")
            continue
        seen = one if lacks is None else noted(one, UNPROFILED, f"the profile may lack kernels: {lacks}")
        judged[key] = replace(seen, profile=str(report))


def _counters(config: pytest.Config, identity: DeviceIdentity) -> Counters:
    if _COUNTERS not in config.stash:
        config.stash[_COUNTERS] = Counters(options_of(config, CountersOptions).counters, identity)
    return config.stash[_COUNTERS]


def _counted(judged: Judged, test: JudgedTest, counters: Counters) -> Judged:
    """Count the DRAM traffic of a judged measurement, and judge by it as well."""
    label, most = judged.measurement.label, test.marker.max_dram_ratio

    def count(old_kernel: OldKernel | None = None) -> DramTraffic:
        test.progress.show("counts what DRAM moves")
        return counters.count(test, test.request(CountRequest, label=label, old_kernel=old_kernel))

    try:
        first = count()
    except CountersFailed as error:
        return judged_without_counts(judged, error, most if test.is_judged else None)
    if not test.is_judged:  # the parent process judges
        return replace(judged, measurement=detail_of(judged.measurement, first))
    old, entry = None, judged.entry
    if entry is not None and judged.decision.status not in (Status.SAVED, Status.MISMATCH):
        try:
            # Only where the entry has no counts, and other code than the measurement.
            known = any(run.dram_read is not None for run in entry.runs)
            kernel = None if known else test.old_kernel(judged.measurement, entry)
            if kernel is not None and not is_same_but_for_target(kernel.old, kernel.new):
                old = count(kernel)
        except BandwidthError as error:  # raised as well where the old code is not safe to run
            judged = noted(judged, UNCOUNTED, f"what DRAM moves for the old kernel was not counted: {error}")
    return judged_by_counts(judged, first, most, count, old)


def file_name(key: str, serial: str) -> str:
    """Return a file name for a measurement on one device; several devices may measure the same at once.

    It has the test's name and parameters in letters and digits, and a hash of the whole key and of the device.
    """
    digest = hashlib.sha256(f"{serial}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', key.rpartition('::')[2]).strip('-')[:80]}-{digest}"


# ---- comparing DRAM traffic with the declared bytes, and with the baseline's counts ----------------------------------


def declared_otherwise(declared: Traffic, moved: DramTraffic, cache_bytes: int) -> Finding | None:
    """Return the finding that DRAM moved other bytes than declared; None where it did not.

    cache_bytes: of the last cache. So many bytes may be unwritten at the beginning or the end; they are tolerated.
    """
    read, written = moved.bytes_read - declared.bytes_read, moved.bytes_written - declared.bytes_written
    differences = []
    if abs(read) > TOLERANCE * (declared.bytes_read or declared.bytes_moved):
        why = "; data read again after it left the cache, cache lines that stores first read, or undeclared reads"
        differences.append(_difference(read, "read", why))
    if abs(written) > TOLERANCE * (declared.bytes_written or declared.bytes_moved) + cache_bytes:
        differences.append(_difference(written, "written", "; partial lines, or undeclared writes"))
    if not differences:
        return None
    ratio = moved.ratio_to(declared.bytes_moved)
    times = "" if ratio is None else f" ({ratio:.2f}×)"
    return Finding(
        DIFFERS,
        f"declared {format_bytes(declared.bytes_moved)}, DRAM moved {format_bytes(moved.bytes_moved)}{times}: "
        + ", ".join(differences),
        NOTE,
    )


def judged_by_counts(
    judged: Judged,
    first: DramTraffic,
    max_ratio: float | None,
    count_again: Callable[[], DramTraffic],
    old: DramTraffic | None = None,
) -> Judged:
    """Return the judgement with the counts; REGRESSED where two counts are both too high.

    max_ratio: the marker's limit. old: the DRAM traffic of the entry's code on this device, if that was counted; it
    replaces the counts of the entry's runs. A verdict that fails already stays, with the rise as a finding. For an
    entry that is being written only max_ratio applies.
    """
    found, measurement = first, judged.measurement
    why = _too_much((first,), judged, max_ratio, old)
    if why is not None:
        try:
            counts = sorted((first, count_again()), key=lambda counted: counted.bytes_moved)
        except CountersFailed as error:
            finding = Finding(UNCOUNTED, f"{why[1]}, in one count: the second failed ({error})", NOTE)
            measurement, why = measurement.with_finding(finding), None
        else:
            why = _too_much(counts, judged, max_ratio, old)
            # Show the count that explains the verdict.
            shown = [one for one in counts if why is not None or _too_much((one,), judged, max_ratio, old) is None]
            found = (*shown, *counts)[0]
    measurement = detail_of(measurement, found)
    differs = declared_otherwise(measurement.traffic, found, _cache_bytes(judged))
    if differs is not None:
        measurement = measurement.with_finding(differs)
    if why is not None and judged.decision.status.always_fails:
        measurement, why = measurement.with_finding(Finding(RISEN, why[1], NOTE)), None
    if why is None:
        return replace(judged, measurement=measurement)
    rule, text = why
    remedy = "raise max_dram_ratio in the test's marker, or declare what is moved" if rule == RULE_RATIO else None
    decision = with_further_evidence(judged.decision, Status.REGRESSED, rule, text, "DRAM bytes", remedy)
    return replace(judged, measurement=measurement, decision=decision)


def judged_without_counts(judged: Judged, error: CountersFailed, max_ratio: float | None) -> Judged:
    """Return the judgement where counting failed: UNDECIDED where the marker asks for counts, else a finding."""
    decision = judged.decision
    if max_ratio is not None:
        text = f"max_dram_ratio cannot be checked: {error}"
        decision = with_further_evidence(decision, Status.UNDECIDED, RULE_UNCOUNTED, text, "DRAM not counted")
    if decision is not judged.decision:
        return replace(judged, decision=decision)
    return noted(judged, UNCOUNTED, f"DRAM was not counted: {error}")


def noted(judged: Judged, code: str, text: str) -> Judged:
    """Return the judgement with one more finding; the verdict stays."""
    return replace(judged, measurement=judged.measurement.with_finding(Finding(code, text, NOTE)))


def _too_much(
    counts: Sequence[DramTraffic], judged: Judged, max_ratio: float | None, old: DramTraffic | None
) -> tuple[str, str] | None:
    """Return rule and reason where each count is above the limit of the marker or the baseline; else None."""
    moved, declared = min(counts, key=lambda counted: counted.bytes_moved), judged.measurement.bytes_moved
    ratio = moved.ratio_to(declared)
    if max_ratio is not None and ratio is not None and ratio > max_ratio:
        return (
            RULE_RATIO,
            f"DRAM moved {format_bytes(moved.bytes_moved)}, {ratio:.2f}× the {format_bytes(declared)} that are "
            f"declared, max_dram_ratio is {max_ratio:g}",
        )
    if judged.entry is None or judged.decision.status in (Status.SAVED, Status.MISMATCH):
        return None
    read, written = min(one.bytes_read for one in counts), min(one.bytes_written for one in counts)
    runs, of_old = judged.entry.runs, ""
    if old is not None:
        runs = (Run(0.0, dram_read=old.bytes_read, dram_written=old.bytes_written),)
        of_old = "; the old kernel was counted here"
    changes = []
    for verb, name, now in (("read", "dram_read", read), ("wrote", "dram_written", written)):
        known = counts_of(runs, name)
        if not known:
            continue
        unwritten = _cache_bytes(judged) if name == "dram_written" and len(known) < ENOUGH_COUNTS else 0
        middle, allowed = median(known), most_allowed(known) + unwritten
        if now > allowed:
            more = f"+{format_percent(now / middle - 1, 1)}, " if middle else ""
            change = f"{format_bytes(middle)} → {format_bytes(now)} ({more}allowed {format_bytes(allowed)})"
            changes.append(f"{verb} {change}")
    return (RULE_DRAM, f"DRAM {', '.join(changes)}{of_old}") if changes else None


def _cache_bytes(judged: Judged) -> int:
    known = judged.measurement.device.facts.get("last_cache_bytes")
    return known if isinstance(known, int) else 0


def _difference(count: int, verb: str, why_more: str) -> str:
    size = format_bytes(abs(count))
    return f"{size} more {verb}{why_more}" if count > 0 else f"{size} less {verb}"
