"""List every problem of baseline files, before a run stumbles over the first."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import exists, isdir  # of a name that no file system takes, Path's raise
from pathlib import Path

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.code_files import problems_of
from pytest_bandwidth.cli.baseline.files import files_at
from pytest_bandwidth.cli.output import print_json
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice
from pytest_bandwidth.domain.errors import BaselineError, Problem, UsageError
from pytest_bandwidth.reports.text_safe import printable


@dataclass(frozen=True, slots=True)
class _Looked:
    path: Path
    baseline: Baseline | None
    problems: tuple[Problem, ...]


def run(options: argparse.Namespace) -> int:
    looked = [one for path in options.paths for one in _look_at(path)]
    problems = [problem for one in looked for problem in one.problems]
    if options.json:
        print_json({"valid": not problems, "files": [_plain(one) for one in looked]})
    else:
        for one in looked:
            print("\n".join(map(printable, _lines(one))))
    return 2 if problems else 0


def _look_at(path: Path) -> list[_Looked]:
    """Return the files at a path; a path without any is a problem itself, which keeps nothing of the others."""
    if not exists(path):
        return [_nothing_at(path, "found no such file or folder, expected baselines")]
    try:
        looked = [_read(file) for file in files_at(path)]
    except UsageError as error:
        return [_nothing_at(path, str(error).removeprefix(f"{path}: "))]
    return _with_twins(looked) if isdir(path) else looked


def _nothing_at(path: Path, message: str) -> _Looked:
    return _Looked(path, None, (Problem(str(path), 0, message),))


def _read(file: Path) -> _Looked:
    try:
        baseline = baseline_files.load(file)
        return _Looked(file, baseline, tuple(problems_of(file, baseline.entries.values())))
    except BaselineError as error:
        return _Looked(file, None, error.problems)


def _with_twins(looked: Sequence[_Looked]) -> list[_Looked]:
    """Add the problem of two files of one device: a run could not tell which of them to use."""
    first: dict[BaselineDevice, Path] = {}
    found = []
    for one in looked:
        device = one.baseline.device if one.baseline else None
        other = first.setdefault(device, one.path) if device else one.path
        if device is None or other == one.path:
            found.append(one)
            continue
        message = f"found the device {device.name!r}, expected it in one file only: {other} is of it, too"
        found.append(_Looked(one.path, one.baseline, (Problem(str(one.path), device.line or 1, message),)))
    return found


def _lines(one: _Looked) -> list[str]:
    if one.problems or one.baseline is None:
        return [str(problem) for problem in one.problems]
    device = one.baseline.device.name if one.baseline.device else "any device"
    count = len(one.baseline.entries)
    note = [] if one.baseline.note is None else [one.baseline.note]
    return [*note, f"{one.path}: valid, {count} {'entry' if count == 1 else 'entries'}, {device}"]


def _plain(one: _Looked) -> dict[str, object]:
    return {
        "path": str(one.path),
        "valid": not one.problems,
        "device": one.baseline.device.name if one.baseline and one.baseline.device else None,
        "entries": len(one.baseline.entries) if one.baseline else None,
        "problems": [{"line": problem.line or None, "message": problem.message} for problem in one.problems],
    }
