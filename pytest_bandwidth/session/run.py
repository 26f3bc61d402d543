"""Measure and judge in the process that the user started: by a baseline, or by another revision."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from os.path import exists
from pathlib import Path

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.code_files import needed_cubin, needed_files, needed_ptx
from pytest_bandwidth.devices.base import Budget
from pytest_bandwidth.domain.baseline import Baseline
from pytest_bandwidth.domain.code.machine_code import CubinSource
from pytest_bandwidth.domain.code.ptx_normal_form import PtxSource
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.errors import BaselineError, UsageError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.evidence.commit_pairs.build import build_of, check_extensions
from pytest_bandwidth.evidence.commit_pairs.commits import AskedCommit, BaselineCommits
from pytest_bandwidth.evidence.commit_pairs.pairs import CommitPairs, against_evidence, decide_counted
from pytest_bandwidth.evidence.commit_pairs.process import Rows, Worktrees
from pytest_bandwidth.evidence.commit_pairs.revision_code import NO_ROWS, RevisionCode
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision, remove_leftovers
from pytest_bandwidth.evidence.fresh_processes.remeasure import FreshProcesses
from pytest_bandwidth.evidence.git import is_shallow
from pytest_bandwidth.evidence.judged_test import JudgedTest
from pytest_bandwidth.evidence.old_kernel.in_child import MeasureWithOldKernels, OldKernel
from pytest_bandwidth.evidence.old_kernel.resolver import OldKernels, why_not_loadable
from pytest_bandwidth.evidence.processes.child import Child, Invocation
from pytest_bandwidth.evidence.processes.requests import ChildRequest
from pytest_bandwidth.evidence.processes.waiting import room_on
from pytest_bandwidth.evidence.time_budget import OldCodeTime, Timed
from pytest_bandwidth.judging.evidence import code_alone, first_evidence, has_code, of_old_code_alone
from pytest_bandwidth.judging.judge import ROUNDS_SHARE, Judged, Resolver, judge
from pytest_bandwidth.judging.limits import Limits, MarkerOptions
from pytest_bandwidth.judging.pairs import Looks
from pytest_bandwidth.measuring.measuring_run import (
    FRESH_SECONDS_LEAST,
    QUIET_WAIT_SECONDS,
    AskedTest,
    HookedPeak,
    MeasuredTest,
    MeasuringRun,
    Mode,
    no_hook,
)
from pytest_bandwidth.measuring.progress import Progress
from pytest_bandwidth.options.settings import ANCHOR, Settings

# A process that only tells its tests' code runs each once.
TELL_SECONDS_EACH = 10.0


class JudgingRun(MeasuringRun):
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
        mode = Mode(
            identifies_code=not settings.disable,
            notes_inputs=revision is not None,
            quiet_wait_seconds=patience,
            strict=settings.strict,
        )
        super().__init__(settings, root, settings.device, hooked_peak, mode)
        self._needs_baseline = needs_baseline
        self.revision = revision
        self._invocation = invocation
        self._revision_code = RevisionCode()
        # Tests' files whose extensions, as far as they are loaded, the revision has as well.
        self._with_extensions: set[Path] = set()
        self._old_code_time = OldCodeTime(settings.settle_time)

    def close(self) -> None:
        """Remove what was checked out of old code."""
        if "_commits" in vars(self):
            self._commits.close()

    @cached_property
    def _commits(self) -> BaselineCommits:
        build = build_of(self.settings.build, self.root)
        return BaselineCommits(self.root, self._whole_baseline, build, anchors=self._is_anchored)

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
            return self._revision_code.ptx
        return None if self.baseline_file is None else partial(needed_ptx, self.baseline_file)

    @property
    def _old_cubin(self) -> CubinSource:
        """Return what gives the machine code of the revision, or of the baseline."""
        if self.revision is not None:
            return self._revision_code.cubin
        return (lambda _: None) if self.baseline_file is None else partial(needed_cubin, self.baseline_file)

    @property
    def old_files(self) -> Callable[[str], str] | None:
        """Return what gives the list of files of the revision, or of the baseline."""
        if self.revision is not None:
            return self._revision_code.files
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
        """Return the baseline, another device's without its figures.

        Raises BaselineError for a file that is missing, bad, or of another kind of device.
        """
        baseline = self._whole_baseline
        if baseline is None or baseline.device is None or baseline.device.matches(self.device.identity):
            return baseline
        return code_alone(baseline)

    @cached_property
    def _whole_baseline(self) -> Baseline | None:
        """Return the baseline as its file has it. Raises BaselineError."""
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
            return baseline
        baseline_files.check_device(baseline, self.device.identity)
        return baseline

    @property
    def _runs_old_code(self) -> bool:
        """Return whether another device's baseline is of use: its code runs here, and it is not to be written."""
        comparable = self.device.launches_old_code or self.device.identity.on_host
        return comparable and not self.settings.writes_baseline

    @property
    def why_old_kernels_cannot_run(self) -> str | None:
        """Say which kernels of the baseline this machine cannot load; None where it can, or needs none."""
        device, old_ptx = self.device, self.old_ptx
        unneeded = self.settings.update or self.settings.settle == "never"
        if unneeded or self.baseline is None or old_ptx is None or not device.launches_old_code:
            return None
        entries = self.baseline.entries.values()
        return why_not_loadable(device, device.identity, entries, old_ptx, self._old_cubin)

    def rows_elsewhere(self, test: AskedTest, progress: Progress) -> Rows:
        """Return what the revision said of a test's code, by label; its file is asked once, for all tests beside."""
        if self.revision is None or self.settings.disable:
            return NO_ROWS
        if self.device.identity.counts_only and self.revision.holds_plugin:
            return NO_ROWS  # the plugin that counts is itself another one there
        if test.file not in self._with_extensions:
            check_extensions(self.revision)
            self._with_extensions.add(test.file)
        timeout = FRESH_SECONDS_LEAST + len(test.beside) * TELL_SECONDS_EACH
        worktrees = Worktrees(self._invocation, self.revision, self.device_name, test.nodeid, test.file, timeout)
        return self._revision_code.of(worktrees, test.beside, partial(self.locked, progress), progress.show)

    def prepare(self) -> None:
        """Open the device and read the baseline now, so that what is wrong is said before any test runs."""
        super().prepare()
        remove_leftovers()
        _ = self.baseline
        self._refuse_shallow_clone()

    def _refuse_shallow_clone(self) -> None:
        """Raise UsageError in CI where the clone holds no commit to compare changed code with."""
        baseline, settings = self._whole_baseline, self.settings
        in_ci = os.environ.get("CI", "").lower() in ("true", "1")
        compares = baseline is not None and not settings.writes_baseline and settings.settle != "never"
        if not in_ci or not compares or self.device.identity.counts_only or not is_shallow(self.root):
            return
        if baseline is not None and baseline.entries and not self._commits.has_any():
            raise UsageError(
                "found a shallow clone without the commits that the baseline's runs name, expected the history, for "
                "changed code is compared with its old code: check out with fetch-depth: 0 (GitHub) or GIT_DEPTH: 0 "
                "(GitLab)"
            )

    def judge(
        self, measurements: Mapping[str, Measurement], test: MeasuredTest, progress: Progress
    ) -> dict[str, Judged]:
        """Judge one test's measurements; verdicts by key.

        The device's lock is held for each fresh process, or for the two of a pair: others measure in between.
        """
        settings, asked = self.settings, JudgedTest(test, self, self._invocation, progress)
        limits = Limits(
            test.marker,
            settings.tolerance,
            settings.confirm,
            "all" if settings.update else "new" if settings.update_new else "none",
            Looks(settings.pairs),
        )
        self.device.release()
        old_kernels = self._old_kernels(asked)
        with self._fresh_processes(asked) as fresh:
            if self.revision is None:
                resolvers = self._resolvers(asked, limits, old_kernels)
                evidence = first_evidence(measurements, self.baseline, limits)
                if self._is_anchored:
                    evidence = {key: of_old_code_alone(one) for key, one in evidence.items()}
                judged = judge(evidence, limits, (*resolvers, fresh))
            else:
                judged = self._against(self.revision, measurements, asked, limits, old_kernels, fresh)
            judged = {key: replace(one, fresh=fresh.of(one.measurement.label)) for key, one in judged.items()}
        if old_kernels is not None:
            judged = {key: old_kernels.with_processes(one) for key, one in judged.items()}
        return judged

    def judged_test(self, test: MeasuredTest, progress: Progress) -> JudgedTest:
        """Return what more evidence about a judged test can be gathered with."""
        asked = JudgedTest(test, self, self._invocation, progress)
        old_kernels = self._old_kernels(asked)
        return asked if old_kernels is None else replace(asked, find_old_kernel=old_kernels.old_kernel_of)

    def _against(
        self,
        revision: Revision,
        measurements: Mapping[str, Measurement],
        asked: JudgedTest,
        limits: Limits,
        old_kernels: OldKernels | None,
        fresh: FreshProcesses,
    ) -> dict[str, Judged]:
        """Judge by another revision."""
        worktrees = self._worktrees(asked.test, revision)
        rows = self._revision_code.known(worktrees)
        if self.device.identity.counts_only:
            counted = decide_counted(measurements, limits, worktrees, rows, asked.alone)
            return {key: Judged(measurements[key], entry, decision) for key, (decision, entry) in counted.items()}
        pairs = CommitPairs(
            AskedCommit(revision), _file_of(asked.test), lambda *_: worktrees, limits, asked.tell, asked.alone
        )
        resolvers = (pairs, fresh) if old_kernels is None else (old_kernels, pairs, fresh)
        return judge(against_evidence(measurements, limits, revision, rows), limits, resolvers)

    def _resolvers(self, asked: JudgedTest, limits: Limits, old_kernels: OldKernels | None) -> tuple[Resolver, ...]:
        """Return what compares changed or unknown code with old code, the best first."""
        if self.settings.settle == "never":
            return ()
        at = partial(self._worktrees, asked.test)
        pairs = CommitPairs(self._commits, _file_of(asked.test), at, limits, asked.tell, asked.alone)
        found: tuple[Resolver, ...] = (pairs,) if old_kernels is None or self._is_anchored else (old_kernels, pairs)
        return found if self._is_anchored else tuple(Timed(one, self._old_code_time) for one in found)

    @property
    def _is_anchored(self) -> bool:
        """Return whether tests are compared with the commits of their entries' anchors."""
        return self.settings.against == ANCHOR

    def _worktrees(self, test: MeasuredTest, revision: Revision, rounds_share: float = 1.0) -> Worktrees:
        file, timeout = _file_of(test), test.fresh_seconds
        return Worktrees(self._invocation, revision, self.device_name, test.nodeid, file, timeout, rounds_share)

    def _users_peak(self) -> Peak | None:
        asked = super()._users_peak()
        if asked is None and self.baseline is not None and self.baseline.device and self.baseline.device.peak_gbps:
            return Peak(self.baseline.device.peak_gbps * 1e9, f"peak in {self.baseline.path}")
        return asked

    def _budget(self, marker: MarkerOptions, label: str | None) -> Budget:
        del label  # only a parent's request tells labels apart
        return self._budget_of(marker, 1.0, exact=self.settings.writes_baseline)

    def _old_kernels(self, asked: JudgedTest) -> OldKernels | None:
        """Return what alternates old kernels with new ones; None where the device cannot, or there are none."""
        old_ptx = self.old_ptx
        if old_ptx is None or not self.device.launches_old_code:
            return None

        def start(old_kernels: Sequence[OldKernel]) -> Child:
            kind, kernels = MeasureWithOldKernels, tuple(old_kernels)
            return asked.invocation.start(asked.request(kind, rounds_share=ROUNDS_SHARE, old_kernels=kernels))

        return OldKernels(
            old_ptx,
            self._old_cubin,
            start,
            asked.alone,
            asked.tell,
            self.peak,
            asked.test.fresh_seconds,
            room_on(self.device.identity),
            Looks(self.settings.pairs),
        )

    def _fresh_processes(self, asked: JudgedTest) -> FreshProcesses:
        request = asked.request(ChildRequest, rounds_share=ROUNDS_SHARE)
        return FreshProcesses(
            lambda: asked.invocation.start(request),
            asked.alone,
            asked.tell,
            confirm=self.settings.confirm,
            room=room_on(self.device.identity),
            peak=self.peak,
            timeout_seconds=asked.test.fresh_seconds,
        )


def _file_of(test: MeasuredTest) -> Path:
    return Path(test.target.partition("::")[0])
