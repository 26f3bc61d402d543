"""Add hardware counters to the evidence of judged tests, and profile regressions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.domain.code.ptx_normal_form import is_same_but_for_target
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.measured.measurement import NOTE, Finding
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.evidence.fresh_processes import JudgedTest
from pytest_bandwidth.evidence.processes.requests import OldKernel
from pytest_bandwidth.features.counters.counted import Counters, CountRequest
from pytest_bandwidth.features.counters.dram_traffic import (
    UNCOUNTED,
    UNPROFILED,
    CountersFailed,
    DramTraffic,
    detail_of,
)
from pytest_bandwidth.features.counters.judging import (
    has_counts,
    judged_by_counts,
    judged_uncounted,
    judged_without_counts,
)
from pytest_bandwidth.features.counters.profilers import REPORT_SUFFIX
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.options.options import places_of
from pytest_bandwidth.session.publishing.run_files import check_writable

_COUNTERS = pytest.StashKey[Counters]()


def check_profiler(config: pytest.Config, asked: str, identity: DeviceIdentity) -> None:
    """Raise UsageError where a profiler was asked for by name and cannot count."""
    if asked in ("auto", "off"):
        return
    try:
        _counters(config, asked, identity).check()
    except CountersFailed as error:
        raise UsageError(f"--bandwidth-counters: {error}") from None


def count_and_profile(
    config: pytest.Config, asked: str, reports: Path | None, test: JudgedTest, judged: dict[str, Judged]
) -> None:
    """Replace what was judged by the same with counters, and with a report on what is REGRESSED.

    asked, reports: as `--bandwidth-counters` and `--bandwidth-profile` say.
    """
    # On a GPU alone, unless a profiler was asked for by name.
    is_counted = asked != "off" and (asked != "auto" or test.identity.on_gpu)
    for key, one in judged.items():
        if is_counted:
            count = partial(_count, _counters(config, asked, test.identity), test, one.measurement.label)
            judged[key] = _judged(one, test, count) if test.is_judged else _measured(one, count)
        elif test.is_judged:
            judged[key] = judged_uncounted(one, test.test.marker.max_dram_ratio)
    if reports is None or not test.is_judged:
        return
    for key, one in judged.items():
        if one.decision.status is Status.REGRESSED:
            report = reports / f"{file_name(key, test.identity.serial)}{REPORT_SUFFIX}"
            judged[key] = _profiled(one, _counters(config, asked, test.identity), test, report)


def _counters(config: pytest.Config, asked: str, identity: DeviceIdentity) -> Counters:
    if _COUNTERS not in config.stash:
        config.stash[_COUNTERS] = Counters(asked, identity)
    return config.stash[_COUNTERS]


def _count(counters: Counters, test: JudgedTest, label: str | None, old_kernel: OldKernel | None = None) -> DramTraffic:
    """Count what DRAM moves for the measurement of a label."""
    test.tell("counts what DRAM moves")
    return counters.count(test, test.request(CountRequest, label=label, old_kernel=old_kernel))


def _judged(judged: Judged, test: JudgedTest, count: Callable[..., DramTraffic]) -> Judged:
    """Count the measurement once its verdict is known, and judge by that as well."""
    most = test.test.marker.max_dram_ratio
    try:
        first = count()
    except CountersFailed as error:
        return judged_without_counts(judged, error, most)
    old = None
    try:
        kernel = _uncounted_before(judged, test)
        if kernel is not None:
            old = count(kernel)
    except BandwidthError as error:
        text = f"what DRAM moves for the old kernel was not counted: {error}"
        judged = _with_finding(judged, Finding(UNCOUNTED, text, NOTE))
    return judged_by_counts(judged, first, most, count, old)


def _measured(judged: Judged, count: Callable[..., DramTraffic]) -> Judged:
    """Return the measurement with its count, where that can be had: who started this process judges."""
    try:
        found = count()
    except CountersFailed as error:
        return _with_finding(judged, Finding(UNCOUNTED, f"DRAM was not counted: {error}", NOTE))
    return replace(judged, measurement=detail_of(judged.measurement, found))


def _uncounted_before(judged: Judged, test: JudgedTest) -> OldKernel | None:
    """Return the old code to count here, where the entry has other code than the measurement, and no counts.

    None where there is none to be had. Raises BandwidthError where it is not safe to run.
    """
    entry = judged.entry
    if entry is None or judged.decision.status in (Status.SAVED, Status.MISMATCH) or has_counts(entry):
        return None
    kernel = test.old_kernel(judged.measurement, entry)
    return None if kernel is None or is_same_but_for_target(kernel.old, kernel.new) else kernel


def _profiled(judged: Judged, counters: Counters, test: JudgedTest, report: Path) -> Judged:
    """Profile a regression once; what becomes of that changes no verdict."""
    test.tell("profiles the regression")
    request = test.request(CountRequest, label=judged.measurement.label)
    try:
        # Where the outputs were checked, wherever a test has gone meanwhile.
        lacks = counters.profile(test, request, test.invocation.folder / report)
    except CountersFailed as error:
        return _with_finding(judged, Finding(UNPROFILED, f"no profile: {error}", NOTE))
    if lacks is not None:
        judged = _with_finding(judged, Finding(UNPROFILED, f"the profile may lack kernels: {lacks}", NOTE))
    return replace(judged, profile=str(report))


def _with_finding(judged: Judged, finding: Finding) -> Judged:
    return replace(judged, measurement=judged.measurement.with_finding(finding))


def file_name(key: str, serial: str) -> str:
    """Return a name for a file about a measurement on one device, of several that may measure it at once.

    It holds what tells the measurement apart, in letters and digits, and a hash of all of it and of the device.
    """
    digest = hashlib.sha256(f"{serial}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', key.rpartition('::')[2]).strip('-')[:80]}-{digest}"


@dataclass(frozen=True, slots=True)
class ProfileFolder:
    """Refuse a folder for profilers' reports that cannot be written; a `Reporter` that writes nothing at the end."""

    config: pytest.Config
    folder: Path

    def check(self) -> None:
        at = self.config.invocation_params.dir / self.folder
        check_writable(places_of(self.config)["profile"], at, a_file=False)

    def write(self, document: Mapping[str, Any], outcomes: Sequence[Any], suffix: str | None) -> list[str]:
        del document, outcomes, suffix
        return []
