"""Measure the same code again in new processes: a slow test, and for an update all that a run measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.metrics import Metrics, metrics_of_row
from pytest_bandwidth.domain.measured.validity import why_no_evidence
from pytest_bandwidth.evidence.judged_test import JudgedTest
from pytest_bandwidth.evidence.processes.child import Child, FreshProcessFailed, Invocation
from pytest_bandwidth.evidence.processes.requests import ChildRequest, WholeRun
from pytest_bandwidth.evidence.processes.waiting import StartedAhead
from pytest_bandwidth.judging.evidence import Ask, Evidence
from pytest_bandwidth.judging.judge import ROUNDS_SHARE, FreshRow, Rule
from pytest_bandwidth.measuring.device_lock import DeviceLock
from pytest_bandwidth.measuring.measurer import QUIET_WAIT_SECONDS
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.outcome import Plain

# A majority that agrees spares the rest of the processes asked for. To start one in vain costs less than to start it
# late, when the memory that the others used has gone back to a hypervisor.
BEYOND_MAJORITY = 1
# A fresh whole run may take so long; a hung one must not block an update for ever.
WHOLE_RUN_SECONDS = 4 * 3600.0


class FreshProcesses:
    """Start the new processes of one test; a `Resolver`, and a context whose end ends those that still wait.

    They are started together and measure one by one. The device's lock is held while processes start or one measures,
    and free in between, also where those that are needed no more end. confirm: how many have to agree, at most.
    """

    def __init__(self, test: JudgedTest, confirm: int) -> None:
        self._test, self._confirm = test, confirm
        self._ahead = StartedAhead(test.room, test.test.fresh_seconds)
        self.rows: list[Mapping[str | None, FreshRow]] = []

    def __enter__(self) -> FreshProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ahead.end_waiting()

    @property
    def answers(self) -> Ask:
        return Ask.PROCESSES

    def gather(self, asking: Mapping[str, Evidence], rule: Rule) -> Mapping[str, Evidence]:
        """Measure again, all at once, until none needs another process or none can be had."""
        known = dict(asking)
        while any(rule(one) is Ask.PROCESSES for one in known.values()):
            try:
                seen = self.run()
            except BandwidthError as error:
                return {key: one.without(Ask.PROCESSES, str(error)) for key, one in known.items()}
            for key, one in known.items():
                figures = seen.get(one.measurement.label)
                if figures is not None:
                    known[key] = replace(one, fresh=(*one.fresh, figures))
                elif len(self.rows) >= self._confirm:
                    why = f"{len(one.fresh)} new processes measured it, and validly; {self._confirm} have to"
                    known[key] = one.without(Ask.PROCESSES, why)
        return known

    def run(self) -> Mapping[str | None, Metrics]:
        """Run one more process and return its figures by label.

        Raises FreshProcessFailed where it measured nothing valid, DeviceUnavailable where the device stays taken.
        """
        test, confirm = self._test, self._confirm
        test.tell(f"slow: new process {len(self.rows) + 1} of at most {confirm}")
        needed = 1 if self.rows else min(confirm, confirm // 2 + 1 + BEYOND_MAJORITY)
        request = test.request(ChildRequest, rounds_share=ROUNDS_SHARE)
        with test.alone():
            self.rows.append(self._ahead.measured(lambda: test.start(request), needed, self._rows_by_label))
        return {label: row.figures for label, row in self.rows[-1].items()}

    def _rows_by_label(self, child: Child) -> Mapping[str | None, FreshRow]:
        begun = time.monotonic()
        rows = child.rows(self._test.test.fresh_seconds)
        return _by_label(rows, self._test.peak, time.monotonic() - begun)

    def of(self, label: str | None) -> tuple[FreshRow, ...]:
        """Return what each process saw of the measurement of that label."""
        return tuple(row[label] for row in self.rows if label in row)


def _by_label(rows: list[dict[str, Any]], peak: Peak | None, seconds: float) -> dict[str | None, FreshRow]:
    """Return what a fresh process measured validly, by label. Raises FreshProcessFailed where that is nothing."""
    trouble = {row["label"]: why_no_evidence(row, peak) for row in rows}
    valid = [row for row in rows if trouble[row["label"]] is None]
    if not valid:
        raise FreshProcessFailed(f"a fresh process measured nothing valid: {next(iter(trouble.values()), 'no result')}")
    return {row["label"]: FreshRow(metrics_of_row(row, peak), seconds) for row in valid}


def further_runs(
    settings: Settings,
    invocation: Invocation,
    identity: DeviceIdentity,
    peak: Peak | None,
    tell: Callable[[str], None],
) -> list[list[Plain]]:
    """Measure `settings.runs` − 1 fresh whole runs on the device; outcomes of each. Raises BandwidthError."""
    # What is counted is the same in every process.
    wanted = 1 if identity.counts_only else settings.runs
    further = []
    for i in range(1, wanted):
        tell(f"bandwidth: baseline run {i + 1} of {wanted} in a fresh process …")
        with DeviceLock(identity, settings.lock_timeout).held(on_long_wait=tell):
            quiet_wait_seconds = QUIET_WAIT_SECONDS / (wanted - 1)
            request = WholeRun(identity.option, peak=peak, quiet_wait_seconds=quiet_wait_seconds)
            with invocation.start(request) as child:
                further.append(child.rows(WHOLE_RUN_SECONDS))
    return further
