"""Judge the measurements of the process that the user started, by a baseline or by another revision."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from os.path import exists
from pathlib import Path

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.code_files import KeptCode
from pytest_bandwidth.domain.baseline import Baseline
from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import BaselineError, UsageError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.evidence.commit_pairs.build import Build, check_extensions
from pytest_bandwidth.evidence.commit_pairs.commits import BaselineCommits
from pytest_bandwidth.evidence.commit_pairs.pairs import CommitPairs, against_evidence, decide_counted
from pytest_bandwidth.evidence.commit_pairs.process import NO_ROWS, RevisionCode, Rows, Worktrees
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision
from pytest_bandwidth.evidence.fresh_processes import FRESH_SECONDS_LEAST, FreshProcesses, JudgedTest
from pytest_bandwidth.evidence.git import is_shallow
from pytest_bandwidth.evidence.old_kernel import OldKernels
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.judging.evidence import Evidence, code_alone, first_evidence
from pytest_bandwidth.judging.judge import Judged, OldCodeTime, Resolver, judge
from pytest_bandwidth.judging.limits import Limits
from pytest_bandwidth.judging.pairs import Looks
from pytest_bandwidth.measuring.measurer import QUIET_WAIT_SECONDS, HookedPeak, Measurer
from pytest_bandwidth.measuring.progress import Progress
from pytest_bandwidth.measuring.task import Task
from pytest_bandwidth.options.settings import ANCHOR, Settings
from pytest_bandwidth.storage.own_folders import remove_temporary_folders

# The time for each test of a process that only reports its tests' code: it runs each once.
REPORT_SECONDS_EACH = 10.0


class Judge:
    """Judge the measurements of `measurer`; read the baseline at its first use."""

    def __init__(
        self,
        settings: Settings,
        invocation: Invocation,
        root: Path,
        revision: Revision | None = None,
        hooked_peak: HookedPeak = lambda _: None,
        *,
        needs_baseline: bool = True,
    ) -> None:
        patience = QUIET_WAIT_SECONDS if settings.writes_baseline else 0.0
        task = Task(settings.device, quiet_wait_seconds=patience)
        self.measurer = Measurer(settings, root, task, self._users_peak, notes_inputs=revision is not None)
        self.revision = revision
        self._needs_baseline, self._invocation, self._hooked_peak = needs_baseline, invocation, hooked_peak
        self._revision_code = RevisionCode()
        # Test files for which the revision has all extensions that are loaded here.
        self._with_extensions: set[Path] = set()
        self._old_code_time = OldCodeTime(settings.settle_time)

    @property
    def settings(self) -> Settings:
        return self.measurer.settings

    @property
    def _identity(self) -> DeviceIdentity:
        return self.measurer.device.identity

    def close(self) -> None:
        """Remove the checkouts of old code."""
        if "_commits" in vars(self):
            self._commits.close()

    @cached_property
    def _commits(self) -> BaselineCommits:
        command, root = self.settings.build, self.measurer.root
        build = None if command is None else Build(command, root)
        return BaselineCommits(root, self._whole_baseline, build, anchors=self._is_anchored)

    @property
    def judged_by(self) -> str | None:
        """Return the revision or the baseline's file, as text; None where nothing is compared."""
        if self.revision is not None:
            unread = self.settings.baseline
            return str(self.revision) if unread is None else f"{self.revision}; {unread} is not read"
        if self.baseline_file is None:
            return None
        other = None if self.baseline is None else self.baseline.code_of
        return str(self.baseline_file) if other is None else f"{self.baseline_file} (of {other}: its code alone)"

    @property
    def old_code(self) -> RevisionCode | KeptCode | None:
        """Return the source of old code: the revision's or the baseline's; None where nothing is compared."""
        if self.revision is not None:
            return self._revision_code
        return None if self.baseline_file is None else KeptCode(self.baseline_file)

    @cached_property
    def baseline_file(self) -> Path | None:
        """Return the baseline's file for this device; it may not exist yet if this run writes it."""
        if self.settings.baseline is None or self.revision is not None:
            return None
        file = baseline_files.find_file(self.settings.baseline, self._identity)
        if exists(file) or not self._runs_old_code:
            return file
        return baseline_files.find_code(self.settings.baseline, self._identity) or file

    @cached_property
    def baseline(self) -> Baseline | None:
        """Return the baseline; one of another device without its figures.

        Raises BaselineError for a file that is missing, bad, or of another kind of device.
        """
        baseline = self._whole_baseline
        if baseline is None or baseline.device is None or baseline.device.matches(self._identity):
            return baseline
        return code_alone(baseline)

    @cached_property
    def _whole_baseline(self) -> Baseline | None:
        """Return the baseline with all of its file's contents. Raises BaselineError."""
        file = self.baseline_file
        if file is None:
            return None
        if not exists(file):
            if self.settings.writes_baseline or not self._needs_baseline:
                return None
            if self.settings.baseline is not None:
                baseline_files.refuse_other_devices(self.settings.baseline, self._identity)
            raise BaselineError(
                f"no baseline file {file}: check --bandwidth-baseline (bandwidth_baseline in the ini file), "
                "or write it with --bandwidth-update"
            )
        baseline = baseline_files.load(file)
        header, here = baseline.device, self._identity
        theirs = header is not None and header.is_of_kind(here) and not header.matches(here)
        if theirs and self._runs_old_code and any(entry.code for entry in baseline.entries.values()):
            return baseline
        baseline_files.check_device(baseline, here)
        return baseline

    @property
    def _runs_old_code(self) -> bool:
        """Return whether another device's baseline is useful: this run can run its code, and does not write it."""
        comparable = self.measurer.device.launches_old_code or self._identity.on_host
        return comparable and not self.settings.writes_baseline

    def rows_elsewhere(self, nodeid: str, file: Path, of_file: Sequence[str], progress: Progress) -> Rows:
        """Return the revision's rows about a test's code, by label; unchanged code need not be measured.

        of_file: node ids of all tests of the file that this run measures. One process reports their code together.
        """
        if self.revision is None or self.settings.disable:
            return NO_ROWS
        counts = self._identity.counts_only
        if counts and self.revision.holds_plugin:
            return NO_ROWS  # the revision has its own plugin, whose counts may differ
        if file not in self._with_extensions:
            check_extensions(self.revision)
            self._with_extensions.add(file)
        timeout = FRESH_SECONDS_LEAST + len(of_file) * REPORT_SECONDS_EACH
        worktrees = Worktrees(self._invocation, self.revision, self._identity.option, nodeid, file, timeout)
        rows = self._revision_code.of(worktrees, of_file, partial(self.measurer.locked, progress), progress.show)
        return NO_ROWS if counts else rows  # the current code is counted in any case

    def prepare(self) -> None:
        """Open the device and read the baseline now, so that errors are reported before any test runs."""
        self.measurer.prepare()
        if self._is_anchored and self._identity.counts_only and not self.settings.disable:
            raise UsageError(
                f"--bandwidth-against: found {ANCHOR} with a device that only counts, expected a revision: "
                "--bandwidth-against=REV"
            )
        remove_temporary_folders()
        _ = self.baseline
        whole, settings = self._whole_baseline, self.settings
        unneeded = settings.writes_baseline or settings.settle == "never" or self._identity.counts_only
        if whole is None or not whole.entries or unneeded or os.environ.get("CI", "").lower() not in ("true", "1"):
            return
        # In CI the clone may hold no commit to compare changed code with.
        if is_shallow(self.measurer.root) and not self._commits.has_any():
            raise UsageError(
                "found a shallow clone without the commits of the baseline's runs, expected them, to compare changed "
                "code with its old code: check out with fetch-depth: 0 (GitHub) or GIT_DEPTH: 0 "
                "(GitLab)"
            )

    def with_old_kernel(self, test: JudgedTest) -> JudgedTest:
        """Return the test with the means to find the old kernel of one of its measurements."""
        old_kernels = self._old_kernels(test)
        return test if old_kernels is None else replace(test, old_kernel=old_kernels.old_kernel_of)

    def judge(self, measurements: Mapping[str, Measurement], test: JudgedTest) -> dict[str, Judged]:
        """Judge one test's measurements; return the verdicts by key.

        The device's lock is held for each fresh process, or for the two of a pair. Other runs measure in between.
        """
        settings, old_kernels = self.settings, self._old_kernels(test)
        limits = Limits(
            test.marker,
            settings.tolerance,
            settings.confirm,
            "all" if settings.update else "new" if settings.update_new else "none",
            Looks(settings.pairs),
        )
        self.measurer.device.release()
        if self.revision is not None and self._identity.counts_only:
            there = self._worktrees(test, self.revision)
            return decide_counted(measurements, limits, there, self._revision_code.known(there), test.alone)
        evidence = self._evidence(measurements, test, limits)
        with FreshProcesses(test, settings.confirm) as fresh:
            judged = judge(evidence, limits, self._resolvers(test, limits, old_kernels), [fresh.gather])
            judged = {key: replace(one, fresh=fresh.of(one.measurement.label)) for key, one in judged.items()}
        if old_kernels is not None:
            judged = {key: old_kernels.with_processes(one) for key, one in judged.items()}
        return judged

    def _evidence(
        self, measurements: Mapping[str, Measurement], test: JudgedTest, limits: Limits
    ) -> dict[str, Evidence]:
        """Return the evidence about the measurements before further processes run."""
        if self.revision is not None:
            rows = self._revision_code.known(self._worktrees(test, self.revision))
            return against_evidence(measurements, limits, self.revision, rows)
        evidence = first_evidence(measurements, self.baseline, limits)
        if not self._is_anchored:
            return evidence
        # The anchor's commit is older than the baseline's runs, so their figures and code are no evidence about it.
        return {
            key: one
            if one.entry is None
            else replace(one, stored=None, is_same_code=False, revision="the anchor's commit")
            for key, one in evidence.items()
        }

    def _resolvers(self, test: JudgedTest, limits: Limits, old_kernels: OldKernels | None) -> list[Resolver]:
        """Return the methods of comparing changed or unknown code with old code, the best first."""
        kernels: list[Resolver] = [] if old_kernels is None else [old_kernels.gather]
        if self.revision is not None:
            pairs = CommitPairs(self.revision, test, lambda one, _: self._worktrees(test, one), limits)
            return [*kernels, pairs.gather]
        if self.settings.settle == "never":
            return []
        pairs = CommitPairs(self._commits, test, partial(self._worktrees, test), limits)
        if self._is_anchored:
            return [pairs.gather]
        return [self._old_code_time.bounded(one) for one in (*kernels, pairs.gather)]

    @property
    def _is_anchored(self) -> bool:
        """Return whether the run compares tests with the commits of their entries' anchors."""
        return self.settings.against == ANCHOR

    def _worktrees(self, test: JudgedTest, revision: Revision, rounds_share: float = 1.0) -> Worktrees:
        device, timeout = self._identity.option, test.fresh_seconds
        return Worktrees(self._invocation, revision, device, test.nodeid, test.file, timeout, rounds_share)

    def _users_peak(self, identity: DeviceIdentity) -> Peak | None:
        asked = self._hooked_peak(identity)
        if asked is None and self.baseline is not None and self.baseline.device and self.baseline.device.peak_gbps:
            return Peak(self.baseline.device.peak_gbps * 1e9, f"peak in {self.baseline.path}")
        return asked

    def _old_kernels(self, test: JudgedTest) -> OldKernels | None:
        """Return the runner of old kernels next to new ones; None if the device or the run does not support it."""
        old = self.old_code
        if old is None or not self.measurer.device.launches_old_code:
            return None
        return OldKernels(test, old.ptx, old.cubin, Looks(self.settings.pairs))
