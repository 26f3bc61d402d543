"""Find the baseline files that a path means, and keep them: list every problem, remove entries, make empty ones."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os.path import exists, isdir  # of a name that no file system takes, Path's raise
from pathlib import Path

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.code_files import problems_of, prune_code, unused_code
from pytest_bandwidth.baseline.locate import files_in
from pytest_bandwidth.cli.output import print_json
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice
from pytest_bandwidth.domain.device import identity_of
from pytest_bandwidth.domain.errors import BaselineError, Problem, UsageError
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.storage.saved_run import load_run


def files_at(path: Path) -> list[Path]:
    """Return the file itself, or the files of a folder. Raises UsageError for a folder without any."""
    if not isdir(path):
        return [path]
    files = files_in(path)
    if not files:
        raise UsageError(f"{path}: found a folder without .yaml files, expected baselines")
    return files


def load_all(path: Path) -> list[Baseline]:
    """Load the baselines at a path. Raises BaselineError for the first bad file, UsageError if there is no file."""
    return [baseline_files.load(file) for file in files_at(path)]


def matching(keys: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the keys that one of the patterns means, in their order; all of them without patterns.

    Only ``*`` and ``?`` stand for others: brackets belong to the names of parametrized tests.
    Raises UsageError for a pattern that means no key, since that is a misspelt one.
    """
    all_keys = list(keys)
    if not patterns:
        return all_keys
    wanted: set[str] = set()
    for pattern in patterns:
        found = {pattern} & set(all_keys) or _like(all_keys, pattern)
        if not found:
            raise UsageError(f"found no entry like {pattern!r}, expected a key or a pattern with * and ?")
        wanted |= found
    return [key for key in all_keys if key in wanted]


def _like(keys: Sequence[str], pattern: str) -> set[str]:
    form = re.compile("".join({"*": ".*", "?": "."}.get(c) or re.escape(c) for c in pattern), re.DOTALL)
    return {key for key in keys if form.fullmatch(key)}


@dataclass(frozen=True, slots=True)
class _Checked:
    path: Path
    baseline: Baseline | None
    problems: tuple[Problem, ...]


def validate(options: argparse.Namespace) -> int:
    checked = [one for path in options.paths for one in _checked_at(path)]
    problems = [problem for one in checked for problem in one.problems]
    if options.json:
        print_json({"valid": not problems, "files": [_plain_of_checked(one) for one in checked]})
    else:
        for one in checked:
            print("\n".join(map(printable, _lines_of_checked(one))))
    return 2 if problems else 0


def _checked_at(path: Path) -> list[_Checked]:
    """Return the files at a path; a path without any is a problem itself, which keeps nothing of the others."""
    if not exists(path):
        return [_nothing_at(path, "found no such file or folder, expected baselines")]
    try:
        checked = [_read(file) for file in files_at(path)]
    except UsageError as error:
        return [_nothing_at(path, str(error).removeprefix(f"{path}: "))]
    return _with_twins(checked) if isdir(path) else checked


def _nothing_at(path: Path, message: str) -> _Checked:
    return _Checked(path, None, (Problem(str(path), 0, message),))


def _read(file: Path) -> _Checked:
    try:
        baseline = baseline_files.load(file)
        return _Checked(file, baseline, tuple(problems_of(file, baseline.entries.values())))
    except BaselineError as error:
        return _Checked(file, None, error.problems)


def _with_twins(checked: Sequence[_Checked]) -> list[_Checked]:
    """Add the problem of two files of one device: a run could not tell which of them to use."""
    first: dict[BaselineDevice, Path] = {}
    found = []
    for one in checked:
        device = one.baseline.device if one.baseline else None
        other = first.setdefault(device, one.path) if device else one.path
        if device is None or other == one.path:
            found.append(one)
            continue
        message = f"found the device {device.name!r}, expected it in one file only: {other} is of it, too"
        found.append(_Checked(one.path, one.baseline, (Problem(str(one.path), device.line or 1, message),)))
    return found


def _lines_of_checked(one: _Checked) -> list[str]:
    if one.problems or one.baseline is None:
        return [str(problem) for problem in one.problems]
    device = one.baseline.device.name if one.baseline.device else "any device"
    note = [] if one.baseline.note is None else [one.baseline.note]
    return [*note, f"{one.path}: valid, {counted(len(one.baseline.entries), 'entry')}, {device}"]


def _plain_of_checked(one: _Checked) -> dict[str, object]:
    return {
        "path": str(one.path),
        "valid": not one.problems,
        "device": one.baseline.device.name if one.baseline and one.baseline.device else None,
        "entries": len(one.baseline.entries) if one.baseline else None,
        "problems": [{"line": problem.line or None, "message": problem.message} for problem in one.problems],
    }


@dataclass(frozen=True, slots=True)
class _Pruned:
    path: str
    keys: list[str]
    kept: int
    files: int = 0


def prune(options: argparse.Namespace) -> int:
    plans = _plans(options.path, options.keys, options.not_in)
    if not options.keys and not options.not_in and not any(unused_code(Path(plan.path)) for plan in plans):
        raise UsageError("found nothing to remove, expected keys, patterns or --not-in RUN.json")
    pruned = _foreseen(plans) if options.dry_run else [_remove(plan) for plan in plans]
    if options.json:
        files = [{"path": one.path, "removed": one.keys, "kept": one.kept, "code_removed": one.files} for one in pruned]
        print_json({"dry_run": options.dry_run, "files": files})
    else:
        print("\n".join(line for one in pruned for line in _lines_of_pruned(one, options.dry_run)))
    return 0


def _plans(path: Path, patterns: Sequence[str], runs: Sequence[Path]) -> list[_Pruned]:
    """Plan what goes from which file; no entry where neither patterns nor runs say which.

    Raises UsageError where a pattern, a run or a device does not fit.
    """
    baselines = load_all(path)
    keys = [key for baseline in baselines for key in baseline.entries]
    wanted = set(matching(keys, patterns) if patterns or runs else ())
    return [_unmeasured(path, baselines, runs, wanted)] if runs else [_plan(baseline, wanted) for baseline in baselines]


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
    """Remove a plan's entries, then the code files that no baseline in the folder names."""
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


def _lines_of_pruned(pruned: _Pruned, dry_run: bool) -> list[str]:
    did = "would remove" if dry_run else "removed"
    lines = [f"baseline {printable(pruned.path)}: {did} {len(pruned.keys)}, {pruned.kept} stay"]
    if pruned.files:
        lines.append(f"{did} {counted(pruned.files, 'file')} of code that no entry names")
    return [*lines, *(f"- {printable(key)}" for key in pruned.keys)]


def init(options: argparse.Namespace) -> int:
    identity = open_device(options.device).identity
    made = baseline_files.init(baseline_files.find_file(options.path, identity), identity)
    if options.json:
        device = {"name": identity.name, "memory_gib": identity.memory_gib, "kind": identity.kind}
        print_json({"path": made.path, "device": device})
    else:
        print(printable(f"wrote {made.path}: {identity.name}, no entries yet; --bandwidth-update fills it"))
    return 0
