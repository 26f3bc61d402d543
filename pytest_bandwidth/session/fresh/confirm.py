"""Measure a suspect test again in fresh processes: started side by side, measured one by one, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pytest_bandwidth.devices.memory_speed import LONGEST_WAIT_SECONDS
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.judging.confirmation import (
    MOST_FRESH_FACTOR,
    ROUNDS_SHARE,
    Confirmation,
    FastestProbes,
    FreshMetrics,
    FreshRow,
)
from pytest_bandwidth.domain.metrics import Metrics
from pytest_bandwidth.domain.validity import why_no_evidence
from pytest_bandwidth.session.fresh.child import Child, FreshProcessFailed, Go, rows_of

# The user waits for all of this. Waits for the baseline's memory speed, and processes beyond those asked for, are tried
# while a test was measured and confirmed for no more seconds than this, or than those asked for take without waiting,
# where that is more.
LEAST_SECONDS = 8.2
# A look at the memory's speed takes a moment, which is no wait.
LONG_WAIT_SECONDS = 0.2
# A majority that agrees spares the rest of the processes asked for. To start one in vain costs less than to start it
# late, when the memory that the others used has gone back to a hypervisor.
BEYOND_MAJORITY = 1


@dataclass(slots=True)
class Waiting:
    """Tell whether to wait for a memory speed: on a host, until so many processes in a row did in vain."""

    on_host: bool
    most_in_vain: int
    in_vain: int = 0

    def worth(self, probes: FastestProbes) -> FastestProbes:
        """Return what to wait for. A GPU keeps its memory's speed for longer than a test can wait."""
        return probes if self.on_host and self.in_vain < self.most_in_vain else {}

    def note(self, waits: FastestProbes, figures: FreshMetrics) -> None:
        """Remember whether a process that was to wait met one of the speeds."""
        if waits:
            met = any((figures[of].probe_gbps or 0.0) <= fastest for of, fastest in waits.items() if of in figures)
            self.in_vain = 0 if met else self.in_vain + 1


def measure_again(
    confirmation: Confirmation, run: Callable[[FastestProbes], FreshMetrics | None]
) -> tuple[list[FreshMetrics], BandwidthError | None]:
    """Run one fresh process after the other until the confirmation needs no more or `run` returns None.

    Returns what they measured, and the error that ended them early, if one did.
    """
    fresh: list[FreshMetrics] = []
    while not confirmation.is_complete(fresh):
        try:
            figures = run(confirmation.fastest_probes(fresh))
        except BandwidthError as error:
            return fresh, error
        if figures is None:
            break
        fresh.append(figures)
    return fresh, None


class FreshProcesses:
    """Start the fresh processes of one test. It is a context: those that wait for their turn when it ends are ended.

    start: starts one. side_by_side: whether several may start at once, before any measures. lock: the device's; held
    while processes start or one measures, and free in between. measured_seconds: how long the test itself was measured.
    """

    def __init__(
        self,
        start: Callable[[], Child],
        lock: Callable[[], AbstractContextManager[object]],
        tell: Callable[[str], None],
        waiting: Waiting,
        *,
        confirm: int,
        side_by_side: bool,
        peak: Peak | None,
        timeout_seconds: float,
        measured_seconds: float,
    ) -> None:
        self._start, self._lock, self._tell, self._waiting = start, lock, tell, waiting
        self._confirm, self._side_by_side, self._peak = confirm, side_by_side, peak
        self._timeout_seconds = timeout_seconds
        self._spent_seconds = 0.0
        self._start_seconds = 0.0
        self._stack = ExitStack()
        self._waiting_children: list[Child] = []
        self._measured_seconds = measured_seconds
        # Of those so far, without what they waited.
        self._longest_seconds = 0.0
        self._waited = False
        self.rows: list[Mapping[str | None, FreshRow]] = []

    def __enter__(self) -> FreshProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def measure_again(self, confirmation: Confirmation) -> tuple[list[FreshMetrics], BandwidthError | None]:
        """Run as many processes as the confirmation needs and there is time for."""
        return measure_again(confirmation, self.run)

    def run(self, fastest_probes: FastestProbes) -> FreshMetrics | None:
        """Run one more process and return its figures by label; None where there is no time for it.

        There is for those that were asked for, unless waiting for a memory speed took it: what one process saw at that
        speed, or that it did not come, tells more than further ones beside a faster device.

        fastest_probes: by label, GB/s of the fastest probe beside which it shall measure where it can.
        Raises FreshProcessFailed where it measured nothing valid, DeviceUnavailable where the device stays taken.
        """
        done = len(self.rows)
        if (done >= self._confirm or self._waited) and self._left_seconds() < self._next_seconds():
            return None
        most = self._confirm if done < self._confirm else MOST_FRESH_FACTOR * self._confirm
        self._tell(f"suspect: fresh process {done + 1} of at most {most}")
        waits = self._waiting.worth(fastest_probes)
        with self._lock():
            child = self._next()
            begun = time.monotonic()
            rows = rows_of(child, Go(tuple(waits.items()), self._wait_seconds()), self._timeout_seconds)
            seconds = time.monotonic() - begun
        self._spent_seconds += seconds
        self.rows.append(_by_label(rows, self._peak, seconds))
        waited = max(row.waited_seconds for row in self.rows[-1].values())
        self._longest_seconds = max(self._longest_seconds, seconds - waited)
        self._waited |= waited > LONG_WAIT_SECONDS
        seen = {label: row.figures for label, row in self.rows[-1].items()}
        self._waiting.note(waits, seen)
        return seen

    def of(self, label: str | None) -> tuple[FreshRow, ...]:
        """Return what each process saw of the measurement of that label."""
        return tuple(row[label] for row in self.rows if label in row)

    def _next(self) -> Child:
        if not self._waiting_children:
            count = (
                1
                if self.rows or not self._side_by_side
                else min(self._confirm, _majority(self._confirm) + BEYOND_MAJORITY)
            )
            begun = time.monotonic()
            self._waiting_children = [self._stack.enter_context(self._start()) for _ in range(count)]
            for child in self._waiting_children:
                child.wait_until_ready(self._timeout_seconds)
            seconds = time.monotonic() - begun
            self._spent_seconds += seconds
            self._start_seconds = max(self._start_seconds, seconds / count)
        return self._waiting_children.pop(0)

    def _left_seconds(self) -> float:
        """Return what is left for waits and further processes. Waiting for the device itself spends nothing."""
        asked_for = self._confirm * (self._start_seconds + self._longest_seconds)
        return max(LEAST_SECONDS - self._measured_seconds, asked_for) - self._spent_seconds

    def _next_seconds(self) -> float:
        """Return what one more process takes, without waiting."""
        return self._longest_seconds + (0.0 if self._waiting_children else self._start_seconds)

    def _wait_seconds(self) -> float:
        """Return how long the next process may wait and still measure in time."""
        left = self._left_seconds() - (self._longest_seconds or ROUNDS_SHARE * self._measured_seconds)
        return min(LONGEST_WAIT_SECONDS, max(0.0, left))


def _majority(count: int) -> int:
    return count // 2 + 1


def _by_label(rows: list[dict[str, Any]], peak: Peak | None, seconds: float) -> dict[str | None, FreshRow]:
    """Return what a fresh process measured validly, by label. Raises FreshProcessFailed where that is nothing."""
    trouble = {row["label"]: why_no_evidence(row, peak) for row in rows}
    valid = [row for row in rows if trouble[row["label"]] is None]
    if not valid:
        raise FreshProcessFailed(f"a fresh process measured nothing valid: {next(iter(trouble.values()), 'no result')}")
    return {row["label"]: FreshRow(figures_of_row(row, peak), row.get("waited_seconds", 0.0), seconds) for row in valid}


def figures_of_row(row: Mapping[str, Any], peak: Peak | None) -> Metrics:
    """Return a fresh process's figures; peak: the run's."""
    # Not the row's own share: a fresh process reads no baseline, where the peak may stand.
    share = None if peak is None else row["gbps"] / peak.gbps
    return Metrics(row["gbps"], row["relative"], row["probe_gbps"], share)
