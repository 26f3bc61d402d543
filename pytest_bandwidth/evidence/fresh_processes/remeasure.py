"""Measure a slow test again in new processes: started together, measured one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any

from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.metrics import Metrics, metrics_of_row
from pytest_bandwidth.domain.measured.validity import why_no_evidence
from pytest_bandwidth.evidence.processes.child import Child, FreshProcessFailed
from pytest_bandwidth.evidence.processes.waiting import Room, StartedAhead
from pytest_bandwidth.judging.evidence import Ask, Evidence
from pytest_bandwidth.judging.judge import FreshRow, Rule

# A majority that agrees spares the rest of the processes asked for. To start one in vain costs less than to start it
# late, when the memory that the others used has gone back to a hypervisor.
BEYOND_MAJORITY = 1


class FreshProcesses:
    """Start the new processes of one test; a `Resolver`, and a context whose end ends those that still wait.

    start: starts one. room: for how many to have the device open, before any measures. lock: the device's; held while
    processes start or one measures, and free in between, also where those that are needed no more end.
    """

    def __init__(
        self,
        start: Callable[[], Child],
        lock: Callable[[], AbstractContextManager[object]],
        tell: Callable[[str], None],
        *,
        confirm: int,
        room: Room,
        peak: Peak | None,
        timeout_seconds: float,
    ) -> None:
        self._start, self._lock, self._tell = start, lock, tell
        self._confirm, self._peak, self._timeout_seconds = confirm, peak, timeout_seconds
        self._ahead = StartedAhead(room, timeout_seconds)
        self.rows: list[Mapping[str | None, FreshRow]] = []

    def __enter__(self) -> FreshProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ahead.__exit__(kind, error, at)

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
        self._tell(f"slow: new process {len(self.rows) + 1} of at most {self._confirm}")
        needed = 1 if self.rows else min(self._confirm, _majority(self._confirm) + BEYOND_MAJORITY)
        with self._lock():
            self.rows.append(self._ahead.measured(self._start, needed, self._rows_by_label))
        return {label: row.figures for label, row in self.rows[-1].items()}

    def _rows_by_label(self, child: Child) -> Mapping[str | None, FreshRow]:
        begun = time.monotonic()
        rows = child.rows(self._timeout_seconds)
        return _by_label(rows, self._peak, time.monotonic() - begun)

    def of(self, label: str | None) -> tuple[FreshRow, ...]:
        """Return what each process saw of the measurement of that label."""
        return tuple(row[label] for row in self.rows if label in row)


def _majority(count: int) -> int:
    return count // 2 + 1


def _by_label(rows: list[dict[str, Any]], peak: Peak | None, seconds: float) -> dict[str | None, FreshRow]:
    """Return what a fresh process measured validly, by label. Raises FreshProcessFailed where that is nothing."""
    trouble = {row["label"]: why_no_evidence(row, peak) for row in rows}
    valid = [row for row in rows if trouble[row["label"]] is None]
    if not valid:
        raise FreshProcessFailed(f"a fresh process measured nothing valid: {next(iter(trouble.values()), 'no result')}")
    return {row["label"]: FreshRow(metrics_of_row(row, peak), seconds) for row in valid}
