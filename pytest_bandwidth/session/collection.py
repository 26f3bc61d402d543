"""Match collected tests with a baseline's entries, to find entries that no test of the run can measure."""

from __future__ import annotations

import copy
import os
import re
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os.path import exists, normpath  # of a path that no file system takes, Path.exists raises
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.options.options import RUNS_NOTHING, settings_of, usage_error
from pytest_bandwidth.outcomes.run_findings import Unmeasurable

COLLECTED = pytest.StashKey["Collected"]()
_SUITE = Path(__file__).resolve().parent.parent / "suite"


class Collected:
    """Note items before anything is deselected, and files that could not be collected."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._items: list[pytest.Item] = []
        # By the collector's node id: why it was skipped, or "" if it failed, which pytest reports itself.
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
        """Return the entries that no test of this run can measure.

        dropped: tests that --bandwidth-only leaves out, because they do not take the fixture.
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
                # The user selected tests by node id.
                exempt += _file_of(key) in files and any("::" in arg for arg in asked.file_or_dir)
                continue
            why = self._why_unread(key)
            if why:
                not_measured[key] = why
            elif why is None and not key.startswith(empty):
                gone.append(key)
        moved = None
        if not any(has_test(key, tests) for key in keys):
            # The baseline may belong to another rootdir, whose tests this run did not collect.
            moved = near_miss(tests, [key for key in keys if not exists(root / _file_of(key))])
        if moved:
            return Unmeasurable(not_measured, (), moved, exempt=exempt)
        baseline = settings_of(self._config).baseline
        elsewhere = {} if baseline is None else of_other_rootdirs(gone, root, baseline)
        return Unmeasurable(not_measured, tuple(key for key in gone if key not in elsewhere), None, elsewhere, exempt)

    def left_out(self, entries: Iterable[str], running: Sequence[pytest.Item]) -> tuple[dict[str, str], int]:
        """Return, by key, why entries' collected tests will not run; and how many entries the command line leaves out.

        running: the tests that will run.
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
        """Return why the entry's file was not collected; "" if pytest reports that; None if it was, or is missing."""
        for nodeid, why in self._unread.items():
            if key.startswith((f"{nodeid}::", f"{nodeid}/")):
                return why and f"its file was skipped: {why}"
        file = _file_of(key)
        return None if file in self._read or not exists(self._config.rootpath / file) else "its file was not collected"


def begin_to_collect(config: pytest.Config) -> None:
    """Record what pytest collects from now on, if the run will compare a baseline with it."""
    settings = settings_of(config)
    runs_nothing = any(config.getoption(option, False) for option in RUNS_NOTHING)
    unjudged = settings.skip or settings.disable or settings.against is not None
    if settings.baseline is None or unjudged or runs_nothing:
        return
    config.stash[COLLECTED] = Collected(config)
    config.pluginmanager.register(config.stash[COLLECTED], "bandwidth-collected")


def concerns_baseline(config: pytest.Config, items: Sequence[pytest.Item]) -> bool:
    """Return whether a baseline of any device has entries whose tests will run, or cannot run.

    With strict, raises pytest.UsageError for a baseline that cannot be read.
    """
    settings, collected = settings_of(config), config.stash.get(COLLECTED, None)
    if collected is None or settings.baseline is None:
        return False
    from pytest_bandwidth.baseline import keys_at  # not imported in runs without a baseline

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
    """Return the common start of the node ids of a test with an empty parameter set; None for any other test."""
    call = getattr(item, "callspec", None)
    if call is None or not any(type(value).__name__ == "NotSetType" for value in call.params.values()):
        return None
    return key_of(item).removesuffix(f"[{call.id}]") + "["


def entries_of(item: pytest.Item, by_name: Mapping[str, set[str]]) -> set[str]:
    """Return the keys of a test's entries. by_name: keys by the possible names of their tests (`by_test`)."""
    empty = start_of_empty_set(item)
    if empty is None:
        return by_name.get(key_of(item), set())
    return {key for keys in by_name.values() for key in keys if key.startswith(empty)}


def _covers(config: pytest.Config, asked: Namespace) -> Callable[[str], bool]:
    """Return a function of an entry's key: whether the user asked for all tests of its file."""
    # With these options the user asked for fewer tests than the given files and folders have.
    if any(getattr(asked, name, None) for name in _NARROWING) or config.option.pyargs:
        return lambda _: False
    # The user's files and folders, or the folder where pytest was started; not those of testpaths or addopts.
    named, folder, root = asked.file_or_dir or ["."], config.invocation_params.dir, config.rootpath
    places = [Path(normpath(folder / arg)) for arg in map(str, named) if "::" not in arg]

    def covers(key: str) -> bool:
        file = _file_of(key)
        path = Path(normpath(root / file))
        return file.endswith(".py") and any(place == path or place in path.parents for place in places)

    return covers


def key_of(item: pytest.Item) -> str:
    """Return a test's key in the baseline: its node id.

    It is ``package.module::test`` if pytest found the file by --pyargs.
    """
    file, _, rest = item.nodeid.partition("::")
    if "@" in rest and item.config.pluginmanager.hasplugin("xdist") and item.get_closest_marker("xdist_group"):
        rest = rest.rpartition("@")[0]
    module = getattr(getattr(item, "module", None), "__name__", "")
    by_name = item.config.option.pyargs and any(
        module == given or module.startswith(f"{given}.")
        for given in (str(arg).partition("::")[0] for arg in item.config.args)
    )
    return f"{module or file}::{rest}" if by_name or _SUITE in item.path.parents else f"{file}::{rest}"


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return pytest's reason for skipping a test or a file."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(reason.removeprefix("Skipped:").split())[:200]


# pytest's options that leave tests out, by their names in the options' namespace.
_NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
# Options whose selection depends on an earlier run's outcomes, so that it cannot be computed again.
_BY_OUTCOMES = ("lf", "stepwise")


def _asked(config: pytest.Config) -> Namespace:
    """Parse only the command line, without addopts and PYTEST_ADDOPTS, with pytest's own parser."""
    # The only parser with the options of all plugins.
    return config._parser.parse_known_args([str(arg) for arg in config.invocation_params.args])


def _left_out_by(options: Namespace, config: pytest.Config, items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that these options leave out, with pytest's own implementation of -k and -m."""
    if any(getattr(options, name, None) for name in _BY_OUTCOMES):
        return set(items)
    prefixes = tuple(getattr(options, "deselect", None) or ())
    kept = [item for item in items if not item.nodeid.startswith(prefixes)] if prefixes else list(items)
    selection: Any = config.pluginmanager.get_plugin("mark")
    if selection is not None:
        alone: Any = copy.copy(config)
        alone.option = options
        alone.hook = SimpleNamespace(pytest_deselected=lambda **_: None)  # pytest has called this hook already
        selection.pytest_collection_modifyitems(kept, alone)
    return set(items).difference(kept)


# Files that make a folder a rootdir, by pytest's documentation ("Initialization: determining rootdir and configfile").
_OF_ROOTDIRS = frozenset(
    ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "setup.py")
)
# How many folders of a repository to search, from its top; that takes some tenths of a second.
_MOST_FOLDERS = 10_000
_LONGEST_FILE = 1_000_000


def by_test(entries: Iterable[str]) -> dict[str, set[str]]:
    """Group entries' keys by their possible tests: the whole key, and the part before each `` @ `` in it."""
    found: dict[str, set[str]] = {}
    for key in entries:
        for test in _tests_of(key):
            found.setdefault(test, set()).add(key)
    return found


def has_test(key: str, tests: Collection[str]) -> bool:
    """Return whether a key belongs to one of the tests: it is a node id, alone or followed by `` @ label``."""
    return any(test in tests for test in _tests_of(key))


def near_miss(tests: Collection[str], entries: Sequence[str]) -> tuple[str, str] | None:
    """Return a node id and an entry's key that differ only in the folder where their paths start; else None."""
    known = {part: test for test in sorted(tests, reverse=True) for part in _ends(test)}
    for key in entries:
        for test in _tests_of(key):
            for end in _ends(test):
                if end in known and (end == test or end == known[end]):
                    return known[end], key
    return None


def of_other_rootdirs(keys: Collection[str], root: Path, baseline: Path) -> dict[str, str]:
    """Map keys to another rootdir, around `root`, whose file of that path contains the test's name.

    Rootdirs of one repository may share a baseline; each starts its own node ids. keys: of entries without a test here.
    """
    if not keys:
        return {}
    # The folder that holds the repository and the baseline; the repository alone if that would be / or the home.
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


def _rootdirs_below(top: Path) -> Iterator[Path]:
    """Yield folders that are rootdirs if pytest starts in them, the higher ones first."""
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
    """Return the start of a test file's text, its path taken from the folder; empty if there is no such file."""
    parts = PurePosixPath(file)
    if parts.is_absolute() or ".." in parts.parts or parts.suffix != ".py":
        return ""
    path = os.path.join(folder, file)
    with suppress(OSError):
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as lines:
                return lines.read(_LONGEST_FILE)
    return ""


def _tests_of(key: str) -> list[str]:
    """Return the possible node ids of an entry's test, the longest first: parameters may contain `` @ ``, too."""
    parts = key.split(" @ ")
    return [" @ ".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _ends(test: str) -> list[str]:
    """Return a test's node ids from all lower rootdirs: ``a/b/c.py::t``, ``b/c.py::t``, ``c.py::t``."""
    file, mark, rest = test.partition("::")
    parts = file.split("/")
    return ["/".join(parts[start:]) + mark + rest for start in range(len(parts))]
