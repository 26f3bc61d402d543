"""Count DRAM bytes of a measurement: its test runs once more, in a fresh process under the user's profiler."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pytest_bandwidth.devices.base import Device, Workload
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.evidence.fresh_processes import JudgedTest
from pytest_bandwidth.evidence.old_kernel import load_old
from pytest_bandwidth.evidence.processes.child import Child, ChildResult
from pytest_bandwidth.evidence.processes.requests import ChildRequest, OldKernel, read_old_kernel
from pytest_bandwidth.features.counters.dram_traffic import (
    CountersFailed,
    CountUnfinished,
    DramTraffic,
    NoKernelCounted,
)
from pytest_bandwidth.features.counters.profilers import (
    Profiler,
    check_report_log,
    profiler_of,
    report_command,
    reporter_of,
)
from pytest_bandwidth.storage.own_folders import temporary_folder

# A profiler that hangs or is refused would fail in every test.
MOST_FAILURES_IN_A_ROW = 2
# So many characters of the last reason are shown after the last try.
SHORT_REASON = 80
UNFINISHED = "the workload did not end under {}"
UNREACHED = (
    "the test did not reach this workload under {}: it skipped, failed before, or gave it another label; nothing is "
    "timed there, so what it measures must not depend on figures"
)
BY_HAND = "run its test by hand, in a process of its own"
# Steps that the child notes: the workload begins; the workload has ended.
REACHED, COUNTED = "reached", "counted"

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class CountRequest(ChildRequest):
    """Ask a child to run the workload with a label under the profiler that started the child.

    old_kernel: the code to count in place of the workload's own; None = its own.
    """

    label: str | None = None
    old_kernel: OldKernel | None = None
    untimed: ClassVar[bool] = True

    @staticmethod
    def values_of(plain: Mapping[str, Any]) -> dict[str, Any]:
        old = plain["old_kernel"]
        return {**ChildRequest.values_of(plain), "old_kernel": old and read_old_kernel(old)}

    def run(self, device: Device, workload: Workload) -> object:
        """Run the workload. The requested one runs inside the range that the profiler counts."""
        if workload.label != self.label:
            return device.run(workload)
        if self.old_kernel is not None and device.launches_old_code:
            old, _ = load_old(device, self.old_kernel, workload)
            workload = replace(workload, call=old.calls[0])
        self.note(REACHED)
        value = device.run_counted(workload)
        self.note(COUNTED)
        return value


class _Tries:
    """Use a profiler until it has failed MOST_FAILURES_IN_A_ROW times."""

    def __init__(self) -> None:
        self._failures = 0
        self._last = ""

    @contextmanager
    def one(self) -> Iterator[None]:
        """Allow one try. Raises CountersFailed, with the last failure's reason in short, after too many failures."""
        if self._failures >= MOST_FAILURES_IN_A_ROW:
            why = textwrap.shorten(self._last, SHORT_REASON, placeholder=" …")
            raise CountersFailed(f"not tried any more: {self._failures} tries in a row failed, the last time: {why}")
        try:
            yield
        except (NoKernelCounted, CountUnfinished):  # the profiler works: the next test may succeed
            self._failures = 0
            raise
        except CountersFailed as error:
            self._failures, self._last = self._failures + 1, str(error)
            raise
        self._failures = 0


class Counters:
    """Count by one profiler on one device.

    asked: ``auto``, ``ncu`` or ``rocprofv3``; or ``off``, when only regressions are profiled. identity: the device's.
    Each program is looked up only once, which may take long.
    """

    def __init__(self, asked: str, identity: DeviceIdentity) -> None:
        self._asked, self._identity = "auto" if asked == "off" else asked, identity
        self._counting, self._profiling = _Tries(), _Tries()

    @cached_property
    def _profiler(self) -> Profiler | CountersFailed:
        return _or_why_not(lambda: profiler_of(self._asked, self._identity))

    @cached_property
    def _reporter(self) -> str | CountersFailed:
        return _or_why_not(lambda: reporter_of(self._identity))

    def check(self) -> Profiler:
        """Return the profiler. Raises CountersFailed, one line, for problems that are found before any test runs."""
        if isinstance(self._profiler, CountersFailed):
            raise self._profiler
        return self._profiler

    def count(self, test: JudgedTest, request: CountRequest) -> DramTraffic:
        """Return the bytes that DRAM moved for the request's measurement. No process is left, even after an error.

        Raises CountersFailed.
        """
        profiler = self.check()
        with self._counting.one(), test.alone(), temporary_folder() as name:
            folder = Path(name)
            result = _ended(profiler.name, profiler.command(folder, test.invocation.command()), test, request)
            if result.code is None:
                raise CountersFailed(_too_long(profiler.name, test))
            ended = "" if result.code == 0 else f" (exit status {result.code}, last line: {_last_line(result.tail)})"
            lacks = _lacks(profiler.name, result, ", so that kernels may be missing")
            try:
                found = profiler.traffic(folder)
            except CountersFailed as error:
                if isinstance(error, NoKernelCounted) and lacks is not None:
                    raise CountUnfinished(f"{lacks}{ended}") from None
                raise type(error)(f"{error}{ended}") from None
            if lacks is not None:
                raise CountUnfinished(f"{lacks}{ended}")
            return found

    def profile(self, test: JudgedTest, request: CountRequest, report: Path) -> str | None:
        """Profile the request's measurement into a report file; return why it may lack kernels, None if it is complete.

        Raises CountersFailed where there is no report.
        """
        reporter = self._reporter
        if isinstance(reporter, CountersFailed):
            raise reporter
        with self._profiling.one(), temporary_folder() as folder:
            log = Path(folder, "ncu.log")
            try:
                report.parent.mkdir(parents=True, exist_ok=True)
                report.unlink(missing_ok=True)
            except OSError as error:
                raise CountersFailed(f"reports cannot be written there: {error}") from None
            with test.alone():
                result = _ended("ncu", report_command(reporter, report, log, test.invocation.command()), test, request)
            lacks = _lacks("ncu", result)
            if report.exists():
                return lacks
            if result.code is None:
                raise CountersFailed(_too_long("ncu", test))
            try:
                check_report_log(log)
            except NoKernelCounted as error:
                raise error if lacks is None else CountUnfinished(lacks) from None
            last = _last_line(result.tail)
            raise CountersFailed(f"ncu wrote no report (exit status {result.code}, last line: {last})")


def _or_why_not(find: Callable[[], Found]) -> Found | CountersFailed:
    try:
        return find()
    except CountersFailed as error:
        return error


def _ended(name: str, command: Sequence[str], test: JudgedTest, request: CountRequest) -> ChildResult:
    """Run a child under the profiler called `name`. Raises CountersFailed if the profiler does not start."""
    try:
        with Child(command, test.invocation.folder, request, direct=False) as child:
            return child.finish(test.fresh_seconds)
    except OSError as error:
        raise CountersFailed(f"{name} does not start: {error}") from None


def _lacks(name: str, result: ChildResult, so: str = "") -> str | None:
    """Return a message if the workload did not start, or did not end, under the profiler; None if it ended."""
    if COUNTED in result.steps:
        return None
    return f"{UNFINISHED.format(name)}{so}: {BY_HAND}" if REACHED in result.steps else UNREACHED.format(name)


def _too_long(name: str, test: JudgedTest) -> str:
    return f"the test under {name} did not end in {test.fresh_seconds:.0f} s"


def _last_line(tail: Sequence[str]) -> str:
    """Return pytest's summary line of the failed test, else the last line."""
    named = [line for line in tail if line.startswith(("FAILED ", "ERROR "))]
    return shown((named or list(tail) or ["nothing"])[-1].strip(), 200)
