"""Add hardware counters to the evidence of judged tests, and profile regressions."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_bandwidth.domain.code.ptx_normal_form import is_same_but_for_target
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
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
from pytest_bandwidth.features.counters.judging import judged_by_counts, judged_uncounted, judged_without_counts, noted
from pytest_bandwidth.features.counters.profilers import REPORT_SUFFIX
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.options.options import places_of
from pytest_bandwidth.session.publishing.run_files import check_writable

_COUNTERS = pytest.StashKey[Counters]()


def check_options(config: pytest.Config, asked: str, reports: Path | None, identity: DeviceIdentity) -> None:
    """Raise UsageError where a profiler was asked for by name and cannot count, or reports cannot be written."""
    if reports is not None:
        check_writable(places_of(config)["profile"], config.invocation_params.dir / reports, a_file=False)
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
            judged[key] = _counted(one, test, _counters(config, asked, test.identity))
        elif test.is_judged:
            judged[key] = judged_uncounted(one, test.test.marker.max_dram_ratio)
    if reports is None or not test.is_judged:
        return
    for key, one in judged.items():
        if one.decision.status is not Status.REGRESSED:
            continue
        report = reports / f"{file_name(key, test.identity.serial)}{REPORT_SUFFIX}"
        test.tell("profiles the regression")
        request = test.request(CountRequest, label=one.measurement.label)
        try:
            # Where the outputs were checked, wherever a test has gone meanwhile.
            at = test.invocation.folder / report
            lacks = _counters(config, asked, test.identity).profile(test, request, at)
        except CountersFailed as error:
            judged[key] = noted(one, UNPROFILED, f"no profile: {error}")
            continue
        seen = one if lacks is None else noted(one, UNPROFILED, f"the profile may lack kernels: {lacks}")
        judged[key] = replace(seen, profile=str(report))


def _counters(config: pytest.Config, asked: str, identity: DeviceIdentity) -> Counters:
    if _COUNTERS not in config.stash:
        config.stash[_COUNTERS] = Counters(asked, identity)
    return config.stash[_COUNTERS]


def _counted(judged: Judged, test: JudgedTest, counters: Counters) -> Judged:
    """Count the measurement once its verdict is known, and judge by that as well."""
    label, most = judged.measurement.label, test.test.marker.max_dram_ratio

    def count(old_kernel: OldKernel | None = None) -> DramTraffic:
        test.tell("counts what DRAM moves")
        return counters.count(test, test.request(CountRequest, label=label, old_kernel=old_kernel))

    try:
        first = count()
    except CountersFailed as error:
        return judged_without_counts(judged, error, most if test.is_judged else None)
    if not test.is_judged:  # who started this process judges
        return replace(judged, measurement=detail_of(judged.measurement, first))
    old, entry = None, judged.entry
    if entry is not None and judged.decision.status not in (Status.SAVED, Status.MISMATCH):
        try:
            # Where the entry has other code than the measurement, and no counts.
            known = any(run.dram_read is not None for run in entry.runs)
            kernel = None if known else test.old_kernel(judged.measurement, entry)
            if kernel is not None and not is_same_but_for_target(kernel.old, kernel.new):
                old = count(kernel)
        except BandwidthError as error:  # raised as well where the old code is not safe to run
            judged = noted(judged, UNCOUNTED, f"what DRAM moves for the old kernel was not counted: {error}")
    return judged_by_counts(judged, first, most, count, old)


def file_name(key: str, serial: str) -> str:
    """Return a name for a file about a measurement on one device, of several that may measure it at once.

    It holds what tells the measurement apart, in letters and digits, and a hash of all of it and of the device.
    """
    digest = hashlib.sha256(f"{serial}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', key.rpartition('::')[2]).strip('-')[:80]}-{digest}"
