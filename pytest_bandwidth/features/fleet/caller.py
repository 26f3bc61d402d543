"""Run a fleet as pytest's session: collect nothing, run every card, publish the cards' results as a run's own.

As under pytest-xdist's --dist=each: a table for each device, the FLEET line, baselines and files written here alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.baseline.code_files import code_files, folder_of
from pytest_bandwidth.baseline.locate import files_in, is_folder
from pytest_bandwidth.baseline.runs import path_of
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.features.fleet.cards import (
    Card,
    CardRow,
    Lost,
    Returned,
    Task,
    read_result,
    refused,
)
from pytest_bandwidth.features.fleet.cluster import Cluster, Schedule
from pytest_bandwidth.features.fleet.overview import fleet_document, progress, table
from pytest_bandwidth.measuring.progress import write_line
from pytest_bandwidth.options.options import RUNS_NOTHING, settings_of, usage_error
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.session.publishing.gathered import DeviceReport, DeviceResults
from pytest_bandwidth.session.publishing.publish import cleaner, publish, redacted, show
from pytest_bandwidth.session.publishing.run_files import check_before_workers
from pytest_bandwidth.session.run import describe, new_run_id

# 0 to 2 are every command's; some cards did not report.
INCOMPLETE = 3


class FleetCaller:
    """Run a fleet in the place of pytest's own tests.

    options: the command's; environment: Ray's runtime_env, None without one. After pytest's end, status is the
    command's exit status, and document is the fleet's, None if no card was found.
    """

    def __init__(self, options: argparse.Namespace, environment: Mapping[str, Any] | None) -> None:
        self._options, self._runtime_env = options, environment
        self._started = time.time()
        self._cards: list[Card] = []
        self._rows: dict[int, CardRow] = {}
        self._results: dict[int, DeviceResults] = {}
        # By card's number, once they are published.
        self._reports: dict[int, DeviceReport] = {}
        self._interrupted = False
        self._published = False
        self.document: dict[str, Any] | None = None

    @property
    def status(self) -> int:
        """Return 1 if a test failed on a card or with strict, 2 if an output is missing, 3 if a card is, else 0."""
        rows, reports = self._rows.values(), self._reports.values()
        if any(row.state == "failed" for row in rows) or any(report.remarks_of("failure") for report in reports):
            return 1
        if not self._published or any(report.remarks_of("problem") for report in reports):
            return 2
        return INCOMPLETE if any(row.state == "missing" for row in rows) else 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect nothing, and refuse options with which all cards would fail."""
        config = session.config
        settings = settings_of(config)
        if config.getoption("dist", "no") != "no":
            raise usage_error("found --dist or -n, expected neither: the fleet has a process for each card")
        if settings.against is not None:
            raise usage_error("found --bandwidth-against, expected a baseline: cards have no git history")
        asked = [name for name in RUNS_NOTHING if config.getoption(name, False)]
        if asked or settings.disable or settings.skip:
            raise usage_error("found options that measure nothing, expected a run: use pytest itself")
        check_before_workers(config)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        config, options = session.config, self._options
        try:
            folder = Path.cwd() if options.chdir is None else None
            with Cluster(options.address, folder, self._runtime_env) as cluster:
                self._cards = cluster.cards(options.per, options.only)
                session.testscollected = len(self._cards)
                task = self._task(settings_of(config))
                nodes = {card.node_id for card in self._cards}
                write_line(config, f"fleet: {counted(len(self._cards), 'card')} on {counted(len(nodes), 'node')}")
                schedule = Schedule(cluster, task, options.retries, partial(write_line, config))
                try:
                    schedule.run(self._cards, partial(self._take, config))
                finally:
                    for card in (attempt.card for attempt in schedule.running):
                        self._rows[card.number] = CardRow(card, "missing", 0.0, 1, "the run was interrupted")
        except BandwidthError as error:
            raise usage_error(error) from None
        return True

    def pytest_keyboard_interrupt(self) -> None:
        self._interrupted = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._cards:
            return
        config = session.config
        if self._results:
            # In a lasting order.
            numbers = sorted(self._results, key=lambda number: _identity_of(self._results[number]))
            devices = [self._results[number] for number in numbers]
            reports = publish(config, devices, self._started, interrupted=self._interrupted)
            self._reports = dict(zip(numbers, reports, strict=True))
        self._published = True
        settings = settings_of(config)
        environment = describe(config.rootpath, self._started, settings.baseline)
        unlike = {number: report.unlike.text for number, report in self._reports.items() if report.unlike is not None}
        document = fleet_document(new_run_id(), environment, self._in_order(), unlike, self.status)
        clean = cleaner(config.rootpath, [card.node for card in self._cards], private=settings.private)
        self.document = dict(redacted(document, clean))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._cards:
            return
        if self._reports:
            show(terminalreporter.config, terminalreporter, list(self._reports.values()))
        terminalreporter.write_sep("=", "fleet")
        for line in table(self._in_order()):
            terminalreporter.write_line(line)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Give a card's report no letter: it has a line of its own."""
        return (report.outcome, "", "") if getattr(report, "bandwidth_card", False) else None

    def _task(self, settings: Settings) -> Task:
        """Return the task of every card: the caller's arguments, and its baseline. Raises OSError, BandwidthError."""
        options, path = self._options, settings.baseline
        task = Task(tuple(options.rest), options.chdir, options.python, options.timeout)
        if path is None:
            return task
        a_folder = is_folder(path)
        found = files_in(path) if a_folder else [path] if path.exists() else []
        found += [runs for file in found if (runs := path_of(file)).exists()]
        with suppress(FileNotFoundError, NotADirectoryError):
            found += code_files(folder_of(path / "x" if a_folder else path))
        files = {file.relative_to(path.parent).as_posix(): file.read_bytes() for file in found}
        return replace(task, baseline=path.name, is_folder=a_folder, files=files)

    def _take(
        self,
        config: pytest.Config,
        card: Card,
        outcome: Returned | Lost,
        attempts: int,
        seconds: float,
    ) -> None:
        """Read a card's outcome, and report it as pytest reports a test."""
        row, results = read_result(card, outcome, attempts, seconds, self._options.timeout)
        of_gpu = row.card.name != row.card.node
        if results is not None and of_gpu and results.device["kind"] == "cpu" and settings_of(config).device == "auto":
            name = results.device["name"]
            row, results = refused(row, f"no GPU can be used there, its pytest measured the host ({name})"), None
        if results is not None:
            twins = (number for number, other in self._results.items() if _identity_of(other) == _identity_of(results))
            twin = next(twins, None)
            if twin is None:
                self._results[row.card.number] = results
            else:
                other = self._rows[twin].card
                own_node = other.node_id == row.card.node_id
                hint = "measure hosts with --per node" if own_node else "are several Ray nodes on one machine?"
                row = refused(row, f"it measured the same device as {other.name}: {hint}")
        self._rows[row.card.number] = row
        write_line(config, progress(row))
        longrepr = None if row.state == "measured" else "\n".join((f"{row.state}: {row.reason}", *row.tail))
        reported = pytest.TestReport(
            nodeid=row.card.name,
            location=(row.card.host, None, row.card.name),
            keywords={},
            outcome="passed" if longrepr is None else "failed",
            longrepr=longrepr,
            when="call",
            duration=row.seconds,
            bandwidth_card=True,
        )
        config.hook.pytest_runtest_logreport(report=reported)

    def _in_order(self) -> list[CardRow]:
        """Return the rows by node and GPU."""
        place = {card.node: i for i, card in enumerate(self._cards)}
        return sorted(self._rows.values(), key=lambda row: (place[row.card.node], len(row.card.name), row.card.name))


def _identity_of(results: DeviceResults) -> tuple[str, str, str]:
    return str(results.device["kind"]), str(results.device["name"]), str(results.device["serial"])
