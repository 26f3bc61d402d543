"""Match a baseline's entries with tests: those of one test, and those whose test is gone.

That a test is gone only a run of everything can know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from shlex import quote

import pytest

ABSENT = pytest.StashKey[tuple[str, ...]]()
MOST_NAMED = 10
# pytest's options that leave tests out, by their names in its namespace.
_NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")


def note_absent(config: pytest.Config, tests: Collection[str], entries: Iterable[str]) -> None:
    """Keep in mind which entries' tests were not collected, if this run collects everything; tests: those' keys."""
    if runs_everything(config):
        config.stash[ABSENT] = tuple(key for key in entries if not _has_test(key, tests))


def by_test(entries: Iterable[str]) -> dict[str, set[str]]:
    """Sort entries' keys by what may be their test: the whole key, and what stands before each `` @ `` of it."""
    found: dict[str, set[str]] = {}
    for key in entries:
        parts = key.split(" @ ")
        for count in range(1, len(parts) + 1):
            found.setdefault(" @ ".join(parts[:count]), set()).add(key)
    return found


def runs_everything(config: pytest.Config) -> bool:
    """Return whether no argument and no option narrows what is collected, and no folder below the root was chosen."""
    if any(getattr(config.option, name, None) for name in _NARROWING):
        return False
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        return True
    at_root = config.invocation_params.dir.resolve() == Path(config.rootpath).resolve()
    return config.args_source is pytest.Config.ArgsSource.INVOCATION_DIR and at_root


def sentence(absent: Sequence[str], path: str) -> str:
    """Say what is absent and how to remove it."""
    named = " ".join(quote(key) for key in absent[:MOST_NAMED])
    more = f" (and {len(absent) - MOST_NAMED} more)" if len(absent) > MOST_NAMED else ""
    what = "1 entry has" if len(absent) == 1 else f"{len(absent)} entries have"
    return f"{what} no test any more; to remove: pytest-bandwidth baseline prune {quote(path)} {named}{more}"


def _has_test(key: str, tests: Collection[str]) -> bool:
    """Return a key is a test's, alone or followed by `` @ label``; parameters of a test may hold that text as well."""
    parts = key.split(" @ ")
    return any(" @ ".join(parts[:n]) in tests for n in range(len(parts), 0, -1))
