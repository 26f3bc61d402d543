"""Match a baseline's entries with tests by their keys: of one test, of another rootdir's, of none any more."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from shlex import quote

from pytest_bandwidth.domain.text import listed

MOST_NAMED = 10
# What makes a folder a rootdir, by pytest's documentation ("Initialization: determining rootdir and configfile").
_OF_ROOTDIRS = frozenset(
    ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "setup.py")
)
# Of a repository, from its top; a walk through as many takes some tenths of a second.
_MOST_FOLDERS = 10_000
_LONGEST_FILE = 1_000_000


def by_test(entries: Iterable[str]) -> dict[str, set[str]]:
    """Sort entries' keys by what may be their test: the whole key, and what stands before each `` @ `` of it."""
    found: dict[str, set[str]] = {}
    for key in entries:
        for test in _tests_of(key):
            found.setdefault(test, set()).add(key)
    return found


def has_test(key: str, tests: Collection[str]) -> bool:
    """Return a key is a test's, alone or followed by `` @ label``; parameters of a test may hold that text as well."""
    return any(test in tests for test in _tests_of(key))


def near_miss(tests: Collection[str], entries: Sequence[str]) -> tuple[str, str] | None:
    """Return a test and an entry that name the same test from different folders; None where there are none."""
    known = {part: test for test in sorted(tests, reverse=True) for part in _ends(test)}
    for key in entries:
        for test in _tests_of(key):
            for end in _ends(test):
                if end in known and (end == test or end == known[end]):
                    return known[end], key
    return None


def of_other_rootdirs(keys: Collection[str], root: Path, baseline: Path) -> dict[str, str]:
    """Map keys to the rootdir that has a test of that name in that file, where one around `root` has.

    Rootdirs of one repository may share a baseline, and node ids begin at each. keys: of entries without a test here.
    """
    if not keys:
        return {}
    folders = dict.fromkeys((*root.parents, *_rootdirs_below(_top(root, baseline))))
    folders.pop(root, None)
    found: dict[str, str] = {}
    texts: dict[str, list[tuple[str, str]]] = {}
    for key in keys:
        file, _, rest = key.partition("::")
        if file not in texts:
            texts[file] = [(str(folder), text) for folder in folders if (text := _text_of(folder, file))]
        name = rest.partition("[")[0].partition(" @ ")[0].rpartition("::")[2]
        word = re.compile(rf"\b{re.escape(name)}\b")
        folder = next((folder for folder, text in texts[file] if word.search(text)), None)
        if folder is not None:
            found[key] = folder
    return found


def elsewhere_sentence(elsewhere: Mapping[str, str]) -> str:
    """Say of how many entries the tests are another rootdir's. elsewhere: that rootdir, by key."""
    folders = list(dict.fromkeys(elsewhere.values()))
    what = "1 entry is" if len(elsewhere) == 1 else f"{len(elsewhere)} entries are"
    return f"{what} of tests of another rootdir, for its runs to measure: {listed(folders, MOST_NAMED)}"


def _top(root: Path, baseline: Path) -> Path:
    """Return the folder that holds the rootdir's repository and the baseline; the repository where that is too much."""
    top = next((folder for folder in (root, *root.parents) if os.path.exists(folder / ".git")), root)
    shared = os.path.commonpath((top, os.path.abspath(baseline)))
    return top if shared in (top.anchor, os.path.expanduser("~")) else Path(shared)


def _rootdirs_below(top: Path) -> Iterator[Path]:
    """Return folders that are rootdirs where pytest starts in them, those further up first."""
    waiting, seen = deque([str(top)]), 0
    while waiting and seen < _MOST_FOLDERS:
        folder, seen = waiting.popleft(), seen + 1
        try:
            entries = list(os.scandir(folder))
            below = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        names = {entry.name for entry in entries}
        if "pyvenv.cfg" in names:
            continue
        if not _OF_ROOTDIRS.isdisjoint(names):
            yield Path(folder)
        waiting.extend(e.path for e in below if not e.name.startswith((".", "__")) and e.name != "node_modules")


def _text_of(folder: Path, file: str) -> str:
    """Return the start of a test's file below the folder; empty where there is none."""
    parts = PurePosixPath(file)
    if parts.is_absolute() or ".." in parts.parts or parts.suffix != ".py":
        return ""
    path = os.path.join(folder, file)
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            return lines.read(_LONGEST_FILE)
    except OSError:
        return ""


def gone_sentence(gone: Sequence[str], path: str) -> str:
    """Say which entries' tests are gone and how to remove them."""
    named = " ".join(quote(key) for key in gone[:MOST_NAMED])
    more = f" (and {len(gone) - MOST_NAMED} more)" if len(gone) > MOST_NAMED else ""
    what = "1 entry has" if len(gone) == 1 else f"{len(gone)} entries have"
    return f"{what} no test any more; to remove: pytest-bandwidth baseline prune {quote(path)} {named}{more}"


def moved_sentence(moved: tuple[str, str], root: Path) -> str:
    """Say that node ids begin at another folder than the baseline's."""
    test, key = moved
    return (
        f"the baseline has no entry of these tests, and {key} for {test}: node ids begin at the rootdir, which is "
        f"{root}; start pytest in the folder where the baseline was written, or put a pytest.ini there"
    )


def _tests_of(key: str) -> list[str]:
    """Return what may be an entry's test, the longest first."""
    parts = key.split(" @ ")
    return [" @ ".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _ends(test: str) -> list[str]:
    """Return a test's node id as folders further down name it: ``a/b/c.py::t``, ``b/c.py::t``, ``c.py::t``."""
    file, mark, rest = test.partition("::")
    parts = file.split("/")
    return ["/".join(parts[start:]) + mark + rest for start in range(len(parts))]
