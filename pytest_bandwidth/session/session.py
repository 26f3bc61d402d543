"""Measure and judge one pytest process's bandwidth tests; their rows travel with pytest's reports."""

from __future__ import annotations

import difflib
import inspect
import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path

import pytest

from pytest_bandwidth.baseline.code_files import code_change
from pytest_bandwidth.devices.base import Watch
from pytest_bandwidth.domain.code.identity import CODE_CHANGED, FUNCTION_CHANGED
from pytest_bandwidth.domain.device import DeviceIdentity, Peak, device_plain
from pytest_bandwidth.domain.errors import (
    BandwidthError,
    BaselineError,
    DeviceUnavailable,
    NotOnThisDevice,
    UsageError,
)
from pytest_bandwidth.domain.measured.measurement import CODE_DIFF, FORTRAN_ORDER, NOT_EXECUTED, NOTE, XPASS, Finding
from pytest_bandwidth.domain.measured.roofline import CLASS_BOUNDS
from pytest_bandwidth.domain.text import listed, shown
from pytest_bandwidth.domain.units import parse_gbps
from pytest_bandwidth.domain.user_code import UserHookFailed, brought, named_failures, place_of
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.evidence.commit_pairs.process import NO_ROWS
from pytest_bandwidth.evidence.fresh_processes import JudgedTest, further_runs, left_to_parent
from pytest_bandwidth.evidence.processes.requests import request_of
from pytest_bandwidth.fixture.bandwidth import Bandwidth
from pytest_bandwidth.fixture.input import check_detail, checked_tags, refuse_other_devices
from pytest_bandwidth.fixture.watched import Watched
from pytest_bandwidth.judging.causes import likely_causes
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.measuring.measurer import Measurer
from pytest_bandwidth.measuring.progress import Progress, ProgressLine
from pytest_bandwidth.options.errors import called_hook
from pytest_bandwidth.options.options import places_of, read_marker, settings_of, usage_error
from pytest_bandwidth.outcomes.outcome import Plain, outcome_of
from pytest_bandwidth.outcomes.run_findings import Unmeasurable
from pytest_bandwidth.read_files.listing import ReadFiles, files_of_test
from pytest_bandwidth.read_files.opened import watching
from pytest_bandwidth.reports import wording
from pytest_bandwidth.reports.terminal import header_line
from pytest_bandwidth.reports.text_safe import printable, printable_lines, printable_sentence
from pytest_bandwidth.session.collection import COLLECTED, by_test, entries_of, key_of, reason_of
from pytest_bandwidth.session.judge import Judge
from pytest_bandwidth.session.publishing.gathered import Row, verdict_reason
from pytest_bandwidth.session.publishing.run_files import check_outputs, conftest_hooks
from pytest_bandwidth.session.run import invocation_of, revision_of, uncommitted_code

_ROWS = pytest.StashKey[list[Row]]()
# Why a test skipped on this device: it is for other devices, or this device does not support it.
_NOT_HERE = pytest.StashKey[str]()
_KEYWORDS = {
    name: list(inspect.signature(getattr(Bandwidth, name)).parameters)[1:]
    for name in ("launch", "bind", "compare", "kernel", "random", "empty")
}
# Python's message for an unknown keyword argument of a fixture's method; Python 3.10 leaves the class out.
_MISSPELT = re.compile(rf"^(?:Bandwidth\.)?({'|'.join(_KEYWORDS)})\(\) got an unexpected keyword argument '(\w+)'")


class BandwidthSession:
    """Connect the run's measurer and judge with pytest's tests; made if a run has tests that measure.

    judge: None in a child, whose parent judges.
    """

    def __init__(
        self, config: pytest.Config, measurer: Measurer, judge: Judge | None, problem: BandwidthError | None
    ) -> None:
        self._config = config
        self._measurer, self._judge = measurer, judge
        self._settings, self._request, self._invocation = measurer.settings, request_of(config), invocation_of(config)
        self._strict = measurer.settings.strict and judge is not None
        self._problem = problem
        self._line = ProgressLine(config)
        self._writes = False
        # The message of `finish` for the controller, if this process is the controller.
        self.at_end: Plain | None = None
        self._unmeasurable = Unmeasurable()
        # Why tests failed, by node id.
        self._failing: dict[str, str] = {}
        # Node ids of the bandwidth tests, by file; set when the first test requests the fixture.
        self._by_file: dict[Path, list[str]] | None = None

    def header(self) -> list[str]:
        """Return lines: one with device, peak and baseline, then notes on old kernels and on uncommitted files."""
        judge, settings = self._judge, self._settings
        identity, peak = self._measurer.device.identity, self._measurer.peak
        if settings.disable:
            once = "kernels are executed once, uncounted" if identity.counts_only else "bodies run once, untimed"
            return [f"bandwidth: {printable(identity.name)}; disabled: {once}; nothing is judged"]
        judged_by = None if judge is None else judge.judged_by
        lines = [header_line(device_plain(identity, peak), judged_by)]
        if judge is None:
            return lines
        if judge.baseline is not None and judge.baseline.note is not None:
            lines.append(f"bandwidth: {printable(judge.baseline.note)}")
        # Timed runs of an update belong to a commit.
        updates = settings.writes_baseline and not identity.counts_only
        if updates and (uncommitted := uncommitted_code(self._config.rootpath, settings.baseline)):
            lines.append(
                f"bandwidth: {printable(listed(uncommitted, 1))} is not committed: commit it before this update, so "
                "that later runs can compare with this code"
            )
        return lines

    def wait_for_turn(self) -> None:
        """In a fresh process, wait for its turn to measure, before any fixture of a test is set up."""
        if self._request is not None:
            self._measurer.turns_of = self._request.begin(self._measurer.device)

    def note_collected(self, dropped: Sequence[pytest.Item]) -> None:
        """Record the baseline's entries for which no test will run. dropped: tests without the fixture."""
        collected = self._config.stash.get(COLLECTED, None)
        if collected is not None and self._entries_by_test:
            self._unmeasurable = collected.unmeasurable(self._baseline_keys, dropped)

    def fixture_for(self, request: pytest.FixtureRequest) -> Bandwidth:
        """Make the fixture's value for the test. Raises BandwidthError for problems of device, baseline or marker."""
        item = request.node
        if self._problem is not None:
            raise self._problem
        marker = read_marker(list(item.iter_markers("bandwidth")))
        device, judge = self._measurer.device, self._judge
        device.choose(getattr(request, "param", None))
        refuse_other_devices(marker, device.chosen)
        item.stash[_ROWS] = []
        device.begin_test()
        request.addfinalizer(device.end_test)
        if self._by_file is None:
            self._by_file = {}
            for one in item.session.items:
                if "bandwidth" in getattr(one, "fixturenames", ()):
                    self._by_file.setdefault(one.path, []).append(one.nodeid)
        of_file = self._by_file.get(item.path, [])
        if "bandwidth" not in getattr(item, "fixturenames", ()):  # it requests the fixture in its body
            of_file = [*of_file, item.nodeid]
        line = Progress(item.name, self._line)
        rows = NO_ROWS if judge is None else judge.rows_elsewhere(item.nodeid, item.path, of_file, line)
        files = partial(files_of_test, self._read_files, request)
        return Bandwidth(self._measurer, marker, item.path, line, rows, files, self._watching)

    def _watching(self, watched: Watched) -> list[Watch]:
        """Return the watches of the hook `pytest_bandwidth_watch` for a measurement."""
        found = called_hook(self._config, "pytest_bandwidth_watch", watched=watched)
        return brought("pytest_bandwidth_watch", [found], Watch)

    @cached_property
    def _read_files(self) -> ReadFiles | None:
        opened = watching()
        return None if opened is None else ReadFiles(opened, self._config.getini("python_files"))

    def judge(self, item: pytest.Item, fixture: Bandwidth) -> None:
        """Judge all of the test's measurements; fail the test (pytest.fail) if one verdict fails it."""
        if self._settings.disable:
            return
        outside = self._refuted(fixture)
        if not fixture.measurements:
            if outside is not None:
                self._fail(item, outside, Rule.OUT_OF_BOUNDS)
            if self._strict and item.get_closest_marker("bandwidth") is not None:
                self._fail(item, "marked bandwidth, and measured nothing: there is nothing to judge")
            if self._strict and fixture.called:
                caught = "called bandwidth, caught its error, and measured nothing: there is nothing to judge"
                self._fail(item, f"{caught}; let it raise")
            return
        judged = self._judged(item, fixture)
        messages = self._record(item, fixture, judged)
        if not messages:
            return
        expected = [entry.xfail for k in messages if (entry := judged[k].entry) is not None and entry.xfail]
        if len(expected) == len(messages):
            pytest.xfail(printable_sentence(f"{expected[0]} (baseline): {next(iter(messages.values()))}"))
        pytest.fail("\n".join(messages.values()), pytrace=False)

    def _refuted(self, fixture: Bandwidth) -> str | None:
        """Refute the test's measurements if it wrote out of its arrays' bounds; return a text about those writes."""
        outside = None if self._judge is None else self._measurer.device.written_out_of_bounds()
        if outside is not None:
            found = Finding(Rule.OUT_OF_BOUNDS, outside)
            fixture.measurements = {label: one.refuted(found) for label, one in fixture.measurements.items()}
        return outside

    def judge_without_fixture(self, item: pytest.Item) -> None:
        """With strict, fail a test that has the marker and does not take the fixture: nothing checks its floors.

        A marker of its class or module, or from a conftest.py, is ignored here: it may be for other tests.
        """
        marks = getattr(getattr(item, "function", None), "pytestmark", ())
        if self._problem is not None or self._settings.disable or not self._strict:
            return
        if any(mark.name == "bandwidth" for mark in marks):
            without = "marked bandwidth, and does not take the fixture `bandwidth`: there is nothing to judge"
            self._fail(item, f"{without}; take it, or remove the marker")

    def judge_failed(self, item: pytest.Item, fixture: Bandwidth, error: BaseException) -> None:
        """Show findings of a test whose body failed, and judge its counts: they may explain the failure.

        Timed measurements are not judged, because new processes would run a failing test. Of their findings only those
        about arguments are shown. A test that skips because its kernel is not executed is judged like others.
        """
        if self._settings.disable:
            return
        outside = None
        with suppress(BandwidthError):  # the test has failed already, by its own error
            outside = self._refuted(fixture)
        if outside is not None:
            item.add_report_section("call", "bandwidth findings", printable_lines(outside))
        if not fixture.measurements:
            return
        counted = self._measurer.device.identity.counts_only
        found = [finding for measured in fixture.measurements.values() for finding in measured.findings]
        if isinstance(error, NotOnThisDevice) and any(one.code == NOT_EXECUTED for one in found):
            self.judge(item, fixture)
            return
        findings = [one.text for one in found if counted or one.code == FORTRAN_ORDER]
        if findings:
            item.add_report_section("call", "bandwidth findings", printable_lines("\n".join(findings)))
        if not counted:
            return
        try:
            messages = self._record(item, fixture, self._judged(item, fixture))
        except BandwidthError as error:  # the test has failed already, by its own error
            messages = {"": printable_lines(str(error))}
        if messages:
            item.add_report_section("call", "bandwidth verdict", "\n".join(messages.values()))

    def begin(self, item: pytest.Item) -> None:
        """Forget the failure of an earlier attempt: a plugin may run the test again."""
        self._failing.pop(item.nodeid, None)

    def note_failed(self, item: pytest.Item, reason: str) -> None:
        """Record that a test failed: a plugin may change its report before the controller gets it."""
        if self._problem is None and not self._settings.disable:
            self._failing.setdefault(item.nodeid, reason)

    def _fail(self, item: pytest.Item, reason: str, code: str = "not-measured") -> None:
        self.note_failed(item, reason)
        pytest.fail(f"{reason}\n{wording.help_line(code)}", pytrace=False)

    def attach(self, item: pytest.Item, report: pytest.TestReport, *, subtest_failed: bool = False) -> None:
        """Add the test's rows to its report, as text that xdist can send.

        With strict, fail a test that passed or skipped and left entries of the baseline unmeasured. Without strict,
        fail such a test only if this device measured it before and cannot measure it now.
        subtest_failed: whether a subtest failed; the report of a unittest test is "passed" even then.
        """
        self._line.clear()
        rows = item.stash.get(_ROWS, [])
        expected_to_fail = hasattr(report, "wasxfail") and report.skipped
        if rows and report.when == "call":
            if expected_to_fail:
                rows = [replace(row, outcome=replace(row.outcome, xfail=report.wasxfail)) for row in rows]
            # pytest sends further attributes of a report through xdist unchanged. user_properties would put all samples
            # into JUnit's XML. xdist packs nested values one by one, in Python, but a single text at once.
            vars(report)["bandwidth_rows"] = json.dumps([row.to_plain() for row in rows])
            vars(report)["bandwidth_subtest_failed"] = subtest_failed
            self.attach_device(report)
        if report.failed or (report.when != "call" and not report.skipped):
            return
        reason = item.stash.get(_NOT_HERE, None)
        not_measured = self._not_measured(item, report, {row.outcome.key for row in rows})
        # This device measured the test once, and cannot any more: for example, its kernel is not modelled now.
        no_longer = reason is not None and self._is_of_this_device(item)
        if not_measured and (self._strict or no_longer) and not expected_to_fail:
            report.outcome = "failed"
            lines = [printable_sentence(f"{key} is in the baseline, and {why}") for key, why in not_measured.items()]
            report.longrepr = "\n".join((*lines, wording.help_line("not-measured")))
            self.note_failed(item, "\n".join(lines))
        if not_measured or reason is not None:
            vars(report)["bandwidth_missing"] = {"not_measured": not_measured, "skipped": reason}
            self.attach_device(report)

    def attach_device(self, report: pytest.TestReport) -> None:
        """Add the device to a test's report, if the device is available and the run measures."""
        if self._problem is not None or self._settings.disable:
            return
        plain = device_plain(self._measurer.device.identity, self._measurer.peak)
        vars(report)["bandwidth_device"] = json.dumps(plain)

    def finish(self, running: Sequence[pytest.Item]) -> None:
        """Send the controller the failed tests, unmeasurable entries, due entries, and an update's further runs.

        A worker with its own device takes the further runs here, because other processes may not reach that device.
        running: the tests that were selected to run.
        """
        settings, unmeasurable, due = self._settings, self._unmeasurable, {}
        # A worker that runs all tests may have a device of its own.
        runs_all = getattr(self._config, "workerinput", {}).get("bandwidth_every_test")
        takes_further = self._writes and settings.runs > 1 and runs_all
        collected = self._config.stash.get(COLLECTED, None)
        if collected is not None and self._entries_by_test:
            left_out, exempt = collected.left_out(self._baseline_keys, running)
            not_measured = left_out | unmeasurable.not_measured
            unmeasurable = replace(unmeasurable, not_measured=not_measured, exempt=unmeasurable.exempt + exempt)
            due = {item.nodeid: sorted(keys) for item in running if (keys := self.entries_of(item))}
        is_worker = hasattr(self._config, "workerinput")
        hooks = sorted(conftest_hooks(self._config)) if is_worker and self._problem is None else []
        if not (takes_further or self._failing or due or hooks or unmeasurable != Unmeasurable()):
            return
        identity, peak = self._measurer.device.identity, self._measurer.peak
        given: Plain = {
            "device": device_plain(identity, peak),
            "unmeasurable": asdict(unmeasurable),
            "failing": self._failing,
            "due": due,
            "hooks": hooks,
        }
        if takes_further:
            try:
                self._measurer.device.release()
                given["further"] = further_runs(settings, self._invocation, identity, peak, lambda _: None)
            except (BandwidthError, OSError) as error:
                given["trouble"] = str(error)
        if is_worker:
            # xdist sets `workeroutput` on a worker's config, and sends it to the controller.
            vars(self._config)["workeroutput"]["bandwidth_at_end"] = given
        else:
            self.at_end = given

    def _not_measured(self, item: pytest.Item, report: pytest.TestReport, measured: set[str]) -> dict[str, str]:
        """Return, by key, why entries of this test were not measured."""
        missing = self.entries_of(item) - measured
        if not missing:
            return {}
        if hasattr(report, "wasxfail"):
            why = f"the test is marked xfail and measured nothing: {report.wasxfail}"[:200]
        elif report.skipped:
            why = f"the test skipped: {reason_of(report)}"
        elif measured:
            why = "the test passed without measuring it"
        elif "bandwidth" not in getattr(item, "fixturenames", ()):
            why = "the test does not take the fixture `bandwidth`"
        else:
            why = "the test passed and measured nothing"
        return dict.fromkeys(sorted(missing), why)

    def entries_of(self, item: pytest.Item) -> set[str]:
        """Return the keys of the test's entries in the baseline; empty where nothing is compared.

        The test may have entries even if it does not take the fixture any more.
        """
        return entries_of(item, self._entries_by_test)

    @property
    def _baseline_keys(self) -> Collection[str]:
        if self._problem is not None or self._settings.disable or self._judge is None:
            return ()
        baseline = self._judge.baseline
        # The run need not measure the entries of another device.
        return () if baseline is None or baseline.code_of is not None else baseline.entries

    def _is_of_this_device(self, item: pytest.Item) -> bool:
        """Return whether the run compares with a baseline of this device, and the test's marker allows the device.

        A baseline of another device has only code.
        """
        baseline = None if self._judge is None or self._settings.writes_baseline else self._judge.baseline
        if baseline is None or baseline.device is None:
            return False
        try:
            refuse_other_devices(read_marker(list(item.iter_markers("bandwidth"))), self._measurer.device.chosen)
        except BandwidthError:
            return False
        return True

    @cached_property
    def _entries_by_test(self) -> Mapping[str, set[str]]:
        return by_test(self._baseline_keys)

    def _judged(self, item: pytest.Item, fixture: Bandwidth) -> dict[str, Judged]:
        key = key_of(item)
        by_key = {key if label is None else f"{key} @ {label}": m for label, m in fixture.measurements.items()}
        seconds = sum(m.rounds.wall_seconds for m in by_key.values())
        # A command-line argument that does not depend on the current folder.
        target = f"{item.path}::{key.partition('::')[2]}"
        test = JudgedTest(
            item.nodeid,
            target,
            fixture.marker,
            seconds,
            self._measurer,
            self._invocation,
            fixture.progress,
            is_judged=self._judge is not None,
        )
        try:
            if self._judge is not None:
                test = self._judge.with_old_kernel(test)
                judged = self._judge.judge(by_key, test)
            else:
                tolerance = self._settings.tolerance
                judged = {key: left_to_parent(one, test.marker, tolerance) for key, one in by_key.items()}
            if self._request is None or self._request.adds_evidence:
                with named_failures("pytest_bandwidth_judged"):
                    item.ihook.pytest_bandwidth_judged(config=self._config, test=test, judged=judged)
                for one in judged.values():
                    if not isinstance(one, Judged):
                        raise UsageError(f"pytest_bandwidth_judged: left {shown(one)} in `judged`, expected a Judged")
            return judged
        finally:
            self._line.clear()

    def _record(self, item: pytest.Item, fixture: Bandwidth, judged: Mapping[str, Judged]) -> dict[str, str]:
        """Store a row for each measurement; return, by key, the messages of those that fail the test."""
        failures = {}
        file, line, _ = item.location
        old = None if self._judge is None else self._judge.old_code
        old_ptx, old_files = (None, None) if old is None else (old.ptx, old.files)
        for key, one in judged.items():
            message = None
            if one.decision.rule == Rule.NO_ENTRY and (others := self.entries_of(item)):
                facts = {**one.decision.facts, "name": _in_file(key), "others": sorted(map(_in_file, others))}
                one = replace(one, decision=replace(one.decision, facts=facts))
            change = code_change(one.measurement, one.entry, old_ptx, old_files)
            if change.unknown is not None:
                one = replace(one, measurement=one.measurement.with_finding(Finding(CODE_DIFF, change.unknown)))
            as_it_should = one.decision.status in (Status.OK, Status.IMPROVED)
            if one.entry is not None and one.entry.xfail and as_it_should:
                xpass = Finding(
                    XPASS,
                    f"its entry's xfail ({one.entry.xfail}) is no longer needed: remove it from the baseline",
                    NOTE,
                )
                one = replace(one, measurement=one.measurement.with_finding(xpass))
            at, several, label = None if line is None else line + 1, len(judged) > 1, one.measurement.label
            called_at = fixture.called_at.get(label) if several else None
            place = file if at is None else f"{file}:{called_at or at}"
            context = wording.Context(place=place, label=label if several else None)
            if one.decision.status.fails(strict=self._strict):
                against = self._settings.against is not None
                causes = likely_causes(one)
                causes = (*causes[:1], change.accesses, *causes[1:]) if causes and change.accesses else causes
                changed = (CODE_CHANGED, FUNCTION_CHANGED)
                causes = tuple(change.files if c in changed and change.files else c for c in causes)
                command = self._update_command(item)
                context = replace(context, causes=causes, command=command, against_revision=against)
                message = wording.failure_message(one, context)
            elif self._strict:
                message = wording.untouched_message(one.measurement, context)
            if message is not None:
                failures[key] = message = printable_lines(message)
                self.note_failed(item, verdict_reason(one.decision.status))
            check_detail(one.measurement.detail)
            outcome = outcome_of(
                item.nodeid,
                key,
                one,
                wording.reason_of(one.decision),
                message=message,
                file=file,
                line=at,
                tags=checked_tags(fixture.tags),
                class_bounds=self._settings.utilization_classes or CLASS_BOUNDS,
                code_diff=change.diff,
            )
            written = one.decision.status is Status.SAVED
            kept = one.measurement if written or self._measurer.task.reports_code else None
            ptx, cubin, files = (None, None, None) if kept is None else (kept.ptx, kept.cubin, kept.files)
            item.stash[_ROWS].append(Row(outcome, fixture.marker, ptx, cubin, files))
            self._writes |= written
            # pytest writes these to JUnit's XML, from the item's list.
            suffix = f"[{outcome.label}]" if outcome.label else ""
            if outcome.gbps is not None:
                item.user_properties.append((f"bandwidth_gbps{suffix}", outcome.gbps))
            item.user_properties.append((f"bandwidth_verdict{suffix}", outcome.status))
        return failures

    def _update_command(self, item: pytest.Item) -> str | None:
        """Return the command that saves the test's new figures; None where no baseline is given."""
        settings, places, given = self._settings, places_of(self._config), self._config.option
        if settings.baseline is None:
            return None
        words = ["python", "-m", "pytest"] if self._invocation.as_module else ["pytest"]
        words += ["-c", str(given.inifilename)] if given.inifilename else []
        words += [f"--rootdir={given.rootdir}"] if given.rootdir else []
        # A path relative to the folder where pytest was started; a node id is relative to the rootdir.
        file = os.path.relpath(item.path, self._config.invocation_params.dir)
        words.append(f"{file}::{_in_file(item.nodeid)}")
        words += [
            f"--bandwidth-{name}={value}"
            for name, value in (("device", settings.device), ("baseline", settings.baseline))
            if places.get(name, "").startswith("-")
        ]
        return shlex.join([*words, "--bandwidth-update"])


def _in_file(key: str) -> str:
    """Return a key without its file."""
    return key.partition("::")[2]


def start_session(config: pytest.Config, *, unasked: bool = False) -> BandwidthSession:
    """Open the device and read the baseline, so that errors are reported before any test runs.

    unasked: whether no test takes the fixture: then the device need not have a baseline.
    Raises pytest.UsageError, one line a problem. In an xdist worker, which such an error would end, every bandwidth
    test fails with it instead.
    """
    request, settings = request_of(config), settings_of(config)
    hooked_peak, root = partial(peak_of_hook, config), config.rootpath
    judge: Judge | None = None
    if request is not None:
        measurer = Measurer(settings, root, request, hooked_peak)
    else:
        against = revision_of(config)
        judge = Judge(settings, invocation_of(config), root, against, hooked_peak, needs_baseline=not unasked)
        measurer = judge.measurer
        config.add_cleanup(judge.close)
    problem: BandwidthError | None = None
    if not config.option.collectonly:
        try:
            if judge is not None and not hasattr(config, "workerinput"):
                check_outputs(config)
            (judge or measurer).prepare()
            if judge is not None and not settings.disable:
                called_hook(config, "pytest_bandwidth_start", identity=measurer.device.identity)
        except (DeviceUnavailable, BaselineError, UsageError) as error:
            if not hasattr(config, "workerinput"):
                raise usage_error(error) from None
            problem = error
    return BandwidthSession(config, measurer, judge, problem)


def peak_of_hook(config: pytest.Config, identity: DeviceIdentity) -> Peak | None:
    """Return the device's peak from the user's hook. Raises pytest.UsageError for a value that is no bandwidth."""
    try:
        peak = called_hook(config, "pytest_bandwidth_peaks", identity=identity)
    except UserHookFailed as error:
        raise usage_error(error) from error
    if peak is None:
        return None
    try:
        return Peak(parse_gbps(str(peak)) * 1e9, "the hook pytest_bandwidth_peaks")
    except ValueError as error:
        raise usage_error(f"pytest_bandwidth_peaks, for {identity.name}: {error}") from None


@contextmanager
def one_line_failures(item: pytest.Item) -> Iterator[None]:
    """Turn the package's own errors into a one-line failure with its place, and NotOnThisDevice into a skip."""
    try:
        yield
    except NotOnThisDevice as reason:
        item.stash[_NOT_HERE] = str(reason)
        raise pytest.skip.Exception(printable_sentence(str(reason)), _use_item_location=True) from None
    except BandwidthError as error:
        # The message of a hook's failure contains its place already.
        innermost = error if error.__cause__ is None else error.__cause__
        place = "" if isinstance(error, UserHookFailed) else place_of(innermost.__traceback__)
        text = wording.with_help(error, printable_lines(f"{place}{error}"))
        raise pytest.fail.Exception(text, pytrace=False) from None
    except TypeError as error:
        misspelt = _MISSPELT.search(str(error))
        if misspelt is None:
            raise
        near = difflib.get_close_matches(misspelt[2], _KEYWORDS[misspelt[1]], n=1, cutoff=0.5)
        meant = f"expected {near[0]}=" if near else f"expected one of {', '.join(_KEYWORDS[misspelt[1]])}"
        place = place_of(error.__traceback__)
        raise pytest.fail.Exception(f"{place}{misspelt[1]}: found {misspelt[2]}=, {meant}", pytrace=False) from None
