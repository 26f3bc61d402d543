"""Register pytest's hooks and the fixture, choose the tests that run, gather their rows, and hand over to `session`.

Imports no NumPy, YAML, Jinja2 or device library: those come when bandwidth tests have been collected.
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
from pytest_bandwidth.registry import FeatureFailed, add_features, begin_run

if TYPE_CHECKING:
    from pytest_bandwidth.fixture.bandwidth import Bandwidth
    from pytest_bandwidth.session.publishing.gathered import DeviceReport, Gathered
    from pytest_bandwidth.session.session import BandwidthSession

# Options that name what a run writes.
_FILES = ("json", "csv", "html", "sarif", "dir")
_UNFAILED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
_SESSION: pytest.StashKey[BandwidthSession] = pytest.StashKey()
_FIXTURE: pytest.StashKey[Bandwidth] = pytest.StashKey()


class _AsInstalled:
    """Find the package's modules before pytest's import hook does, so that they are loaded as installed.

    pytest rewrites the assertions of all modules of an installed plugin. In the first run, and in each one where Python
    writes no bytecode (PYTHONDONTWRITEBYTECODE, as in many images), that took 0.5 s a process.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        del target
        return PathFinder.find_spec(name, path) if name.startswith(f"{__package__}.") else None


sys.meta_path.insert(0, _AsInstalled)


class _Body:
    """Hold how far a test's body is. Reports that pytest makes while it runs are of subtests."""

    __slots__ = ("ended", "subtest_failed")

    def __init__(self) -> None:
        self.ended = self.subtest_failed = False


_BODY: pytest.StashKey[_Body] = pytest.StashKey()


def _is_bandwidth_test(item: pytest.Item) -> bool:
    """Return whether the test asks for the fixture, or has the marker."""
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
    """Say in GitHub's summary of the step what stopped the run before its tests."""
    try:
        return (yield)
    except pytest.UsageError as error:
        _say_what_stopped(config, [str(line) for line in error.args])
        raise


def _say_what_stopped(config: pytest.Config, errors: Sequence[str]) -> None:
    from pytest_bandwidth.reports.github import stopped_summary
    from pytest_bandwidth.session.publishing.publish import append_to_summary, is_github

    if not is_github() or hasattr(config, "workerinput") or is_own_process(config):
        return
    with suppress(pytest.UsageError):  # what was given may be the error
        if not given(config):
            return  # a run of tests that are no concern of this plugin
    append_to_summary(lambda room: stopped_summary(errors, room))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    _take_over(config)
    config.add_cleanup(begin_run(config.pluginmanager))
    add_marker(config)
    refuse_unknown(config)
    is_given = bool(given(config))
    if is_given:
        settings_of(config)  # a mistake is told now, whether or not bandwidth tests turn up
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
        # Whatever its signature says: it may ask for the fixture by request.getfixturevalue.
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
            return  # whoever runs other tests need not have a device
        session.note_collected(dropped)


def _session_of(config: pytest.Config) -> BandwidthSession:
    session = config.stash.get(_SESSION, None)
    if session is None:  # request.getfixturevalue("bandwidth"): no test asked for it by name
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
    # Looked up after the body, which may have asked for it by request.getfixturevalue.
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
    if call.when == "call" and body is not None and not body.ended:  # of a subtest: the test's own is to come
        body.subtest_failed |= report.failed
        return report
    session = item.config.stash.get(_SESSION, None)
    measures = _is_bandwidth_test(item) or _FIXTURE in item.stash
    if session is not None and call.when != "teardown" and (measures or session.entries_of(item)):
        session.attach(item, report, subtest_failed=body is not None and body.subtest_failed)
    # What fails while it is torn down has been judged.
    unjudged = report.failed and call.when != "teardown" and "bandwidth_rows" not in vars(report)
    if unjudged and call.excinfo is not None and measures:
        vars(report)["bandwidth_unjudged"] = call.excinfo.exconly()
        if session is not None:
            session.attach_device(report)
            session.note_failed(item, call.excinfo.exconly())
    return report


class Controller:
    """Gather every test's rows in the run's one process that writes; then update, write files, show the summary.

    That is every process but xdist's workers; it costs nothing while no report carries rows.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started = time.time()
        self.is_child = handed(config, "child") is not None
        self._gathered: Gathered | None = None
        # Worker ("" without xdist) and test: with --dist=each a test may fail on one device and pass on another.
        self._failed: set[tuple[str, str]] = set()
        # Those that a mark or their entry expects to fail.
        self._expected: set[tuple[str, str]] = set()
        self._ran: set[str] = set()
        self._uncollected: list[str] = []
        self._session: pytest.Session | None = None
        self._reports: list[DeviceReport] = []
        self._interrupted = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        """Refuse bad baselines and outputs before xdist starts its workers, where each test would fail of them."""
        from pytest_bandwidth.session.publishing.run_files import check_before_workers

        if not settings_of(config).skip:
            check_before_workers(config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker that xdist starts what is one for the whole run."""
        from pytest_bandwidth.session.run import tell_worker

        tell_worker(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Gather what a worker of xdist sent at its end."""
        sent = getattr(node, "workeroutput", {}).get("bandwidth_at_end")  # one that died sent nothing
        if sent is not None:
            self._gather().add_ended(sent, node.gateway.id)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep what holds the exit status: everybody may set it, until pytest has ended."""
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
        told = json.loads(rows) if rows and device is not None else ()
        self._gather().add(worker, report.nodeid, device, told, missing=missing, unjudged=unjudged)

    def pytest_keyboard_interrupt(self) -> None:
        """Note an interrupt; `pytest.exit` is one, too."""
        self._interrupted = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._uncollected and not self._ran:
            _say_what_stopped(self._config, self._uncollected)
        here = self._config.stash.get(_SESSION, None)
        if here is not None and here.at_end is not None:
            self._gather().add_ended(here.at_end)
        if self._gathered is None:
            return
        # What stopped early with a status that says so need not name what it left.
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
                # Where kernels are not executed, tests fail that look at what they wrote; their code is known.
                outcomes = results.outcomes if request.tells_code else results.succeeded
                rows += [outcome.to_plain() | device | code[outcome.key] for outcome in outcomes]
            request.hand_over(rows)
            return
        from pytest_bandwidth.session.publishing.publish import publish

        self._reports = publish(self._config, devices, self._started, interrupted=self._interrupted)
        if any(one.interrupted for one in self._reports) and not self._interrupted:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        self._hold_exit_status()

    def _hold_exit_status(self) -> None:
        """Give a run that has to fail a status that says so; also last of all, since a conftest.py may change it."""
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
