"""Count what DRAM moves for a measurement: its test runs once more, in a fresh process under the user's profiler."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.evidence.judged_test import JudgedTest
from pytest_bandwidth.evidence.processes.child import Child, ChildResult
from pytest_bandwidth.features.counters.count_request import COUNTED, REACHED, CountRequest
from pytest_bandwidth.features.counters.dram_traffic import DramTraffic
from pytest_bandwidth.features.counters.errors import CountersFailed, CountUnfinished, NoKernelCounted
from pytest_bandwidth.features.counters.profilers import Profiler, Reporter, profiler_of, reporter_of
from pytest_bandwidth.storage.own_folders import temporary_folder

# A profiler that hangs, or is refused, would be so in every test.
MOST_FAILURES_IN_A_ROW = 2
# So many characters of the reason are repeated where no more is tried.
SHORT_REASON = 80
UNFINISHED = "the workload did not come to its end under {}"
UNREACHED = (
    "the test did not come to this workload under {}: it skipped there, failed before, or gave it another label; "
    "nothing is timed there, so let what it measures depend on no figures"
)
BY_HAND = "run its test by hand, in a process of its own"


class _Tries:
    """Try a profiler until it failed so many times in a row."""

    def __init__(self) -> None:
        self._failures = 0
        self._last = ""

    @contextmanager
    def one(self) -> Iterator[None]:
        """Try once more. Raises CountersFailed, with the reason of the last failure in short, where that is over."""
        if self._failures >= MOST_FAILURES_IN_A_ROW:
            why = textwrap.shorten(self._last, SHORT_REASON, placeholder=" …")
            raise CountersFailed(f"not tried any more: {self._failures} tries in a row failed, the last time: {why}")
        try:
            yield
        except (NoKernelCounted, CountUnfinished):  # the profiler did its work: the next test is another
            self._failures = 0
            raise
        except CountersFailed as error:
            self._failures, self._last = self._failures + 1, str(error)
            raise
        self._failures = 0


class Counters:
    """Count by one profiler on one device.

    asked: ``auto``, ``ncu`` or ``rocprofv3``, or ``off``, where a regression may be profiled still; identity: the
    device's.
    """

    def __init__(self, asked: str, identity: DeviceIdentity) -> None:
        self._asked, self._identity = "auto" if asked == "off" else asked, identity
        self._counting, self._profiling = _Tries(), _Tries()
        self._refusal: CountersFailed | None = None

    @cached_property
    def _profiler(self) -> Profiler:
        return profiler_of(self._asked, self._identity)

    @cached_property
    def _reporter(self) -> Reporter | CountersFailed:
        """Return what profiles, or why nothing does: asked once, for that may take long."""
        try:
            return reporter_of(self._identity)
        except CountersFailed as error:
            return error

    def check(self) -> None:
        """Raise CountersFailed, one line, for what can be told before anything runs."""
        try:
            _ = self._profiler
        except CountersFailed as error:
            self._refusal = error
            raise

    def count(self, test: JudgedTest, request: CountRequest) -> DramTraffic:
        """Return what DRAM moved for the request's measurement. Whatever ends this call, no process is left.

        Raises CountersFailed.
        """
        if self._refusal is not None:
            raise self._refusal
        self.check()
        with self._counting.one(), test.alone(), temporary_folder() as folder:
            return self._traffic(test, request, Path(folder))

    def profile(self, test: JudgedTest, request: CountRequest, report: Path) -> str | None:
        """Profile the request's measurement into a report's file; return what it may lack, None where nothing.

        Raises CountersFailed where there is no report.
        """
        if isinstance(self._reporter, CountersFailed):
            raise self._reporter
        with self._profiling.one(), temporary_folder() as folder:
            return self._report(test, request, self._reporter, report, Path(folder, "ncu.log"))

    def _report(
        self, test: JudgedTest, request: CountRequest, reporter: Reporter, report: Path, log: Path
    ) -> str | None:
        try:
            report.parent.mkdir(parents=True, exist_ok=True)
            report.unlink(missing_ok=True)
        except OSError as error:
            raise CountersFailed(f"reports cannot be written there: {error}") from None
        with test.alone():
            result = _ended("ncu", reporter.command(report, log, test.invocation.command()), test, request)
        lacks = f"{UNFINISHED.format('ncu')}: {BY_HAND}" if REACHED in result.steps else UNREACHED.format("ncu")
        if report.exists():
            return None if COUNTED in result.steps else lacks
        if result.code is None:
            raise CountersFailed(_too_long("ncu", test))
        try:
            reporter.check_log(log)
        except NoKernelCounted as error:
            raise error if COUNTED in result.steps else CountUnfinished(lacks) from None
        last = _last_said(result.tail)
        raise CountersFailed(f"ncu wrote no report (exit status {result.code}, at last {last})")

    def _traffic(self, test: JudgedTest, request: CountRequest, folder: Path) -> DramTraffic:
        name = self._profiler.name
        result = _ended(name, self._profiler.command(folder, test.invocation.command()), test, request)
        if result.code is None:
            raise CountersFailed(_too_long(name, test))
        ended = "" if result.code == 0 else f" (exit status {result.code}, at last {_last_said(result.tail)})"
        unfinished = f"{UNFINISHED.format(name)}, so that kernels may be missing: {BY_HAND}"
        if REACHED not in result.steps:
            unfinished = UNREACHED.format(name)
        try:
            found = self._profiler.traffic(folder)
        except CountersFailed as error:
            if isinstance(error, NoKernelCounted) and COUNTED not in result.steps:
                raise CountUnfinished(f"{unfinished}{ended}") from None
            raise type(error)(f"{error}{ended}") from None
        if COUNTED not in result.steps:
            raise CountUnfinished(f"{unfinished}{ended}")
        return found


def _ended(name: str, command: Sequence[str], test: JudgedTest, request: CountRequest) -> ChildResult:
    """Run a child under the profiler of that name. Raises CountersFailed where that does not start."""
    try:
        with Child(command, test.invocation.folder, request, direct=False) as child:
            return child.finish(test.test.fresh_seconds)
    except OSError as error:
        raise CountersFailed(f"{name} does not start: {error}") from None


def _too_long(name: str, test: JudgedTest) -> str:
    return f"the test under {name} did not end in {test.test.fresh_seconds:.0f} s"


def _last_said(tail: Sequence[str]) -> str:
    """Return the line in which pytest names what failed; the last one where none does."""
    named = [line for line in tail if line.startswith(("FAILED ", "ERROR "))]
    return shown((named or list(tail) or ["nothing"])[-1].strip(), 200)
