"""Name tests in few words that still tell them apart, and put them into the order that people expect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

from pytest_bandwidth.outcomes.outcome import Outcome

_DIGITS = re.compile("([0-9]+)")


def shortest_unique(nodeids: Iterable[str]) -> dict[str, str]:
    """Map each node id to its shortest end, of whole path components, that no other of them has: ``a/test_x.py::t``."""
    parts = {nodeid: _parts(nodeid) for nodeid in nodeids}
    names: dict[str, str] = {}
    left, folders = list(parts), 0
    while left:
        ends = {nodeid: _end(*parts[nodeid], folders) for nodeid in left}
        times = Counter(ends.values())
        deepest = max(len(parts[nodeid][0]) for nodeid in left)
        names |= {nodeid: end for nodeid, end in ends.items() if times[end] == 1 or folders >= deepest}
        left, folders = [nodeid for nodeid in left if nodeid not in names], folders + 1
    return names


def names_among(outcomes: Iterable[Outcome]) -> Callable[[Outcome], str]:
    """Return what names each of the outcomes, among all of them: its shortest unique path, and its label."""
    names = shortest_unique(outcome.nodeid for outcome in outcomes)

    def name(outcome: Outcome) -> str:
        short = names[outcome.nodeid]
        return f"{short} @ {outcome.label}" if outcome.label else short

    return name


def without_common_part(names: Sequence[str]) -> tuple[str, list[str]]:
    """Return a column's heading and its names, less the file, or the test, that all of them share.

    Of one parametrized test the heading keeps the name, ``test_operation[…]``, and the rows their parameters.
    """
    if len(names) < 2:
        return "test", list(names)
    tests = {name.partition("[")[0] for name in names}
    if len(tests) == 1 and all("[" in name and name.endswith("]") for name in names):
        (test,) = tests
        return f"{test.rpartition('::')[2]}[…]", [name[len(test) + 1 : -1] for name in names]
    if len({name.partition("::")[0] for name in names}) == 1:
        return "test", [name.partition("::")[2] or name for name in names]
    return "test", list(names)


def natural(name: str) -> tuple[tuple[int, str] | str, ...]:
    """Return a sort key that puts 2 before 10; numbers of any length."""
    parts = _DIGITS.split(name)
    return tuple((len(part.lstrip("0")), part.lstrip("0")) if i % 2 else part for i, part in enumerate(parts))


def _parts(nodeid: str) -> tuple[tuple[str, ...], str]:
    """Part a node id into the folders of its file and the rest; a slash in a parameter parts nothing."""
    path, bracket, parameters = nodeid.partition("[")
    file, colons, test = path.partition("::")
    place = PurePosixPath(file)
    return place.parts[:-1], f"{place.name or file}{colons}{test}{bracket}{parameters}"


def _end(folders: tuple[str, ...], rest: str, count: int) -> str:
    return "/".join((*folders[len(folders) - count if count < len(folders) else 0 :], rest)) if count else rest
