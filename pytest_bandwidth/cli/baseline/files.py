"""Find the baseline files that a path means, and the entries that a pattern means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from os.path import isdir  # of a name that no file system takes, Path's raises
from pathlib import Path

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.locate import files_in
from pytest_bandwidth.domain.baseline import Baseline
from pytest_bandwidth.domain.errors import UsageError


def files_at(path: Path) -> list[Path]:
    """Return the file itself, or the files of a folder. Raises UsageError for a folder without any."""
    if not isdir(path):
        return [path]
    files = files_in(path)
    if not files:
        raise UsageError(f"{path}: found a folder without .yaml files, expected baselines")
    return files


def load_all(path: Path) -> list[Baseline]:
    """Load the baselines at a path. Raises BaselineError for the first that is bad, UsageError where there is none."""
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
