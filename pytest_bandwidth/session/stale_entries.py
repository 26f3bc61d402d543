"""Match a baseline's entries with tests by their keys: those of one test, those whose test is gone or named anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from shlex import quote

MOST_NAMED = 10


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
