"""Find the baseline files that a path means, and keep them: list every problem, remove entries, make empty ones."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os.path import exists, isdir  # of a name that no file system takes, Path's raise
from pathlib import Path
from typing import Any

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.code_files import problems_of, prune_code, unused_code
from pytest_bandwidth.baseline.locate import files_in
from pytest_bandwidth.cli.main import print_json
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
        form = re.compile("".join({"*": ".*", "?": "."}.get(c) or re.escape(c) for c in pattern), re.DOTALL)
        found = {pattern} & set(all_keys) or {key for key in all_keys if form.fullmatch(key)}
        if not found:
            raise UsageError(f"found no entry like {pattern!r}, expected a key or a pattern with * and ?")
        wanted |= found
    return [key for key in all_keys if key in wanted]


@dataclass(frozen=True, slots=True)
class _Checked:
    path: Path
    baseline: Baseline | None
    problems: tuple[Problem, ...]

    @property
    def device(self) -> BaselineDevice | None:
        return self.baseline.device if self.baseline else None


def validate(options: argparse.Namespace) -> int:
    checked = [one for path in options.paths for one in _checked_at(path)]
    problems = [problem for one in checked for problem in one.problems]
    if options.json:
        files = [
            {
                "path": str(one.path),
                "valid": not one.problems,
                "device": one.device.name if one.device else None,
                "entries": len(one.baseline.entries) if one.baseline else None,
                "problems": [{"line": problem.line or None, "message": problem.message} for problem in one.problems],
            }
            for one in checked
        ]
        print_json({"valid": not problems, "files": files})
        return 2 if problems else 0
    for one in checked:
        lines = [str(problem) for problem in one.problems]
        if one.baseline is not None and not lines:
            note = [] if one.baseline.note is None else [one.baseline.note]
            device = one.device.name if one.device else "any device"
            lines = [*note, f"{one.path}: valid, {counted(len(one.baseline.entries), 'entry')}, {device}"]
        print("\n".join(map(printable, lines)))
    return 2 if problems else 0


def _checked_at(path: Path) -> list[_Checked]:
    """Return the files at a path; a path without any is a problem itself, which keeps nothing of the others.

    Two files of one device are a problem: a run could not tell which of them to use.
    """
    try:
        if not exists(path):
            raise UsageError("found no such file or folder, expected baselines")
        files = files_at(path)
    except UsageError as error:
        return [_Checked(path, None, (Problem(str(path), 0, str(error).removeprefix(f"{path}: ")),))]
    checked: list[_Checked] = []
    first: dict[BaselineDevice, Path] = {}
    for file in files:
        try:
            baseline = baseline_files.load(file)
            one = _Checked(file, baseline, tuple(problems_of(file, baseline.entries.values())))
        except BaselineError as error:
            one = _Checked(file, None, error.problems)
        if one.device is not None and (other := first.setdefault(one.device, file)) != file:
            message = f"found the device {one.device.name!r}, expected it in one file only: {other} is of it, too"
            one = replace(one, problems=(Problem(str(file), one.device.line or 1, message),))
        checked.append(one)
    return checked


def prune(options: argparse.Namespace) -> int:
    """Remove entries, then the code files that no baseline in the folder names; or say which would go.

    Raises UsageError where a pattern, a run or a device does not fit.
    """
    baselines = load_all(options.path)
    keys = [key for baseline in baselines for key in baseline.entries]
    chosen = bool(options.keys or options.not_in)
    wanted = set(matching(keys, options.keys) if chosen else ())
    if options.not_in:
        baselines, measured = _measured(options.path, baselines, options.not_in)
        wanted -= measured
    if not chosen and not any(unused_code(Path(one.path or "")) for one in baselines):
        raise UsageError("found nothing to remove, expected keys, patterns or --not-in RUN.json")
    files: list[dict[str, Any]] = []
    foreseen: set[Path] = set()
    for baseline in baselines:
        path, removed = Path(baseline.path or ""), [key for key in baseline.entries if key in wanted]
        kept = len(baseline.entries) - len(removed)
        if options.dry_run:
            # Files of code that a folder's baselines share go with the first.
            unused = set(unused_code(path, removed)) - foreseen
            foreseen |= unused
        else:
            removed = baseline_files.remove(path, removed) if removed else []
            unused = set(prune_code(path))
        files.append({"path": str(path), "removed": removed, "kept": kept, "code_removed": len(unused)})
    if options.json:
        print_json({"dry_run": options.dry_run, "files": files})
        return 0
    did = "would remove" if options.dry_run else "removed"
    for one in files:
        print(f"baseline {printable(one['path'])}: {did} {len(one['removed'])}, {one['kept']} stay")
        if one["code_removed"]:
            print(f"{did} {counted(one['code_removed'], 'file')} of code that no entry names")
        for key in one["removed"]:
            print(f"- {printable(key)}")
    return 0


def _measured(path: Path, baselines: Sequence[Baseline], runs: Sequence[Path]) -> tuple[list[Baseline], set[str]]:
    """Return the baseline of the device that the runs measured, and the keys of the tests in the runs."""
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
    return [baseline], measured


def init(options: argparse.Namespace) -> int:
    identity = open_device(options.device).identity
    made = baseline_files.init(baseline_files.find_file(options.path, identity), identity)
    if options.json:
        device = {"name": identity.name, "memory_gib": identity.memory_gib, "kind": identity.kind}
        print_json({"path": str(made), "device": device})
    else:
        print(printable(f"wrote {made}: {identity.name}, no entries yet; --bandwidth-update fills it"))
    return 0
