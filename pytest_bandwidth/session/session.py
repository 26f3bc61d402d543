"""One pytest process's bandwidth tests: their fixtures, their verdicts, and the rows that travel with their reports."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from pytest_bandwidth.domain.errors import BandwidthError, BaselineError, DeviceUnavailable, NotOnThisDevice
from pytest_bandwidth.domain.judging.causes import likely_causes
from pytest_bandwidth.domain.judging.judge import Judged
from pytest_bandwidth.domain.measurement import Measurement
from pytest_bandwidth.domain.outcome import Outcome, Plain, outcome_of
from pytest_bandwidth.domain.roofline import CLASS_BOUNDS
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.reports.json import device_plain
from pytest_bandwidth.reports.message import drift_message, failure_message
from pytest_bandwidth.reports.terminal import header_line
from pytest_bandwidth.session.arguments import checked_tags
from pytest_bandwidth.session.fixture import Bandwidth, refuse_other_devices
from pytest_bandwidth.session.fresh.child import request_of_environment
from pytest_bandwidth.session.progress import Progress
from pytest_bandwidth.session.run import BandwidthRun
from pytest_bandwidth.session.settings import read_marker, read_settings
from pytest_bandwidth.session.stale_entries import note_absent
from pytest_bandwidth.session.xdist import invocation_of, revision_of, runs_every_test, tell_controller

# What the test's marker asks for, in each of its rows: an update goes by it. It is no part of what was measured.
ASKED = "asked"
_ROWS = pytest.StashKey[list[Plain]]()
_PACKAGE = Path(__file__).resolve().parent.parent
_SUITE = _PACKAGE / "suite"
_STDLIB = Path(sysconfig.get_path("stdlib"))


class BandwidthSession:
    """Built once bandwidth tests have been collected."""

    def __init__(self, config: pytest.Config, run: BandwidthRun, problem: BandwidthError | None) -> None:
        self._config = config
        self._run = run
        self._problem = problem
        self._progress = Progress(config)
        self._writes = False

    def header(self) -> str:
        """The line that names device, peak and baseline."""
        run = self._run
        judged_by = run.revision or run.baseline_file
        peak = run.peak
        return header_line(
            run.device.identity.name,
            None if peak is None else peak.gbps,
            None if peak is None else peak.source,
            None if judged_by is None else str(judged_by),
            run.device.identity.kind,
        )

    def wait_for_turn(self) -> None:
        """In a fresh process: waits for its turn, before any fixture of a test is set up."""
        self._run.wait_for_turn()

    def note_absent(self, items: Sequence[pytest.Item]) -> None:
        """Remembers the baseline's entries for which nothing was collected."""
        if self._problem is None and not self._config.option.collectonly and self._run.baseline is not None:
            note_absent(self._config, {key_of(item) for item in items}, self._run.baseline.entries)

    def fixture_for(self, item: pytest.Item) -> Bandwidth:
        """The test's own fixture value. Raises what is wrong with device, baseline or marker."""
        if self._problem is not None:
            raise self._problem
        marker = read_marker(list(item.iter_markers("bandwidth")))
        refuse_other_devices(marker, self._run)
        item.stash[_ROWS] = []
        self._run.begin_test()
        self._run.tell = self._progress.teller(item.name)
        self._run.note = self._progress.noter(item.name)
        return Bandwidth(self._run, marker, item.path)

    def judge(self, item: pytest.Item, fixture: Bandwidth) -> None:
        """Verdicts for all that the test measured; fails the test (pytest.fail) where one of them does."""
        settings = self._run.settings
        if settings.disable:
            return
        if not fixture.measurements:
            if self._run.strict and item.get_closest_marker("bandwidth") is not None:
                pytest.fail("marked bandwidth, and measured nothing: there is nothing to judge", pytrace=False)
            return
        key = key_of(item)
        by_key = {key if label is None else f"{key} @ {label}": m for label, m in fixture.measurements.items()}
        if self._run.order is not None:
            judged = self._run.unjudged(by_key)
        else:
            seconds = sum(m.rounds.wall_seconds for m in by_key.values())
            judged = self._run.judge(by_key, fixture.marker, item.nodeid, target_of(item), seconds)
        self._progress.clear()
        messages = self._record(item, fixture, judged)
        if not messages:
            return
        expected = [entry.xfail for k in messages if (entry := judged[k].entry) is not None and entry.xfail]
        if len(expected) == len(messages):
            pytest.xfail(f"{expected[0]} (baseline): {next(iter(messages.values()))}")
        pytest.fail("\n".join(messages.values()), pytrace=False)

    def tell_findings(self, item: pytest.Item, fixture: Bandwidth) -> None:
        """Shows what the traffic device found about a test whose body failed: it may be why."""
        traffic = [m for m in fixture.measurements.values() if m.device.counts_only]
        findings = [f.text for m in traffic for f in m.findings]
        if findings:
            item.add_report_section("call", "bandwidth findings", "\n".join(findings))

    def attach(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Puts the test's rows on its report, as plain data that xdist can carry, and the figures into JUnit's XML."""
        self._progress.clear()
        if rows := item.stash.get(_ROWS, []):
            # pytest carries further attributes of a report through xdist as they are; user_properties would land in
            # JUnit's XML, samples and all.
            vars(report)["bandwidth_rows"] = rows
            self.attach_device(report)

    def attach_device(self, report: pytest.TestReport) -> None:
        """Puts the device on a test's report, where there is one and it is to measure."""
        if self._problem is None and not self._run.settings.disable:
            vars(report)["bandwidth_device"] = device_plain(self._run.device.identity, self._run.peak)

    def finish(self) -> None:
        """In a worker with a device of its own: takes the further runs of an update, which only it may be able to."""
        settings = self._run.settings
        if not self._writes or settings.runs == 1 or not runs_every_test(self._config):
            return
        from pytest_bandwidth.session.update import further_runs

        identity = self._run.device.identity
        self._run.device.release()
        given: Plain = {"device": device_plain(identity, self._run.peak)}
        try:
            given["further"] = further_runs(settings, invocation_of(self._config), identity, lambda _: None)
        except (BandwidthError, OSError) as error:
            given["trouble"] = str(error)
        tell_controller(self._config, given)

    def _record(self, item: pytest.Item, fixture: Bandwidth, judged: Mapping[str, Judged]) -> dict[str, str]:
        """Stores a row for each measurement; returns the messages of those that fail, by key."""
        failures = {}
        file, line, _ = item.location
        for key, one in judged.items():
            message = None
            if one.verdict.status.fails(strict=self._run.strict):
                name = _shown_name(item, one.measurement)
                causes = likely_causes(one.measurement, one.entry)
                against = self._run.revision is not None
                message = failure_message(name, one.measurement, one.verdict, causes, against=against)
            elif self._run.strict:
                message = drift_message(_shown_name(item, one.measurement), one.measurement)
            if message is not None:
                failures[key] = message
            outcome: Outcome = outcome_of(
                item.nodeid,
                key,
                one.measurement,
                one.verdict,
                entry=one.entry,
                message=message,
                file=file,
                line=None if line is None else line + 1,
                tags=checked_tags(fixture.tags),
                class_bounds=self._run.settings.utilization_classes or CLASS_BOUNDS,
                fresh=one.fresh,
            )
            asked = {"tolerance": fixture.marker.tolerance, "judged_on": fixture.marker.judged_on}
            item.stash[_ROWS].append({**outcome.to_plain(), ASKED: asked})
            self._writes |= one.verdict.status is Status.UPDATED
            # pytest writes these to JUnit's XML; the item's list is the one that counts there.
            suffix = f"[{outcome.label}]" if outcome.label else ""
            item.user_properties.append((f"bandwidth_gbps{suffix}", outcome.gbps))
            item.user_properties.append((f"bandwidth_verdict{suffix}", outcome.status))
        return failures


def start_session(config: pytest.Config) -> BandwidthSession:
    """Opens the device and reads the baseline, so that what is wrong is said before any test runs.

    Raises pytest.UsageError, one line a problem; in an xdist worker, where that would end the worker, every bandwidth
    test fails with it instead.
    """
    order = request_of_environment()
    revision = revision_of(config) if order is None else None
    run = BandwidthRun(read_settings(config), invocation_of(config), config.rootpath, order, revision)
    problem: BandwidthError | None = None
    if not config.option.collectonly:
        try:
            run.prepare()
        except (DeviceUnavailable, BaselineError) as error:
            if not hasattr(config, "workerinput"):
                raise pytest.UsageError(*str(error).splitlines()) from None
            problem = error
    return BandwidthSession(config, run, problem)


def key_of(item: pytest.Item) -> str:
    """The baseline's key of a test: its node id; ``package.module::test`` where pytest found the file by --pyargs."""
    nodeid = item.nodeid
    file, _, rest = nodeid.partition("::")
    if "@" in rest and item.config.pluginmanager.hasplugin("xdist") and item.get_closest_marker("xdist_group"):
        rest = rest.rpartition("@")[0]
    module = getattr(getattr(item, "module", None), "__name__", "")
    given = [str(arg).partition("::")[0] for arg in item.config.args]
    by_name = item.config.option.pyargs and any(module == g or module.startswith(f"{g}.") for g in given)
    if by_name or _SUITE in item.path.parents:
        return f"{module or file}::{rest}"
    return f"{file}::{rest}"


def target_of(item: pytest.Item) -> str:
    """The test as a command-line argument that does not depend on the current folder."""
    _, _, rest = key_of(item).partition("::")
    return f"{item.path}::{rest}"


def _shown_name(item: pytest.Item, measurement: Measurement) -> str:
    return f"{item.name} @ {measurement.label}" if measurement.label else item.name


@contextmanager
def one_line_failures() -> Iterator[None]:
    """Turns the package's own errors into a failure of one line with its place, and NotOnThisDevice into a skip."""
    try:
        yield
    except NotOnThisDevice as reason:
        raise pytest.skip.Exception(str(reason), _use_item_location=True) from None
    except BandwidthError as error:
        place = _place(error, error.__traceback__)
        raise pytest.fail.Exception(f"{place}{error}", pytrace=False) from None


def _place(error: BandwidthError, trace: TracebackType | None) -> str:
    """``file.py:12: `` of the innermost frame that is the user's own; empty where there is none."""
    innermost: Any = error.__cause__.__traceback__ if error.__cause__ is not None else trace
    for frame in reversed(traceback.extract_tb(innermost)):
        path = Path(frame.filename)
        ours = _PACKAGE in path.parents and _SUITE not in path.parents
        library = _STDLIB in path.parents or "site-packages" in path.parts
        if not ours and not library and path.suffix == ".py" and path.exists():
            return f"{path.name}:{frame.lineno}: "
    return ""
