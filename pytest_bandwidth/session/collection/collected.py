"""Record what pytest collects, to tell which entries of a baseline no test of the run can measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from os.path import exists, normpath  # of a path that no file system takes, Path.exists raises
from pathlib import Path

import pytest

from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.options.options import RUNS_NOTHING, usage_error
from pytest_bandwidth.options.reading import settings_of
from pytest_bandwidth.outcomes.run_findings import Unmeasurable
from pytest_bandwidth.session.collection.asked import Asked
from pytest_bandwidth.session.collection.stale_entries import by_test, has_test, near_miss, of_other_rootdirs

COLLECTED = pytest.StashKey["Collected"]()
# A test's node id, which xdist's groups change once collected, and its key by that: asked for again and again.
_KEY = pytest.StashKey[tuple[str, str]]()
_SUITE = Path(__file__).resolve().parent.parent.parent / "suite"


class Collected:
    """Note items before anything is deselected, and files that could not be collected."""

    def __init__(self) -> None:
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

    def unmeasurable(
        self, config: pytest.Config, entries: Iterable[str], dropped: Sequence[pytest.Item]
    ) -> Unmeasurable:
        """Say which entries go unmeasured whatever the tests do.

        dropped: tests that --bandwidth-only leaves out, since they do not take the fixture.
        """
        tests = {key_of(item) for item in self._items}
        keys = list(entries)
        without_fixture = _of_tests(keys, {key_of(item) for item in dropped})
        not_measured = dict.fromkeys(without_fixture, "the test does not take the fixture `bandwidth`")
        gone: list[str] = []
        asked, root = Asked(config), config.rootpath
        covers = _covers(config, asked)
        empty = tuple(start for item in self._items if (start := start_of_empty_set(item)))
        files, exempt = {_file_of(test) for test in tests}, 0
        for key in keys:
            if key in not_measured or has_test(key, tests):
                continue
            if not covers(key):
                exempt += asked.for_single_tests and _file_of(key) in files
                continue
            why = self._why_unread(config, key)
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
        baseline = settings_of(config).baseline
        elsewhere = {} if baseline is None else of_other_rootdirs(gone, root, baseline)
        return Unmeasurable(not_measured, tuple(key for key in gone if key not in elsewhere), None, elsewhere, exempt)

    def left_out(
        self, config: pytest.Config, entries: Iterable[str], running: Sequence[pytest.Item]
    ) -> tuple[dict[str, str], int]:
        """Return which entries' tests were collected and are not to run, and why; and how many the command line spares.

        running: the tests that are to run.
        """
        run = {key_of(item) for item in running}
        others = [item for item in self._items if key_of(item) not in run]
        found = by_test(entries) if others else {}
        of_item = {item: keys for item in others if (keys := entries_of(item, found))}
        if not of_item:
            return {}, 0
        asked = Asked(config)
        spared, by_options = asked.left_out(of_item), asked.left_out_by_options(of_item)
        not_measured = {
            key: "its test was left out by "
            + ("addopts or PYTEST_ADDOPTS" if item in by_options else "a conftest.py or a plugin")
            for item, keys in of_item.items()
            if item not in spared
            for key in sorted(keys)
        }
        return not_measured, sum(len(of_item[item]) for item in spared)

    def concerns(self, config: pytest.Config, entries: Iterable[str], items: Sequence[pytest.Item]) -> bool:
        """Return whether entries are of tests that are to run, or cannot be measured though they were to be."""
        keys = list(entries)
        found = self.unmeasurable(config, keys, ())
        ran = _of_tests(keys, {key_of(item) for item in items})
        return bool(found.not_measured or found.gone or ran or self.left_out(config, keys, items)[0])

    def _why_unread(self, config: pytest.Config, key: str) -> str | None:
        """Return why the entry's file was not collected; "" where that is nobody's fault or told; None where it was."""
        for nodeid, why in self._unread.items():
            if key.startswith((f"{nodeid}::", f"{nodeid}/")):
                return why and f"its file was skipped: {why}"
        file = _file_of(key)
        return None if file in self._read or not exists(config.rootpath / file) else "its file was not collected"


def begin_to_collect(config: pytest.Config) -> None:
    """Note what is collected from now on, where a baseline is going to be compared with it."""
    settings = settings_of(config)
    runs_nothing = any(config.getoption(option, False) for option in RUNS_NOTHING)
    unjudged = settings.skip or settings.disable or settings.against is not None
    if settings.baseline is None or unjudged or runs_nothing:
        return
    config.stash[COLLECTED] = Collected()
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
        return collected.concerns(config, keys_at(settings.baseline), items)
    except BaselineError as error:
        if settings.strict and not hasattr(config, "workerinput"):
            raise usage_error(error) from None
        return False


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


def _covers(config: pytest.Config, asked: Asked) -> Callable[[str], bool]:
    """Return whether a person asked for the file of an entry, and for all of its tests."""
    if asked.for_less or config.option.pyargs:
        return lambda _: False
    root, places = config.rootpath, asked.places

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
    key = _key_by(item, nodeid)
    item.stash[_KEY] = nodeid, key
    return key


def _key_by(item: pytest.Item, nodeid: str) -> str:
    file, _, rest = nodeid.partition("::")
    if "@" in rest and item.config.pluginmanager.hasplugin("xdist") and item.get_closest_marker("xdist_group"):
        rest = rest.rpartition("@")[0]
    module = getattr(getattr(item, "module", None), "__name__", "")
    by_name = item.config.option.pyargs and any(
        module == given or module.startswith(f"{given}.")
        for given in (str(arg).partition("::")[0] for arg in item.config.args)
    )
    if by_name or _is_of_suite(item.path):
        return f"{module or file}::{rest}"
    return f"{file}::{rest}"


@cache
def _is_of_suite(file: Path) -> bool:
    return _SUITE in file.parents


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why pytest says that a test or a file was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(reason.removeprefix("Skipped:").split())[:200]
