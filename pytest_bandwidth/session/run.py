"""Measure and judge in the process that the user started: by a baseline, or by another revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, replace
from functools import cached_property, partial
from os.path import exists
from pathlib import Path

from pytest_bandwidth.devices.base import Budget, OldCodeDevice
from pytest_bandwidth.devices.counters.profilers import REPORT_SUFFIX
from pytest_bandwidth.domain.baseline import Baseline
from pytest_bandwidth.domain.code.ptx_normal_form import PtxSource, is_same_but_for_target
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.errors import BandwidthError, BaselineError, CountersFailed, UsageError
from pytest_bandwidth.domain.judging import dram
from pytest_bandwidth.domain.judging.by_code.last_word import Way
from pytest_bandwidth.domain.judging.by_code.other_device import code_alone, has_code
from pytest_bandwidth.domain.judging.confirmation import ROUNDS_SHARE
from pytest_bandwidth.domain.judging.drift import drift_of
from pytest_bandwidth.domain.judging.judge import Judged, PastRuns, Pools, judge_test, pools_of
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.measured.dram import UNCOUNTED, UNPROFILED, DramTraffic
from pytest_bandwidth.domain.measured.measurement import Finding, Measurement
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.session.against.baseline_commit import AgainstItsCommit, BaselineCommits
from pytest_bandwidth.session.against.checkout import Revision
from pytest_bandwidth.session.against.pairs_loop import judge_against, with_floors
from pytest_bandwidth.session.against.told_code import NOTHING_TOLD, Told, ToldCode
from pytest_bandwidth.session.against.worktrees import Worktrees
from pytest_bandwidth.session.fresh.ahead import room_on
from pytest_bandwidth.session.fresh.beside_old import OldKernels
from pytest_bandwidth.session.fresh.child import ChildRequest, Invocation, start_fresh
from pytest_bandwidth.session.fresh.child_beside_old import OldKernel
from pytest_bandwidth.session.fresh.confirm import FreshProcesses
from pytest_bandwidth.session.fresh.counted import Counters, counting_request, file_name, is_counted
from pytest_bandwidth.session.fresh.probe import probe_alone
from pytest_bandwidth.session.measuring.measuring_run import (
    FRESH_SECONDS_LEAST,
    QUIET_WAIT_SECONDS,
    AskedTest,
    HookedPeak,
    MeasuredTest,
    MeasuringRun,
    no_hook,
)
from pytest_bandwidth.session.measuring.progress import Progress
from pytest_bandwidth.session.past_runs import HISTORY_UNREAD, past_runs
from pytest_bandwidth.session.user.settings import Settings
from pytest_bandwidth.storage import baseline as baseline_files
from pytest_bandwidth.storage.baseline.code_files import needed_files, needed_ptx

# A process that only tells its tests' code runs each once.
TELL_SECONDS_EACH = 10.0


class Run(MeasuringRun):
    """Measure and judge in one process; read the baseline when first asked."""

    def __init__(
        self,
        settings: Settings,
        invocation: Invocation,
        root: Path,
        revision: Revision | None = None,
        hooked_peak: HookedPeak = no_hook,
        *,
        needs_baseline: bool = True,
    ) -> None:
        patience = QUIET_WAIT_SECONDS if settings.writes_baseline else 0.0
        super().__init__(settings, root, settings.device, hooked_peak, patience)
        self._needs_baseline = needs_baseline
        self.revision = revision
        self._invocation = invocation
        self._probes_alone: dict[tuple[int, int], float] = {}
        self._told = ToldCode()
        self._commits = BaselineCommits(root)

    def close(self) -> None:
        """Remove what was checked out for suspects."""
        self._commits.close()

    @property
    def judged_by(self) -> str | None:
        """Return the revision or the baseline's file; None where nothing is compared."""
        if self.revision is not None:
            unread = self.settings.baseline
            return str(self.revision) if unread is None else f"{self.revision}; {unread} is not read"
        if self.baseline_file is None:
            return None
        other = None if self.baseline is None else self.baseline.code_of
        return str(self.baseline_file) if other is None else f"{self.baseline_file} (of {other}: its code alone)"

    @property
    def old_ptx(self) -> PtxSource | None:
        """Return what gives the PTX of the revision, or of the baseline; None where nothing is compared."""
        if self.revision is not None:
            return self._told.ptx
        return None if self.baseline_file is None else partial(needed_ptx, self.baseline_file)

    @property
    def old_files(self) -> Callable[[str], str] | None:
        """Return what gives the list of files of the revision, or of the baseline."""
        if self.revision is not None:
            return self._told.files
        return None if self.baseline_file is None else partial(needed_files, self.baseline_file)

    @cached_property
    def baseline_file(self) -> Path | None:
        """Return the file that belongs to this device; it need not exist yet where this run writes it."""
        if self.settings.baseline is None or self.revision is not None:
            return None
        file = baseline_files.find_file(self.settings.baseline, self.device.identity)
        if exists(file) or not self._runs_old_code:
            return file
        return baseline_files.find_code(self.settings.baseline, self.device.identity) or file

    @cached_property
    def baseline(self) -> Baseline | None:
        """Return the baseline. Raises BaselineError for a file that is missing, bad, or another device's."""
        file = self.baseline_file
        if file is None:
            return None
        if not exists(file):
            if self.settings.writes_baseline or not self._needs_baseline:
                return None
            others = baseline_files.devices_at(self.settings.baseline) if self.settings.baseline else ()
            if others:
                raise BaselineError(
                    f"{self.settings.baseline}: found baselines of {', '.join(others)}, expected one of "
                    f"{self.device.identity.name}, this run's device: write it with --bandwidth-update"
                )
            raise BaselineError(
                f"no baseline file {file}: check --bandwidth-baseline (bandwidth_baseline in the ini file), "
                "or write it with --bandwidth-update"
            )
        baseline = baseline_files.load(file)
        header, here = baseline.device, self.device.identity
        theirs = header is not None and header.is_of_kind(here) and not header.matches(here)
        if theirs and self._runs_old_code and has_code(baseline):
            return code_alone(baseline)
        baseline_files.check_device(baseline, self.device.identity)
        return baseline

    @property
    def _runs_old_code(self) -> bool:
        """Return whether another device's baseline is of use: its PTX runs here, and it is not to be written."""
        return self._launches_old_code and not self.settings.writes_baseline

    @cached_property
    def _launches_old_code(self) -> bool:
        return isinstance(self.device, OldCodeDevice)

    @property
    def notes_inputs(self) -> bool:
        return self.revision is not None

    def told_elsewhere(self, test: AskedTest, progress: Progress) -> Told:
        """Return what the revision said of a test's code, by label; its file is asked once, for all tests beside."""
        if self.revision is None or self.settings.disable:
            return NOTHING_TOLD
        if self.device.identity.counts_only and self.revision.holds_plugin:
            return NOTHING_TOLD  # the plugin that counts is itself another one there
        timeout = FRESH_SECONDS_LEAST + len(test.beside) * TELL_SECONDS_EACH
        worktrees = Worktrees(self._invocation, self.revision, self.device_name, test.nodeid, test.file, timeout)
        return self._told.of(worktrees, test.beside, partial(self.locked, progress), progress.show)

    def prepare(self) -> None:
        """Open the device and read the baseline now, so that what is wrong is said before any test runs."""
        super().prepare()
        _ = self.baseline
        _ = self._past  # no test's time is spent on it
        if self.settings.counters not in ("auto", "off") and not self.settings.disable:
            try:
                self._counters.check()
            except CountersFailed as error:
                raise UsageError(f"--bandwidth-counters: {error}") from None

    def judge(
        self, measurements: Mapping[str, Measurement], test: MeasuredTest, progress: Progress
    ) -> dict[str, Judged]:
        """Judge one test's measurements; verdicts by key.

        The device's lock is held for each fresh process, or for the two of a pair: others measure in between.
        """
        settings = self.settings
        limits = Limits(
            test.marker,
            settings.tolerance,
            settings.confirm,
            "all" if settings.update else "new" if settings.update_new else "none",
            unsure=settings.settles == "unsure",
        )
        timeout = test.fresh_seconds
        held, alone = partial(self.locked, progress), partial(self._probe_alone, progress)
        self.device.release()
        old_kernels = self._old_kernels(test, timeout, progress)
        ways = self._ways(old_kernels, limits, test, timeout, progress)
        with self._fresh_processes(test, timeout, progress) as fresh:
            if self.revision is None:
                judged = judge_test(measurements, self.baseline, limits, fresh.measure_again, alone, self._pools, ways)
                judged = {key: self._with_past(_with_drift(one)) for key, one in judged.items()}
            else:
                worktrees = self._worktrees(test, timeout, self.revision)
                told = self._told.known(worktrees)
                judged = judge_against(measurements, limits, worktrees, settings.pairs, progress.show, held, told, ways)
                if limits.floors:
                    judged = with_floors(judged, judge_test(measurements, None, limits, fresh.measure_again, alone))
            judged = {key: replace(one, fresh=fresh.of(one.measurement.label)) for key, one in judged.items()}
        if old_kernels is not None:
            judged = {key: old_kernels.with_what_they_saw(one) for key, one in judged.items()}
        if is_counted(settings.counters, self.device.identity):
            judged = {key: self._counted(one, old_kernels, test, progress) for key, one in judged.items()}
        else:
            judged = {key: dram.judged_uncounted(one, test.marker.max_dram_ratio) for key, one in judged.items()}
        if settings.profile is None:
            return judged
        return {key: self._profiled(key, one, test, progress) for key, one in judged.items()}

    @cached_property
    def _counters(self) -> Counters:
        return Counters(self.settings.counters, self.device.identity, self._invocation)

    def _counted(
        self, judged: Judged, old_kernels: OldKernels | None, test: MeasuredTest, progress: Progress
    ) -> Judged:
        """Count the measurement's traffic once its verdict is known, and judge by that as well."""
        request, held = counting_request(self.device_name, self.peak, test), partial(self.locked, progress)
        label, most = judged.measurement.label, test.marker.max_dram_ratio

        def count(request: ChildRequest = request) -> DramTraffic:
            progress.show("counts what DRAM moves")
            return self._counters.count(request, label, held, test.fresh_seconds)

        try:
            first = count()
        except CountersFailed as error:
            return dram.judged_without_counts(judged, error, most)
        old = None
        try:
            kernel = _uncounted_before(judged, old_kernels)
            if kernel is not None:
                old = count(replace(request, old_kernels=(asdict(kernel),)))
        except BandwidthError as error:
            told = Finding(UNCOUNTED, f"what DRAM moves for the old kernel was not counted: {error}")
            judged = replace(judged, measurement=judged.measurement.with_finding(told))
        return dram.judged_by_counts(judged, first, most, count, old)

    def _profiled(self, key: str, judged: Judged, test: MeasuredTest, progress: Progress) -> Judged:
        """Profile a regression once; what becomes of that changes no verdict."""
        if judged.verdict.status is not Status.REGRESSED or self.settings.profile is None:
            return judged
        report = self.settings.profile / f"{file_name(key, self.device.identity.serial)}{REPORT_SUFFIX}"
        request, held = counting_request(self.device_name, self.peak, test), partial(self.locked, progress)
        progress.show("profiles the regression")
        try:
            # Where the outputs were checked, wherever a test has gone meanwhile.
            at = self._invocation.folder / report
            lacks = self._counters.profile(request, judged.measurement.label, at, held, test.fresh_seconds)
        except CountersFailed as error:
            told = Finding(UNPROFILED, f"no profile: {error}")
            return replace(judged, measurement=judged.measurement.with_finding(told))
        if lacks is not None:
            told = Finding(UNPROFILED, f"the profile may lack kernels: {lacks}")
            judged = replace(judged, measurement=judged.measurement.with_finding(told))
        return replace(judged, profile=str(report))

    def _ways(
        self, old_kernels: OldKernels | None, limits: Limits, test: MeasuredTest, timeout: float, progress: Progress
    ) -> tuple[Way, ...]:
        """Return how changed or unknown code is settled without stored figures, or pairs, the best way first."""
        if self.settings.settles == "never":
            return ()
        if self.revision is not None:
            return () if old_kernels is None else (old_kernels,)
        at = partial(self._worktrees, test, timeout)
        held = partial(self.locked, progress)
        by_commit = AgainstItsCommit(self._commits, _file_of(test), at, limits, progress.show, held)
        return (by_commit,) if old_kernels is None else (old_kernels, by_commit)

    def _worktrees(
        self, test: MeasuredTest, timeout: float, revision: Revision, rounds_share: float = 1.0
    ) -> Worktrees:
        return Worktrees(
            self._invocation, revision, self.device_name, test.nodeid, _file_of(test), timeout, rounds_share
        )

    @cached_property
    def _pools(self) -> Pools:
        return pools_of(self.baseline, self._past[0])

    @cached_property
    def _past(self) -> tuple[PastRuns, Finding | None]:
        """Return what the history adds to the baseline, or else why it adds nothing."""
        if self.baseline is None or self.settings.update or self.settings.disable:
            return {}, None
        keys, folder = self.baseline.entries.keys(), self._invocation.folder
        try:
            return past_runs(self.settings, folder, self.device.identity, keys), None
        except (BandwidthError, OSError) as error:
            return {}, Finding(HISTORY_UNREAD, f"the history tells nothing: {error}; judged by the baseline alone")

    def _with_past(self, judged: Judged) -> Judged:
        why_not = self._past[1]
        return judged if why_not is None else replace(judged, measurement=judged.measurement.with_finding(why_not))

    def _users_peak(self) -> Peak | None:
        asked = super()._users_peak()
        if asked is None and self.baseline is not None and self.baseline.device and self.baseline.device.peak_gbps:
            return Peak(self.baseline.device.peak_gbps * 1e9, f"peak in {self.baseline.path}")
        return asked

    def _budget(self, marker: MarkerOptions, label: str | None) -> Budget:
        del label  # only a parent's request tells labels apart
        return self._budget_of(marker, self.settings.rounds_share)

    def _old_kernels(self, test: MeasuredTest, timeout_seconds: float, progress: Progress) -> OldKernels | None:
        """Return what runs old kernels beside new ones; None where the device cannot, or there are none."""
        old_ptx = self.old_ptx
        if old_ptx is None or not self._launches_old_code:
            return None
        request = self._request_of(test)
        return OldKernels(
            old_ptx,
            lambda olds: start_fresh(self._invocation, replace(request, old_kernels=tuple(map(asdict, olds)))),
            partial(self.locked, progress),
            progress.show,
            self.peak,
            timeout_seconds,
            room_on(self.device.identity),
        )

    def _request_of(self, test: MeasuredTest) -> ChildRequest:
        peak = None if self.peak is None else astuple(self.peak)
        return ChildRequest(self.device_name, test.nodeid, test.target, ROUNDS_SHARE, peak, identifies_code=False)

    def _fresh_processes(self, test: MeasuredTest, timeout_seconds: float, progress: Progress) -> FreshProcesses:
        request = self._request_of(test)
        return FreshProcesses(
            lambda: start_fresh(self._invocation, request),
            partial(self.locked, progress),
            progress.show,
            confirm=self.settings.confirm,
            room=room_on(self.device.identity),
            peak=self.peak,
            timeout_seconds=timeout_seconds,
        )

    def _probe_alone(self, progress: Progress, bytes_read: int, bytes_written: int) -> float:
        """Measure a matching probe in a fresh process, in GB/s; once for all tests that move as much either way."""
        moved = (bytes_read, bytes_written)
        if moved not in self._probes_alone:
            with self.locked(progress):
                tolerant = self.settings.busy_processors is not None
                self._probes_alone[moved] = probe_alone(self.device_name, *moved, tolerates_run_delay=tolerant)
        return self._probes_alone[moved]


def _uncounted_before(judged: Judged, old_kernels: OldKernels | None) -> OldKernel | None:
    """Return the old code to count here, where the entry has other code than the measurement, and no counts.

    None where there is none to be had. Raises BandwidthError where it is not safe to run.
    """
    entry = judged.entry
    if old_kernels is None or entry is None or judged.verdict.status in (Status.UPDATED, Status.NOT_COMPARABLE):
        return None
    if dram.has_counts(entry):
        return None
    kernel = old_kernels.at_hand(judged.measurement, entry)
    return None if kernel is None or is_same_but_for_target(kernel.old, kernel.new) else kernel


def _file_of(test: MeasuredTest) -> Path:
    return Path(test.target.partition("::")[0])


def _with_drift(judged: Judged) -> Judged:
    drift = drift_of(judged.entry, judged.verdict)
    if drift is None:
        return judged
    return replace(judged, measurement=judged.measurement.with_finding(drift))
