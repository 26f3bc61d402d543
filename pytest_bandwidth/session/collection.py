"""Match what pytest collects with a baseline's entries, to tell which of them no test of the run can measure."""

from __future__ import annotations

import copy
import os
import re
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from os.path import exists, normpath  # of a path that no file system takes, Path.exists raises
from pathlib import Path, PurePosixPath
from shlex import quote
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.options.options import RUNS_NOTHING, settings_of, usage_error
from pytest_bandwidth.outcomes.run_findings import Unmeasurable

COLLECTED = pytest.StashKey["Collected"]()
# A test's node id, which xdist's groups change once collected, and its key by that: asked for again and again.
_KEY = pytest.StashKey[tuple[str, str]]()
_SUITE = Path(__file__).resolve().parent.parent / "suite"


class Collected:
    """Note items before anything is deselected, and files that could not be collected."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._items: list[pytest.Item] = []
        # By the collector's node id: why it was skipped, or "" where it broke, which pytest reports itself.
        self._unread: dict[str, str] = {}
        self._read: set[str] = set()

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        self._items.append(item)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.passed:
            self._read.add(report.nodeid)
        else:
            self._unread[report.nodeid.removesuffix("/__init__.py")] = reason_of(report) if report.skipped else ""

    def unmeasurable(self, entries: Iterable[str], dropped: Sequence[pytest.Item]) -> Unmeasurable:
        """Say which entries go unmeasured whatever the tests do.

        dropped: tests that --bandwidth-only leaves out, since they do not take the fixture.
        """
        tests = {key_of(item) for item in self._items}
        keys = list(entries)
        without_fixture = _of_tests(keys, {key_of(item) for item in dropped})
        not_measured = dict.fromkeys(without_fixture, "the test does not take the fixture `bandwidth`")
        gone: list[str] = []
        asked, root = _asked(self._config), self._config.rootpath
        covers = _covers(self._config, asked)
        empty = tuple(start for item in self._items if (start := start_of_empty_set(item)))
        files, exempt = {_file_of(test) for test in tests}, 0
        for key in keys:
            if key in not_measured or has_test(key, tests):
                continue
            if not covers(key):
                # A person named tests by their node ids.
                exempt += _file_of(key) in files and any("::" in arg for arg in asked.file_or_dir)
                continue
            why = self._why_unread(key)
            if why:
                not_measured[key] = why
            elif why is None and not key.startswith(empty):
                gone.append(key)
        moved = None
        if not any(has_test(key, tests) for key in keys):
            # The baseline may be of another rootdir, of which nothing can be told here.
            moved = near_miss(tests, [key for key in keys if not exists(root / _file_of(key))])
        if moved:
            return Unmeasurable(not_measured, (), moved, exempt=exempt)
        baseline = settings_of(self._config).baseline
        elsewhere = {} if baseline is None else of_other_rootdirs(gone, root, baseline)
        return Unmeasurable(not_measured, tuple(key for key in gone if key not in elsewhere), None, elsewhere, exempt)

    def left_out(self, entries: Iterable[str], running: Sequence[pytest.Item]) -> tuple[dict[str, str], int]:
        """Return which entries' tests were collected and are not to run, and why; and how many the command line spares.

        running: the tests that are to run.
        """
        run = {key_of(item) for item in running}
        others = [item for item in self._items if key_of(item) not in run]
        found = by_test(entries) if others else {}
        of_item = {item: keys for item in others if (keys := entries_of(item, found))}
        if not of_item:
            return {}, 0
        spared = _left_out_by(_asked(self._config), self._config, list(of_item))
        by_options = _left_out_by(self._config.option, self._config, list(of_item))
        not_measured = {
            key: "its test was left out by "
            + ("addopts or PYTEST_ADDOPTS" if item in by_options else "a conftest.py or a plugin")
            for item, keys in of_item.items()
            if item not in spared
            for key in sorted(keys)
        }
        return not_measured, sum(len(of_item[item]) for item in spared)

    def _why_unread(self, key: str) -> str | None:
        """Return why the entry's file was not collected; "" where that is nobody's fault or told; None where it was."""
        for nodeid, why in self._unread.items():
            if key.startswith((f"{nodeid}::", f"{nodeid}/")):
                return why and f"its file was skipped: {why}"
        file = _file_of(key)
        return None if file in self._read or not exists(self._config.rootpath / file) else "its file was not collected"


def begin_to_collect(config: pytest.Config) -> None:
    """Note what is collected from now on, where a baseline is going to be compared with it."""
    settings = settings_of(config)
    runs_nothing = any(config.getoption(option, False) for option in RUNS_NOTHING)
    unjudged = settings.skip or settings.disable or settings.against is not None
    if settings.baseline is None or unjudged or runs_nothing:
        return
    config.stash[COLLECTED] = Collected(config)
    config.pluginmanager.register(config.stash[COLLECTED], "bandwidth-collected")


def concerns_baseline(config: pytest.Config, items: Sequence[pytest.Item]) -> bool:
    """Return whether a baseline of any device has entries of tests that are to run, or that cannot.

    Raises pytest.UsageError for a baseline that cannot be read, with strict.
    """
    settings, collected = settings_of(config), config.stash.get(COLLECTED, None)
    if collected is None or settings.baseline is None:
        return False
    from pytest_bandwidth.baseline import keys_at  # kept out of runs without a baseline

    try:
        keys = keys_at(settings.baseline)
    except BaselineError as error:
        if settings.strict and not hasattr(config, "workerinput"):
            raise usage_error(error) from None
        return False
    found, ran = collected.unmeasurable(keys, ()), _of_tests(keys, {key_of(item) for item in items})
    return bool(found.not_measured or found.gone or ran or collected.left_out(keys, items)[0])


def _of_tests(keys: Iterable[str], tests: set[str]) -> list[str]:
    return [key for key in keys if has_test(key, tests)] if tests else []


def _file_of(key: str) -> str:
    return key.partition("::")[0]


def start_of_empty_set(item: pytest.Item) -> str | None:
    """Return what node ids begin with of a test that is parametrized with nothing; None for any other test."""
    call = getattr(item, "callspec", None)
    if call is None or not any(type(value).__name__ == "NotSetType" for value in call.params.values()):
        return None
    return key_of(item).removesuffix(f"[{call.id}]") + "["


def entries_of(item: pytest.Item, by_name: Mapping[str, set[str]]) -> set[str]:
    """Return the entries of a test. by_name: entries by what may be their test (`by_test`)."""
    empty = start_of_empty_set(item)
    if empty is None:
        return by_name.get(key_of(item), set())
    return {key for keys in by_name.values() for key in keys if key.startswith(empty)}


def _covers(config: pytest.Config, asked: Namespace) -> Callable[[str], bool]:
    """Return whether a person asked for the file of an entry, and for all of its tests."""
    # A person asked for less than the tests of the files and folders that are named.
    if any(getattr(asked, name, None) for name in _NARROWING) or config.option.pyargs:
        return lambda _: False
    # Those, or the folder where pytest was started: what testpaths or addopts name was not asked for.
    named, folder, root = asked.file_or_dir or ["."], config.invocation_params.dir, config.rootpath
    places = [Path(normpath(folder / arg)) for arg in map(str, named) if "::" not in arg]

    def covers(key: str) -> bool:
        file = _file_of(key)
        path = Path(normpath(root / file))
        return file.endswith(".py") and any(place == path or place in path.parents for place in places)

    return covers


def key_of(item: pytest.Item) -> str:
    """Return the baseline's key of a test: its node id.

    ``package.module::test`` where pytest found the file by --pyargs.
    """
    nodeid = item.nodeid
    known = item.stash.get(_KEY, None)
    if known is not None and known[0] == nodeid:
        return known[1]
    file, _, rest = nodeid.partition("::")
    if "@" in rest and item.config.pluginmanager.hasplugin("xdist") and item.get_closest_marker("xdist_group"):
        rest = rest.rpartition("@")[0]
    module = getattr(getattr(item, "module", None), "__name__", "")
    by_name = item.config.option.pyargs and any(
        module == given or module.startswith(f"{given}.")
        for given in (str(arg).partition("::")[0] for arg in item.config.args)
    )
    key = f"{module or file}::{rest}" if by_name or _is_of_suite(item.path) else f"{file}::{rest}"
    item.stash[_KEY] = nodeid, key
    return key


@cache
def _is_of_suite(file: Path) -> bool:
    return _SUITE in file.parents


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why pytest says that a test or a file was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(reason.removeprefix("Skipped:").split())[:200]


# pytest's options that leave tests out, by their names in its namespace.
_NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
# Of these a later run cannot be told what they left out: it depends on an earlier run's outcomes.
_BY_OUTCOMES = ("lf", "stepwise")


def _asked(config: pytest.Config) -> Namespace:
    """Read the command line alone, without addopts and PYTEST_ADDOPTS, by pytest's own parser."""
    # The only parser that knows every plugin's options.
    return config._parser.parse_known_args([str(arg) for arg in config.invocation_params.args])


def _left_out_by(options: Namespace, config: pytest.Config, items: list[pytest.Item]) -> set[pytest.Item]:
    """Return which tests these options leave out, by pytest's own implementation of -k and -m."""
    if any(getattr(options, name, None) for name in _BY_OUTCOMES):
        return set(items)
    prefixes = tuple(getattr(options, "deselect", None) or ())
    kept = [item for item in items if not item.nodeid.startswith(prefixes)] if prefixes else list(items)
    selection: Any = config.pluginmanager.get_plugin("mark")
    if selection is not None:
        alone: Any = copy.copy(config)
        alone.option = options
        alone.hook = SimpleNamespace(pytest_deselected=lambda **_: None)  # it was told once already
        selection.pytest_collection_modifyitems(kept, alone)
    return set(items).difference(kept)


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
    # The folder that holds the rootdir's repository and the baseline; the repository where that is too much.
    top = next((folder for folder in (root, *root.parents) if os.path.exists(folder / ".git")), root)
    shared = os.path.commonpath((top, os.path.abspath(baseline)))
    top = top if shared in (top.anchor, os.path.expanduser("~")) else Path(shared)
    folders = dict.fromkeys((*root.parents, *_rootdirs_below(top)))
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
    with suppress(OSError):
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as lines:
                return lines.read(_LONGEST_FILE)
    return ""


def gone_sentence(gone: Sequence[str], path: str) -> str:
    """Say which entries' tests are gone and how to remove them."""
    named = " ".join(quote(key) for key in gone[:MOST_NAMED])
    more = f" (and {len(gone) - MOST_NAMED} more)" if len(gone) > MOST_NAMED else ""
    what = "1 entry has" if len(gone) == 1 else f"{len(gone)} entries have"
    remove = f"pytest-bandwidth baseline prune {quote(path)} {named}{more}"
    return f"{what} no test any more; rename the key of a renamed test, or: {remove}"


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
