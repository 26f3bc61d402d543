"""Search for the first bad commit: judge one after the other, and say what was found."""

from __future__ import annotations

import argparse
import math
import os
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path

from pytest_bandwidth.cli.bisect.against_good import AgainstGood, Judgement
from pytest_bandwidth.cli.bisect.history import Bisection, check_order, described, how_built, modules_in
from pytest_bandwidth.cli.output import print_json
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import SHORT_HASH
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.evidence.commit_pairs.build import check_out
from pytest_bandwidth.evidence.commit_pairs.process import NothingThere, Worktrees, modules_findable
from pytest_bandwidth.evidence.commit_pairs.worktree import commit_of, top_of
from pytest_bandwidth.evidence.processes.child import Invocation, started_as_module
from pytest_bandwidth.evidence.processes.start_and_end import signals_as_interrupts
from pytest_bandwidth.measuring.progress import ConsoleProgress
from pytest_bandwidth.reports.text_safe import printable

# Besides 2, for bad input: as the program of `git bisect run` would say it of BAD, but for the last.
NOTHING_TO_FIND, FOUND, UNTOLD = 0, 1, 125
_NAME = "bisect"


def run(options: argparse.Namespace) -> int:
    file = options.test.partition("::")[0]
    top = top_of(Path.cwd(), "it")
    good, bad = commit_of(top, options.good, "GOOD"), commit_of(top, options.bad, "BAD")
    check_order(top, good, bad)
    progress = ConsoleProgress(command=_NAME)
    with ExitStack() as stack:
        stack.enter_context(signals_as_interrupts())
        stack.callback(progress.clear)
        build = how_built(top, bad, Path.cwd() / file, options.rest)
        checked_out = check_out(top, options.good, build, progress.show)
        stack.callback(checked_out.remove)
        test = Worktrees(
            Invocation((file, *options.rest), Path.cwd(), started_as_module(), _extra_args(options.rest)),
            checked_out.revision,
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


class _Search:
    """Judge commit after commit, say so, and say what was found."""

    def __init__(
        self, options: argparse.Namespace, against: AgainstGood, history: Bisection, progress: ConsoleProgress
    ) -> None:
        self._test, self._as_json = options.test, options.json
        self._against, self._history, self._progress = against, history, progress
        self._judged: dict[str, Judgement] = {}

    def result(self) -> int:
        """Search, and return the exit status."""
        history, good = self._history, self._against.good
        count = len(history.in_order())
        self._print(f"{self._test}: {counted(count, 'commit')} after {good}, on {self._against.device.name}")
        bad = self._judge(history.bad)
        if not bad.is_bad:
            whether = "could not be judged" if bad.is_bad is None else "is not REGRESSED there: nothing to find"
            return self._end([], f"{self._test} {whether}", UNTOLD if bad.is_bad is None else NOTHING_TO_FIND)
        self._against.labels = bad.regressed
        while (commit := history.next()) is not None:
            left = len(history.candidates())
            self._progress.show(f"{counted(left, 'commit')} left, about {counted(1 + int(math.log2(left)), 'step')}")
            judgement = self._judge(commit)
            if judgement.is_bad is None:
                history.skipped.append(commit)
            elif judgement.is_bad:
                history.bad = commit
            else:
                history.good.append(commit)
        suspects = history.in_order()
        if len(suspects) > 1:
            said = (
                f"one of these {len(suspects)} commits is the first at which {self._test} is REGRESSED against {good}"
            )
            return self._end(suspects, f"{said}; the others could not be judged:", UNTOLD)
        return self._end(suspects, f"the first commit at which {self._test} is REGRESSED against {good}:", FOUND)

    def _judge(self, commit: str) -> Judgement:
        judgement = self._judged[commit] = self._against.judge(commit)
        self._print(f"{commit[:SHORT_HASH]} {judgement.status or 'skipped'}: {judgement.reason}")
        return judgement

    def _end(self, suspects: list[str], text: str, status: int) -> int:
        if self._as_json:
            print_json(self._document(suspects))
            return status
        self._print(text)
        for commit in suspects:
            subject, by = described(self._history.top, commit)
            self._print(f"{commit} {subject} ({by})")
        return status

    def _document(self, suspects: list[str]) -> dict[str, object]:
        judged = [
            {
                "commit": one.commit,
                "is_bad": one.is_bad,
                "status": None if one.status is None else one.status.value,
                "reason": one.reason,
            }
            for one in self._judged.values()
        ]
        device = self._against.device.name
        good = self._against.good.commit
        return {"test": self._test, "device": device, "good": good, "judged": judged, "first_bad": suspects}

    def _print(self, text: str) -> None:
        """Print a line at once: the next may take minutes."""
        self._progress.clear()
        if not self._as_json:
            print(printable(text), flush=True)


def _extra_args(given: list[str]) -> tuple[str, ...]:
    """Return what keeps installed plugins from doing what a single test has no use for."""
    if "PYTEST_DISABLE_PLUGIN_AUTOLOAD" in os.environ:
        return ()
    installed = {point.name for point in entry_points(group="pytest11")}
    wanted = {"xdist": "-n0", "pytest_cov": "--no-cov"}
    return tuple(arg for name, arg in wanted.items() if name in installed and f"no:{name}" not in " ".join(given))
