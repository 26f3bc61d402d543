"""Remove entries that are no longer wanted; all others, and every comment, stay."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.code_files import prune_code, unused_code
from pytest_bandwidth.cli.baseline.files import load_all, matching
from pytest_bandwidth.cli.output import print_json
from pytest_bandwidth.domain.baseline import Baseline
from pytest_bandwidth.domain.device import identity_of
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.storage.saved_run import load_run


@dataclass(frozen=True, slots=True)
class _Pruned:
    path: str
    keys: list[str]
    kept: int
    files: int = 0


def run(options: argparse.Namespace) -> int:
    plans = _plans(options.path, options.keys, options.not_in)
    if not options.keys and not options.not_in and not any(unused_code(Path(plan.path)) for plan in plans):
        raise UsageError("found nothing to remove, expected keys, patterns or --not-in RUN.json")
    pruned = _foreseen(plans) if options.dry_run else [_remove(plan) for plan in plans]
    if options.json:
        files = [{"path": one.path, "removed": one.keys, "kept": one.kept, "code_removed": one.files} for one in pruned]
        print_json({"dry_run": options.dry_run, "files": files})
    else:
        print("\n".join(line for one in pruned for line in _lines(one, options.dry_run)))
    return 0


def _plans(path: Path, patterns: Sequence[str], runs: Sequence[Path]) -> list[_Pruned]:
    """Plan what goes from which file; no entry where neither patterns nor runs say which.

    Raises UsageError where a pattern, a run or a device does not fit.
    """
    baselines = load_all(path)
    if not patterns and not runs:
        return [_plan(baseline, set()) for baseline in baselines]
    wanted = set(matching([key for baseline in baselines for key in baseline.entries], patterns))
    if runs:
        return [_unmeasured(path, baselines, runs, wanted)]
    return [_plan(baseline, wanted) for baseline in baselines]


def _plan(baseline: Baseline, wanted: set[str]) -> _Pruned:
    keys = [key for key in baseline.entries if key in wanted]
    return _Pruned(baseline.path or "", keys, len(baseline.entries) - len(keys))


def _unmeasured(path: Path, baselines: Sequence[Baseline], runs: Sequence[Path], wanted: set[str]) -> _Pruned:
    """Return the wanted entries that no run measured, in the file of the runs' device."""
    loaded = {baseline.path: baseline for baseline in baselines}
    measured: set[str] = set()
    files = set()
    for run_path in runs:
        document, outcomes = load_run(run_path)
        identity = identity_of(document["device"])
        file = baseline_files.find_file(path, identity)
        # A folder may hold none of this device: reading the name that it would get says so.
        baseline = loaded.get(str(file)) or baseline_files.load(file)
        baseline_files.check_device(baseline, identity)
        files.add(file)
        measured.update(outcome.key for outcome in outcomes)
    if len(files) > 1:
        raise UsageError(f"found runs of {len(files)} devices, expected runs of one: prune its file first")
    if baseline.entries and not measured & baseline.entries.keys():
        raise UsageError(
            f"{runs[0]}: found none of the {len(baseline.entries)} entries of {baseline.path} measured, expected a "
            "full run of these tests: nothing was removed"
        )
    return _plan(baseline, wanted - measured)


def _remove(plan: _Pruned) -> _Pruned:
    """Remove a plan's entries, and every file of code that no baseline beside the file names any more."""
    removed = [change.key for change in baseline_files.remove(Path(plan.path), plan.keys).removed] if plan.keys else []
    return _Pruned(plan.path, removed, plan.kept, len(prune_code(Path(plan.path))))


def _foreseen(plans: Sequence[_Pruned]) -> list[_Pruned]:
    """Return the plans with the files of code that would go; those that a folder shares go with the first."""
    counted_before: set[Path] = set()
    foreseen = []
    for plan in plans:
        unused = set(unused_code(Path(plan.path), plan.keys)) - counted_before
        counted_before |= unused
        foreseen.append(replace(plan, files=len(unused)))
    return foreseen


def _lines(pruned: _Pruned, dry_run: bool) -> list[str]:
    did = "would remove" if dry_run else "removed"
    lines = [f"baseline {printable(pruned.path)}: {did} {len(pruned.keys)}, {pruned.kept} stay"]
    if pruned.files:
        lines.append(f"{did} {counted(pruned.files, 'file')} of code that no entry names")
    return [*lines, *(f"- {printable(key)}" for key in pruned.keys)]
