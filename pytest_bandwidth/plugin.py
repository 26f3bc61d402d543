"""Register pytest's hooks and the fixture, select the tests, gather their rows, and call `session`.

This module imports no NumPy, YAML, Jinja2 or device library. Those are imported after bandwidth tests were collected.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any

import pytest

from pytest_bandwidth.options.options import (
    add_marker,
    add_options,
    given,
    handed,
    is_own_process,
    nothing_is_judged,
    places_of,
    refuse_unknown,
    settings_of,
    take,
    usage_error,
)
from pytest_bandwidth.registry import FeatureFailed, add_features, begin_run, refuse_unknown_hooks

if TYPE_CHECKING:
    from pytest_bandwidth.fixture.bandwidth import Bandwidth
    from pytest_bandwidth.session.publishing.gathered import DeviceReport, Gathered
    from pytest_bandwidth.session.session import BandwidthSession

# Options for a run's output files.
_FILES = ("json", "csv", "html", "sarif", "dir")
_UNFAILED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
_SESSION: pytest.StashKey[BandwidthSession] = pytest.StashKey()
_FIXTURE: pytest.StashKey[Bandwidth] = pytest.StashKey()


class _AsInstalled:
    """Find the package's modules before pytest's import hook, so that their assertions are not rewritten.

    pytest rewrites the assertions in all modules of an installed plugin. That took 0.5 s a process: in the first run,
    and in every run without bytecode files (PYTHONDONTWRITEBYTECODE, as in many container images).
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        del target
        return PathFinder.find_spec(name, path) if name.startswith(f"{__package__}.") else None


sys.meta_path.insert(0, _AsInstalled)


class _Body:
    """Hold the state of a test's body. While it runs, pytest's reports are those of subtests."""

    __slots__ = ("ended", "subtest_failed")

    def __init__(self) -> None:
        self.ended = self.subtest_failed = False


_BODY: pytest.StashKey[_Body] = pytest.StashKey()


def _is_bandwidth_test(item: pytest.Item) -> bool:
    """Return whether the test requests the fixture, or has the marker."""
    return "bandwidth" in getattr(item, "fixturenames", ()) or item.get_closest_marker("bandwidth") is not None


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    try:
        add_features(pluginmanager)
    except FeatureFailed as error:
        raise usage_error(str(error)) from None


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    add_options(parser, pluginmanager)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    _take_over(early_config)  # before a conftest starts a process, which must not inherit it
    if given(early_config, early_config.known_args_namespace):
        from pytest_bandwidth.read_files.opened import watch

        watch(str(early_config.rootpath))  # before any module of the user's is loaded


def _take_over(config: pytest.Config) -> None:
    try:
        is_ours = take(config)
    except ValueError as error:
        raise usage_error(f"bandwidth: {error}") from None
    if is_ours:
        from pytest_bandwidth.evidence.processes.start_and_end import end_with_parent

        end_with_parent()


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Write to GitHub's job summary why the run stopped before its tests."""
    try:
        return (yield)
    except pytest.UsageError as error:
        _report_stop(config, [str(line) for line in error.args])
        raise


def _report_stop(config: pytest.Config, errors: Sequence[str]) -> None:
    from pytest_bandwidth.reports.github import stopped_summary
    from pytest_bandwidth.session.publishing.publish import append_to_summary, is_github

    if not is_github() or hasattr(config, "workerinput") or is_own_process(config):
        return
    with suppress(pytest.UsageError):  # the options may be the error
        if not given(config):
            return  # a run without options of this plugin
    append_to_summary(lambda room: stopped_summary(errors, room))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    _take_over(config)
    config.add_cleanup(begin_run(config.pluginmanager))
    try:
        refuse_unknown_hooks(config.pluginmanager)
    except FeatureFailed as error:
        raise usage_error(str(error)) from None
    add_marker(config)
    refuse_unknown(config)
    is_given = bool(given(config))
    if is_given:
        settings_of(config)  # raises for mistakes now, even if no bandwidth tests are collected
    controller = Controller(config)
    if controller.is_child:
        from pytest_bandwidth.evidence.processes.child_plugin import configure_child

        configure_child(config)
    elif is_given:
        from pytest_bandwidth.session.collection import begin_to_collect

        begin_to_collect(config)
    if is_given:
        from pytest_bandwidth.read_files.listing import Attributing

        config.pluginmanager.register(Attributing(), "bandwidth-files")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(controller, "bandwidth-controller")


@pytest.fixture
def bandwidth(request: pytest.FixtureRequest) -> Bandwidth:
    """Measure memory bandwidth: bandwidth(callable, …, reads=, writes=), bandwidth.launch(kernel, grid, block, …)."""
    fixture = _session_of(request.config).fixture_for(request)
    request.node.stash[_FIXTURE] = fixture
    return fixture


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = [item for item in items if _is_bandwidth_test(item)]
    if not wanted and not given(config):
        return
    from pytest_bandwidth.evidence.processes.requests import request_of
    from pytest_bandwidth.session.collection import concerns_baseline

    settings, request = settings_of(config), request_of(config)
    if request is not None and request.nodeids is not None:
        # By node id, not by signature: a test may request the fixture with request.getfixturevalue.
        wanted = [item for item in items if request.selects(item.nodeid)]
    selected = list(items)
    kept = set(wanted) if settings.only or request is not None else set(items)
    dropped = [item for item in items if item not in kept]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = wanted
    if settings.skip:
        for item in wanted:
            item.add_marker(
                pytest.mark.skip(reason="--bandwidth-skip leaves bandwidth tests out: run without it to measure")
            )
    elif wanted or (request is None and concerns_baseline(config, selected)):
        from pytest_bandwidth.session.session import start_session

        try:
            session = config.stash[_SESSION] = start_session(config, unasked=not wanted)
        except pytest.UsageError:
            if wanted or settings.strict:
                raise
            return  # a run of other tests needs no device
        session.note_collected(dropped)


def _session_of(config: pytest.Config) -> BandwidthSession:
    session = config.stash.get(_SESSION, None)
    if session is None:  # request.getfixturevalue("bandwidth"): no test has it in its signature
        from pytest_bandwidth.session.session import start_session

        session = config.stash[_SESSION] = start_session(config)
    return session


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    if config.option.collectonly or hasattr(config, "workerinput"):
        return []
    session = config.stash.get(_SESSION, None)
    lines = [] if session is None else session.header()
    if given(config):
        unjudged = nothing_is_judged(config)
        lines += [] if unjudged is None else [f"bandwidth: {unjudged}"]
    return lines


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    bandwidth_session = session.config.stash.get(_SESSION, None)
    if bandwidth_session is not None:
        bandwidth_session.wait_for_turn()


def pytest_sessionfinish(session: pytest.Session) -> None:
    bandwidth_session = session.config.stash.get(_SESSION, None)
    if bandwidth_session is not None:
        bandwidth_session.finish(session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    session = item.config.stash.get(_SESSION, None)
    if session is not None:
        session.begin(item)
    return (yield from _failing_in_one_line(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _failing_in_one_line(item))


def _failing_in_one_line(item: pytest.Item) -> Generator[None, object, object]:
    if not _is_bandwidth_test(item):
        return (yield)
    from pytest_bandwidth.session.session import one_line_failures

    with one_line_failures(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_BODY] = _Body()
    try:
        result = yield
    except BaseException as error:
        item.stash[_BODY].ended = True
        fixture = item.stash.get(_FIXTURE, None)
        if fixture is None:
            raise
        from pytest_bandwidth.session.session import one_line_failures

        fixture.ended = True
        with one_line_failures(item):
            if isinstance(error, (Exception, pytest.fail.Exception)):
                _session_of(item.config).judge_failed(item, fixture, error)
            raise
    item.stash[_BODY].ended = True
    # Read after the body, which may have requested the fixture with request.getfixturevalue.
    fixture = item.stash.get(_FIXTURE, None)
    if fixture is None:
        session = item.config.stash.get(_SESSION, None)
        if session is not None:
            session.judge_without_fixture(item)
        return result
    from pytest_bandwidth.session.session import one_line_failures

    fixture.ended = True
    with one_line_failures(item):
        _session_of(item.config).judge(item, fixture)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    body = item.stash.get(_BODY, None)
    if call.when == "call" and body is not None and not body.ended:  # of a subtest: the test's own follows
        body.subtest_failed |= report.failed
        return report
    session = item.config.stash.get(_SESSION, None)
    measures = _is_bandwidth_test(item) or _FIXTURE in item.stash
    if session is not None and call.when != "teardown" and (measures or session.entries_of(item)):
        session.attach(item, report, subtest_failed=body is not None and body.subtest_failed)
    # A test that fails in its teardown has been judged.
    unjudged = report.failed and call.when != "teardown" and "bandwidth_rows" not in vars(report)
    if unjudged and call.excinfo is not None and measures:
        vars(report)["bandwidth_unjudged"] = call.excinfo.exconly()
        if session is not None:
            session.attach_device(report)
            session.note_failed(item, call.excinfo.exconly())
    return report


class Controller:
    """Gather every test's rows, then update the baseline, write files and show the summary.

    It runs in every process except xdist's workers, and does nothing while no report contains rows.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started = time.time()
        self.is_child = handed(config, "child") is not None
        self._gathered: Gathered | None = None
        # Worker ("" without xdist) and node id: with --dist=each a test may fail on one device and pass on another.
        self._failed: set[tuple[str, str]] = set()
        # Tests that a mark or their entry expects to fail.
        self._expected: set[tuple[str, str]] = set()
        self._ran: set[str] = set()
        self._uncollected: list[str] = []
        self._session: pytest.Session | None = None
        self._reports: list[DeviceReport] = []
        self._interrupted = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        """Refuse bad baselines and outputs before xdist starts its workers, where they would fail each test."""
        from pytest_bandwidth.session.publishing.run_files import check_before_workers

        if not settings_of(config).skip:
            check_before_workers(config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send a new worker of xdist the facts that are common to the whole run."""
        from pytest_bandwidth.session.run import configure_worker

        configure_worker(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the last message of a worker of xdist."""
        sent = getattr(node, "workeroutput", {}).get("bandwidth_at_end")  # missing if the worker crashed
        if sent is not None:
            self._gather().add_ended(sent, node.gateway.id)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session, which holds the exit status: others may set it until pytest has ended."""
        self._session = session
        self._config.add_cleanup(self._hold_exit_status)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            *_, last = report.longreprtext.strip().splitlines() or [""]
            self._uncollected.append(f"{report.nodeid}: {last.removeprefix('E').strip()}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worker = str(getattr(report, "worker_id", ""))
        carried, test = vars(report), (worker, report.nodeid)
        if report.when == "call" or not report.passed:
            self._ran.add(report.nodeid)
        if report.failed or carried.get("bandwidth_subtest_failed"):
            self._failed.add(test)
        elif report.when == "call":
            self._failed.discard(test)
        if report.when == "call":
            (self._expected.add if report.skipped and "wasxfail" in carried else self._expected.discard)(test)
        if "bandwidth_device" not in carried and "bandwidth_unjudged" not in carried:  # two of a test's three reports
            return
        rows, unjudged, missing = (carried.get(f"bandwidth_{name}") for name in ("rows", "unjudged", "missing"))
        device = json.loads(carried["bandwidth_device"]) if "bandwidth_device" in carried else None
        loaded = json.loads(rows) if rows and device is not None else ()
        self._gather().add(worker, report.nodeid, device, loaded, missing=missing, unjudged=unjudged)

    def pytest_keyboard_interrupt(self) -> None:
        """Record an interrupt; `pytest.exit` calls this too."""
        self._interrupted = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._uncollected and not self._ran:
            _report_stop(self._config, self._uncollected)
        here = self._config.stash.get(_SESSION, None)
        if here is not None and here.at_end is not None:
            self._gather().add_ended(here.at_end)
        if self._gathered is None:
            return
        # A run that stopped early, with an exit status for that, need not list the tests that did not run.
        ran = self._ran if session.exitstatus in _UNFAILED else None
        devices = self._gathered.results(self._failed, self._expected, ran)
        if not devices:
            return
        if self.is_child:
            from pytest_bandwidth.evidence.processes.requests import request_of

            request = request_of(self._config)
            assert request is not None
            rows = []
            for results in devices:
                device = {} if request.device else {"device": results.device}
                code = {row.outcome.key: row.code_plain() for row in results.rows}
                # Tests that check results fail where kernels are not executed, but the code of these tests is known.
                outcomes = results.outcomes if request.reports_code else results.succeeded
                rows += [outcome.to_plain() | device | code[outcome.key] for outcome in outcomes]
            request.hand_over(rows)
            return
        from pytest_bandwidth.session.publishing.publish import publish

        self._reports = publish(self._config, devices, self._started, interrupted=self._interrupted)
        if any(one.interrupted for one in self._reports) and not self._interrupted:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        self._hold_exit_status()

    def _hold_exit_status(self) -> None:
        """Set the exit status of a run that has to fail. Also called last, because a conftest.py may change it."""
        session = self._session
        if session is None or self._gathered is None or self.is_child or session.exitstatus not in _UNFAILED:
            return
        if any(one.remarks_of("problem") for one in self._reports) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        elif any(one.remarks_of("failure") for one in self._reports) or self._gathered.failing(self._expected):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _gather(self) -> Gathered:
        if self._gathered is None:
            from pytest_bandwidth.session.publishing.gathered import Gathered

            self._gathered = Gathered()
        return self._gathered

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._reports:
            from pytest_bandwidth.session.publishing.publish import show

            show(self._config, terminalreporter, self._reports)
        elif not self.is_child and not self._config.option.collectonly:
            places = places_of(self._config)
            asked = [where for name in _FILES if (where := places.get(name, "")).startswith("--")]
            if asked:
                terminalreporter.write_line(f"bandwidth: nothing was measured, so {' and '.join(asked)} wrote nothing")
