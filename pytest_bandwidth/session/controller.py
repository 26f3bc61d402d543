"""Gather every test's rows in the run's one process that writes; then update, write files, show the summary."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_bandwidth.options.options import handed, places_of

if TYPE_CHECKING:
    from pytest_bandwidth.session.publishing.gathered import DeviceReport, Gathered


# Options that name what a run writes.
_FILES = ("json", "csv", "html", "dir")
_UNFAILED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def is_bandwidth_test(item: pytest.Item) -> bool:
    """Return whether the test asks for the fixture, or has the marker."""
    return "bandwidth" in getattr(item, "fixturenames", ()) or item.get_closest_marker("bandwidth") is not None


class Controller:
    """Follow a run in every pytest process but xdist's workers; it costs nothing while no report carries rows."""

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
        self._session: pytest.Session | None = None
        self._reports: list[DeviceReport] = []
        self._interrupted = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        """Refuse bad baselines and outputs before xdist starts its workers, where each test would fail of them."""
        from pytest_bandwidth.options.reading import settings_of
        from pytest_bandwidth.session.publishing.run_files import check_before_workers

        if not settings_of(config).skip:
            check_before_workers(config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker that xdist starts what is one for the whole run."""
        from pytest_bandwidth.session.xdist import tell_worker

        tell_worker(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Gather what a worker of xdist sent at its end."""
        sent = sent_by_worker(node)
        if sent is not None:
            self._gather().add_ended(sent, node.gateway.id)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep what holds the exit status: everybody may set it, until pytest has ended."""
        self._session = session
        self._config.add_cleanup(self._hold_exit_status)

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
        sent = sent_here(self._config)
        if sent is not None:
            self._gather().add_ended(sent)
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
            # Where kernels are not executed, tests fail that look at what they wrote; their code is known.
            all_of_them = request.tells_code
            rows = []
            for results in devices:
                device = {} if request.device else {"device": results.device}
                code = {row.outcome.key: row.code_plain() for row in results.rows}
                outcomes = results.outcomes if all_of_them else results.succeeded
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


_SENT = "bandwidth_at_end"
_SENT_HERE = pytest.StashKey[Mapping[str, Any]]()


def send_at_end(config: pytest.Config, sent: Mapping[str, Any]) -> None:
    """Hand plain data from this process to the controller, which may be itself, when its tests have run."""
    if hasattr(config, "workerinput"):
        # xdist sets this on a worker's config, and sends it to the controller.
        output: dict[str, Any] = vars(config)["workeroutput"]
        output[_SENT] = dict(sent)
    else:
        config.stash[_SENT_HERE] = sent


def sent_here(config: pytest.Config) -> Mapping[str, Any] | None:
    """Return what this process handed to `send_at_end`; None where it gave nothing."""
    return config.stash.get(_SENT_HERE, None)


def sent_by_worker(node: Any) -> Mapping[str, Any] | None:
    """Return what a worker handed to `send_at_end`; None where it gave nothing, or died."""
    output: Mapping[str, Any] = getattr(node, "workeroutput", {})
    return output.get(_SENT)
