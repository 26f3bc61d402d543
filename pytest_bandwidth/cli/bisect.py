"""Find the first commit at which a test is REGRESSED against a good one, as `git bisect` does.

Each commit is judged by pairs of fresh processes, of its code and of the good one's, in temporary folders: the working
tree is neither used nor touched. Equal code takes no measurement. What follows -- goes to pytest.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from iniconfig import IniConfig, ParseError

from pytest_bandwidth.cli.init import SETTINGS
from pytest_bandwidth.cli.main import checked, print_json
from pytest_bandwidth.domain.device import DeviceIdentity, identity_of
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import SHORT_HASH
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.domain.values import seconds
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.evidence.commit_pairs.alternate import FINEST_PRECISION
from pytest_bandwidth.evidence.commit_pairs.build import Build, check_out
from pytest_bandwidth.evidence.commit_pairs.pairs import PairsTaken, Subject, compare_timed, entry_of, not_there
from pytest_bandwidth.evidence.commit_pairs.process import (
    ForeignImport,
    NothingThere,
    Rows,
    Worktrees,
    are_same_code,
    by_label,
    modules_findable,
)
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision, commit_of, top_of
from pytest_bandwidth.evidence.git import git
from pytest_bandwidth.evidence.processes.child import FreshProcessFailed, Invocation, started_as_module
from pytest_bandwidth.evidence.processes.start_and_end import signals_as_interrupts
from pytest_bandwidth.judging.decide import decide_counts
from pytest_bandwidth.judging.pairs import Looks
from pytest_bandwidth.measuring.measurer import DeviceLock
from pytest_bandwidth.measuring.progress import ConsoleProgress
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.reports.wording import reason_of

# Exit statuses besides 2 for bad input, as of a program for `git bisect run` at BAD: good, bad, or no clear result.
NOTHING_TO_FIND, FOUND, UNCLEAR = 0, 1, 125
_BUILD = "bandwidth_build"
# pytest's section in its ini files, by file, where it is not `pytest`.
_SECTIONS = {"pyproject.toml": "tool.pytest", "setup.cfg": "tool:pytest"}
SECONDS = 600.0
_LOCK_SECONDS = 600.0
_CLEARED = (Status.OK, Status.IMPROVED)
_LOOKS = Looks()
# Errors of one commit, not of the machine.
_OF_A_COMMIT = (NothingThere, FreshProcessFailed, ForeignImport, UsageError)


def declare(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [-h] [--timeout S] [--json] GOOD BAD TEST [-- ARG ...]"
    parser.epilog = "ARG: for pytest, such as --bandwidth-device=traffic"
    parser.add_argument("good", metavar="GOOD", help="a commit at which the test is as fast as it should be")
    parser.add_argument("bad", metavar="BAD", help="a later commit at which it is not")
    parser.add_argument("test", metavar="TEST", help="one test as pytest names it: tests/test_copy.py::test_copy[1024]")
    parser.add_argument(
        "--timeout",
        type=checked(seconds),
        default=SECONDS,
        metavar="S",
        help="seconds that one process may take (default: 600)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    if not options.test.partition("::")[2]:
        raise UsageError(f"TEST is {options.test[:80]!r}, expected one as pytest names it: tests/test_x.py::test_y")
    file = options.test.partition("::")[0]
    top = top_of(Path.cwd(), "it")
    good, bad = commit_of(top, options.good, "GOOD"), commit_of(top, options.bad, "BAD")
    check_order(top, good, bad)
    progress = ConsoleProgress("bisect")
    with ExitStack() as stack:
        stack.enter_context(signals_as_interrupts())
        stack.callback(progress.clear)
        build = how_built(top, bad, Path.cwd() / file, options.rest)
        revision = stack.enter_context(check_out(top, options.good, build, progress.show))
        test = Worktrees(
            Invocation((file, *options.rest), Path.cwd(), started_as_module(), _extra_args(options.rest)),
            revision,
            "",
            options.test,
            Path.cwd() / file,
            options.timeout,
            findable=modules_findable(modules_in(top, good) | modules_in(top, bad)),
        )
        try:
            against = AgainstGood(test, progress.show, build)
        except NothingThere as why:
            raise UsageError(f"{why}: expected one test as pytest names it, with its parameters") from None
        return _Search(options, against, Bisection(top, [good], bad), progress).result()


@dataclass(slots=True)
class _Search:
    """Judge commit after commit; print each judgement and the result."""

    options: argparse.Namespace
    against: AgainstGood
    history: Bisection
    progress: ConsoleProgress
    judged: list[Judgement] = field(default_factory=list)

    def result(self) -> int:
        """Search, and return the exit status."""
        history, good, test = self.history, self.against.good, self.options.test
        count = len(history.in_order())
        self._print(f"{test}: {counted(count, 'commit')} after {good}, on {self.against.device.name}")
        bad = self._judge(history.bad)
        if not bad.is_bad:
            whether = "could not be judged" if bad.is_bad is None else "is not REGRESSED there: nothing to find"
            return self._end([], f"{test} {whether}", UNCLEAR if bad.is_bad is None else NOTHING_TO_FIND)
        self.against.labels = bad.regressed
        while (commit := history.next()) is not None:
            left = len(history.candidates())
            self.progress.show(f"{counted(left, 'commit')} left, about {counted(1 + int(math.log2(left)), 'step')}")
            judgement = self._judge(commit)
            if judgement.is_bad is None:
                history.skipped.append(commit)
            elif judgement.is_bad:
                history.bad = commit
            else:
                history.good.append(commit)
        suspects = history.in_order()
        if len(suspects) > 1:
            text = f"one of these {len(suspects)} commits is the first at which {test} is REGRESSED against {good}"
            return self._end(suspects, f"{text}; the others could not be judged:", UNCLEAR)
        return self._end(suspects, f"the first commit at which {test} is REGRESSED against {good}:", FOUND)

    def _judge(self, commit: str) -> Judgement:
        judgement = self.against.judge(commit)
        self.judged.append(judgement)
        self._print(f"{commit[:SHORT_HASH]} {judgement.status or 'skipped'}: {judgement.reason}")
        return judgement

    def _end(self, suspects: list[str], text: str, status: int) -> int:
        if self.options.json:
            names = ("commit", "is_bad", "status", "reason")
            judged = [{name: getattr(one, name) for name in names} for one in self.judged]
            device, good = self.against.device.name, self.against.good.commit
            print_json(
                {"test": self.options.test, "device": device, "good": good, "judged": judged, "first_bad": suspects}
            )
            return status
        self._print(text)
        for commit in suspects:
            subject, by = described(self.history.top, commit)
            self._print(f"{commit} {subject} ({by})")
        return status

    def _print(self, text: str) -> None:
        """Print a line at once: the next may take minutes."""
        self.progress.clear()
        if not self.options.json:
            print(printable(text), flush=True)


def _extra_args(given: list[str]) -> tuple[str, ...]:
    """Return the arguments that switch off installed plugins which a single test does not need."""
    if "PYTEST_DISABLE_PLUGIN_AUTOLOAD" in os.environ:
        return ()
    installed = {point.name for point in entry_points(group="pytest11")}
    wanted = {"xdist": "-n0", "pytest_cov": "--no-cov"}
    return tuple(arg for name, arg in wanted.items() if name in installed and f"no:{name}" not in " ".join(given))


@dataclass(slots=True)
class Bisection:
    """Hold the results so far for the commits between a good one and a bad one, all by their full hashes."""

    top: Path
    good: list[str]
    bad: str
    skipped: list[str] = field(default_factory=list)

    def candidates(self) -> list[str]:
        """Return the commits still in question, without the known bad one; the best one to test next comes first."""
        lines = git(self.top, "rev-list", "--bisect-all", self.bad, *(f"^{good}" for good in self.good))
        commits = [line.partition(" ")[0] for line in lines.splitlines()]
        return [commit for commit in commits if commit != self.bad]

    def next(self) -> str | None:
        """Return the commit to judge next; None where no commit is left."""
        return next((commit for commit in self.candidates() if commit not in self.skipped), None)

    def in_order(self) -> list[str]:
        """Return all commits that may be the first bad one, the newest first."""
        listed = git(self.top, "rev-list", "--topo-order", self.bad, *(f"^{good}" for good in self.good))
        return listed.split()


def check_order(top: Path, good: str, bad: str) -> None:
    """Raise UsageError where the good commit is not an ancestor of the bad one."""
    if good == bad:
        raise UsageError(f"GOOD and BAD are the same commit, {good[:10]}: expected a good one and a later, bad one")
    try:
        base = git(top, "merge-base", good, bad).strip()
    except UsageError:
        raise UsageError(
            f"GOOD ({good[:10]}) and BAD ({bad[:10]}) have no commit in common: fetch the history between them "
            "(shallow clones of CI hold only the newest commit)"
        ) from None
    if base != good:
        raise UsageError(
            f"GOOD ({good[:10]}) is not an ancestor of BAD ({bad[:10]}): their last common commit is {base[:10]}, "
            "which may be the right GOOD"
        )


def described(top: Path, commit: str) -> tuple[str, str]:
    """Return a commit's subject, and author with date."""
    subject, _, by = git(top, "show", "--no-patch", "--format=%s%x00%an, %as", commit).strip().partition("\0")
    return subject, by


def modules_in(top: Path, commit: str) -> set[str]:
    """Return the names by which Python modules and packages in a commit may be imported."""
    files = git(top, "ls-tree", "-r", "-z", "--name-only", commit).split("\0")
    parts = (part for file in files if file.endswith(".py") for part in file.removesuffix(".py").split("/"))
    return {part for part in parts if part.isidentifier()}


def how_built(top: Path, commit: str, test_file: Path, args: Sequence[str]) -> Build | None:
    """Return how commits are built; None where neither `args` (`-o bandwidth_build=…`) nor the ini file sets it.

    The ini file is the first one of pytest's from the test's folder up to the top of the tree. Raises UsageError where
    it cannot be read.
    """
    folder, command = _command_in_ini(top, commit, test_file.parent)
    for option, value in zip(("", *args), args, strict=False):
        given = value if option in ("-o", "--override-ini") else value.removeprefix("--override-ini=")
        if given.startswith(f"{_BUILD}="):
            command = given.partition("=")[2]
    return Build(command, folder) if command else None


def _command_in_ini(top: Path, commit: str, start: Path) -> tuple[Path, str]:
    """Return the folder of the ini file, and its build command, if it has one."""
    for folder in (start.resolve(), *start.resolve().parents):
        if not folder.is_relative_to(top):
            break
        for name in SETTINGS:
            path = (folder / name).relative_to(top)
            try:
                text = git(top, "cat-file", "blob", f"{commit}:{path.as_posix()}")
            except UsageError:  # not there
                continue
            try:
                found = _section(name, text)
            except (ParseError, ValueError) as error:
                raise UsageError(f"{path} at {commit[:10]}: {error}, expected pytest's ini file") from None
            if found is not None or name in ("pytest.ini", ".pytest.ini"):
                return folder, str((found or {}).get(_BUILD, ""))
    return start, ""


def _section(name: str, text: str) -> Mapping[str, Any] | None:
    """Return an ini file's settings for pytest; None where it has no such section."""
    section = _SECTIONS.get(name, "pytest")
    if not name.endswith(".toml"):
        ini = IniConfig("", data=text)
        return dict(ini[section].items()) if section in ini else None
    # pytest requires one of the two.
    found: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(text)
    for key in section.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    if isinstance(found, dict) and isinstance(found.get("ini_options"), dict):
        found = found["ini_options"]
    return found if isinstance(found, dict) else None


# ---- one commit against the good one; both are checked out into worktrees outside the user's tree --------------------


@dataclass(frozen=True, slots=True)
class Judgement:
    """Hold the result of the test at one commit.

    is_bad: None where it is unknown. status: of the deciding measurement; None without a verdict.
    regressed: labels of the measurements that are REGRESSED.
    """

    commit: str
    is_bad: bool | None
    status: Status | None
    reason: str
    regressed: frozenset[str | None] = frozenset()


class AgainstGood:
    """Judge commits against a good one, whose code is identified and whose traffic is counted only once."""

    def __init__(self, test: Worktrees, notify: Callable[[str], None], build: Build | None = None) -> None:
        """Find the good commit's device and code.

        test: at the good commit, on no device yet. notify: takes a line about the current step; build: how commits are
        built. Raises NothingThere, FreshProcessFailed, ForeignImport where the test cannot be run there.
        """
        self.good = good = test.revision
        # Labels of the measurements to judge; None for all.
        self.labels: frozenset[str | None] | None = None
        self._notify, self._build = notify, build
        self._judged: list[tuple[Rows, Judgement]] = []
        notify(f"what code the test runs at {good}")
        try:
            rows = test.codes_at_base([test.nodeid])
            self._rows_of_good = by_label(rows)
        except NothingThere:
            # The test may assert on its figures, which do not exist while it runs only to identify its code.
            rows, self._rows_of_good = test.base(), {}
        if "device" not in rows[0]:
            raise FreshProcessFailed(f"{good} has a pytest-bandwidth too old for this: expected a later GOOD")
        self.device: DeviceIdentity = identity_of(rows[0]["device"])
        self._test = replace(test, device=self.device.option)

    def judge(self, commit: str) -> Judgement:
        """Judge a commit. After an error of the commit it counts as one that cannot be judged, with the reason.

        Raises BandwidthError for an error of the machine, such as a device that stays in use.
        """
        try:
            with check_out(Path(self.good.top), commit, self._build, self._notify) as revision:
                rows, judgement = self._judgement(revision)
        except _OF_A_COMMIT as why:
            return Judgement(commit, None, None, " ".join(str(why).split()))
        self._judged.append((rows, judgement))
        return judgement

    def _judgement(self, candidate: Revision) -> tuple[Rows, Judgement]:
        rows = self._rows_of(candidate)
        labels = frozenset(rows) if self.labels is None else self.labels
        alike = {label for label in labels if self._are_alike(rows, self._rows_of_good, label)}
        if self.device.counts_only and len(alike) < len(labels):
            alike.clear()  # counts of a launch may depend on data that an earlier launch, of other code, left
        verdicts = dict.fromkeys(alike, Decision(Status.OK, Rule.CODE_UNCHANGED))
        if not labels or alike != labels:
            known = self._judgement_of_same_code(rows, labels - alike)
            if known is not None:
                reason = f"the code is that of {known.commit[:SHORT_HASH]}"
                return rows, replace(known, commit=candidate.commit, reason=reason)
            verdicts |= self._measured(candidate, alike)
        return rows, self._by_verdicts(candidate.commit, verdicts)

    def _rows_of(self, candidate: Revision) -> Rows:
        """Return rows with the commit's code; nothing where it has to be measured in any case."""
        if self.device.counts_only and self.good.holds_plugin:
            return {}  # the commit holds another version of the plugin, which counts
        self._notify(f"what code the test runs at {candidate.commit[:SHORT_HASH]}")
        with self._lock.held(self._notify), suppress(NothingThere):
            there = replace(self._test, revision=candidate, candidate=self.good)
            return by_label(there.codes_at_base([self._test.nodeid]))
        return {}

    def _are_alike(self, one: Rows, other: Rows, label: str | None) -> bool:
        both = label in one and label in other
        return both and are_same_code(one[label], other[label], counted=self.device.counts_only)

    def _judgement_of_same_code(self, rows: Rows, labels: frozenset[str | None]) -> Judgement | None:
        """Return the result of an earlier commit that ran the same code; None where no earlier commit did."""
        if not labels or self.labels is None:
            return None
        for known, judgement in self._judged:
            if judgement.is_bad is not None and all(self._are_alike(rows, known, label) for label in self.labels):
                return judgement
        return None

    def _measured(self, candidate: Revision, but: set[str | None]) -> dict[str | None, Decision]:
        """Judge the test's measurements by counts or pairs. but: labels of measurements that need no judging."""
        sides = replace(self._test, candidate=candidate)
        taken: PairsTaken | None = None
        if self.device.counts_only:
            self._notify(f"counts at {candidate.commit[:SHORT_HASH]}")
            rows = by_label(sides.head())
        else:
            alternates = self.device.on_host and not self.good.holds_plugin
            taken = PairsTaken(sides, self._notify, partial(self._lock.held, self._notify), alternates)
            taken.take(FINEST_PRECISION)  # the first pair gives the tolerances
            rows = taken.pairs[0].head
        wanted = {
            label: row
            for label, row in rows.items()
            if label not in but and (self.labels is None or label in self.labels)
        }
        missing = dict.fromkeys((self.labels or frozenset()) - rows.keys() - but, not_there("it"))
        decided = self._by_counts(wanted) if taken is None else self._by_pairs(wanted, taken)
        return decided | missing

    def _by_pairs(self, rows: Rows, taken: PairsTaken) -> dict[str | None, Decision]:
        # The tolerance of each measurement by the commit's own marker and settings.
        subjects = {}
        for label, row in rows.items():
            tolerance = row.verdict.get("tolerance")
            held_to = Settings().tolerance if tolerance is None else tolerance
            subjects[row.key] = Subject(label, row.to_entry(), row.verdict.get("figure"), held_to)
        found = compare_timed(subjects, taken, _LOOKS)
        return {
            label: found[row.key].decision(subjects[row.key].tolerance, _LOOKS, str(self.good))
            for label, row in rows.items()
        }

    def _by_counts(self, rows: Rows) -> dict[str | None, Decision]:
        decided = {}
        for label, row in rows.items():
            good, tolerance = self._counted_at_good.get(label), row.verdict.get("tolerance") or 0.0
            if good is None:
                decided[label] = not_there(self.good)
            else:
                entry = entry_of(row.key, [good], self.good)
                decided[label] = decide_counts(row.to_entry(), entry, tolerance)
        return decided

    @cached_property
    def _counted_at_good(self) -> Rows:
        self._notify(f"counts at {self.good}")
        return by_label(self._test.base())

    def _by_verdicts(self, commit: str, verdicts: Mapping[str | None, Decision]) -> Judgement:
        """Return the judgement of a commit by the verdicts of the test's measurements."""
        regressed = frozenset(label for label, one in verdicts.items() if one.status is Status.REGRESSED)
        # A measurement that the good commit lacks cannot be judged: the other measurements decide.
        known = {label: one for label, one in verdicts.items() if one.rule != Rule.NOT_THERE or self.labels}
        unsure = [label for label, one in known.items() if one.status not in _CLEARED]
        decide = sorted(regressed or unsure or known or verdicts, key=str)
        if not decide:
            return Judgement(commit, None, None, "it measures nothing")
        label = next((one for one in decide if verdicts[one].rule != Rule.CODE_UNCHANGED), decide[0])
        verdict = verdicts[label]
        text = f"the code is that of {self.good}" if verdict.rule == Rule.CODE_UNCHANGED else reason_of(verdict)
        reason = f"{label}: {text}" if label else text
        is_bad = True if regressed else None if unsure or not known else False
        return Judgement(commit, is_bad, verdict.status, reason, regressed)

    @cached_property
    def _lock(self) -> DeviceLock:
        return DeviceLock(self.device, _LOCK_SECONDS, advice="wait for it or end it")
