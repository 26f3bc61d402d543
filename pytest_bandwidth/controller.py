"""The one process of a run that writes: gathers every test's rows, then updates, writes files and shows the summary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_bandwidth.publishing import Published


def is_bandwidth_test(item: pytest.Item) -> bool:
    """Whether the test asks for the fixture, or has the marker."""
    return "bandwidth" in getattr(item, "fixturenames", ()) or item.get_closest_marker("bandwidth") is not None


class Controller:
    """Registered in every pytest process but xdist's workers. Costs nothing while no report carries rows."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # `processes` says what the variable holds; its import is not worth it here.
        self.is_child = bool(os.environ.get("PYTEST_BANDWIDTH_ORDER"))
        # The last report of a test counts: a rerun replaces what came before.
        self._rows: dict[tuple[str, str], dict[str, Any]] = {}
        self._failed: set[str] = set()
        self._device: dict[str, Any] = {}
        self._published: Published | None = None
        self._all_collected = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """xdist starts a worker."""
        from pytest_bandwidth.distributed import tell_worker

        tell_worker(node)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:  # a file that was skipped, or broke, may hold any test
            self._all_collected = False

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        if any(map(is_bandwidth_test, items)):  # by a conftest.py, or a plugin that splits runs
            self._all_collected = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.when == "call":
            self._failed.discard(report.nodeid)
        rows = vars(report).get("bandwidth_rows")
        if rows:
            device = self._device = vars(report)["bandwidth_device"]
            self._rows.update({(device["serial"], row["key"]): row for row in rows})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._rows:
            return
        rows = list(self._rows.values())
        if self.is_child:
            from pytest_bandwidth.processes import report_to_parent

            report_to_parent([row for row in rows if row["nodeid"] not in self._failed])
            return
        from pytest_bandwidth.absent import ABSENT
        from pytest_bandwidth.publishing import publish

        absent = self._config.stash.get(ABSENT, ()) if self._all_collected else ()
        self._published = publish(self._config, self._device, rows, self._failed, absent)
        if self._published.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._published is not None:
            from pytest_bandwidth.publishing import show

            show(terminalreporter, self._published, verbose=self._config.option.verbose > 0)
