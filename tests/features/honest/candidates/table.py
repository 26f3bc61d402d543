"""The table of candidates: cheats with the codes by which they are to fail, and right work that must not be accused.

A candidate is a function, or makes one from what it is given (`Given`), so that what it keeps is new in each run.
`cheat` and `right` decorate one, or are called with several of one task, each by its name.
"""

import inspect
import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_bandwidth.fixture.bandwidth import Bandwidth

# How a candidate is measured: with `honest=True` and no reference, or with `check=`.
WITHOUT, WITH = "without-reference", "with-reference"
BOTH = (WITHOUT, WITH)
# In place of a code: the plugin refuses to measure it, with a UsageError.
REFUSED = "refused"
Codes = frozenset[str]


@dataclass(frozen=True)
class Task:
    """A piece of work. make: its arguments. reference: what they give. writes, reads: places of arguments.

    Without writes it returns its result, of so many bytes where that is no array. reads: None = all arrays that it does
    not write. check: makes what `check=` is given of the reference.
    """

    make: Callable[[Bandwidth], tuple[Any, ...]]
    reference: Callable[..., Any]
    writes: tuple[int, ...] = ()
    reads: tuple[int, ...] | None = None
    nbytes: int | None = None
    check: Callable[[Callable[..., Any]], Any] = lambda reference: reference

    def measure(self, bandwidth: Bandwidth, work: Callable[..., Any], args: tuple[Any, ...], **more: Any) -> None:
        """Measure the work on the arguments."""
        arrays = [place for place, value in enumerate(args) if hasattr(value, "nbytes") and getattr(value, "ndim", 0)]
        reads = [place for place in arrays if place not in self.writes] if self.reads is None else self.reads
        writes = [args[place] for place in self.writes]
        declared = {
            "reads": [args[place] for place in reads],
            "writes": writes or ("result" if self.nbytes is None else self.nbytes),
        }
        bandwidth(work, *args, **{**declared, **more})


@dataclass(frozen=True)
class Given:
    """What a candidate is made from. args: the first arrays that it will be measured with.

    patch, at_end: what it changes in the process is undone when the test's body ends.
    """

    bandwidth: Bandwidth
    patch: pytest.MonkeyPatch
    at_end: ExitStack
    args: tuple[Any, ...]
    reference: Callable[..., Any]


@dataclass(frozen=True)
class Candidate:
    """One row of the table. codes: by way of measuring, those of which one is to fail it, where it is not right."""

    name: str
    family: str
    task: Task
    make: Callable[..., Callable[..., Any]]
    codes: dict[str, Codes]
    declared: dict[str, Any]
    is_right: bool = False

    def key(self, way: str) -> str:
        """Return what its test is called."""
        return f"{self.family}-{self.name}-{way}"

    def measure(self, bandwidth: Bandwidth, way: str) -> None:
        """Measure it in one of the ways."""
        args = self.task.make(bandwidth)
        more = {"check": self.task.check(self.task.reference)} if way == WITH else {}
        with pytest.MonkeyPatch.context() as patch, ExitStack() as at_end:
            work = self.make(Given(bandwidth, patch, at_end, args, self.task.reference))
            self.task.measure(bandwidth, work, args, **more, **self.declared)


TABLE: list[Candidate] = []


def _added(
    family: str, task: Task, codes: dict[str, Codes], declared: dict[str, Any], *, is_right: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    def add(function: Callable[..., Any] | None = None, /, **works: Any) -> Callable[..., Any] | None:
        for name, work in {function.__name__: function}.items() if function is not None else works.items():
            # One parameter named `given` makes the work; anything else is the work.
            makes = callable(work) and list(inspect.signature(work).parameters) == ["given"]
            make = work if makes else lambda given, work=work: work
            TABLE.append(Candidate(name, family, task, make, codes, declared, is_right))
        return function

    return add


def cheat(
    family: str, task: Task, *codes: str, ways: Iterable[str] = BOTH, **declared: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Add a cheat that is to be MISMATCH for one of the codes, or since it takes no longer than calling nothing.

    ways: in which it can be noticed at all.
    """
    return _added(family, task, {way: frozenset((*codes, "no-work")) for way in ways}, declared)


def right(
    family: str, task: Task, *refused: str, ways: Iterable[str] = BOTH, **declared: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Add work that is right. refused: REFUSED, where nothing of it can be looked at."""
    return _added(family, task, {way: frozenset(refused) for way in ways}, declared, is_right=True)


def test_of_each() -> Callable[..., None]:
    """Return a test of each candidate so far, in each way in which it can be noticed; write down how each is to end."""
    ends = {one.key(way): (sorted(codes), one.is_right) for one in TABLE for way, codes in one.codes.items()}
    Path("table.json").write_text(json.dumps(ends))

    def measured(bandwidth: Bandwidth, candidate: Candidate, way: str) -> None:
        candidate.measure(bandwidth, way)

    honest = pytest.mark.bandwidth(honest=True)
    rows = [(candidate, way) for candidate in TABLE for way in candidate.codes]
    each = [pytest.param(*row, marks=[honest] if row[1] == WITHOUT else [], id=row[0].key(row[1])) for row in rows]
    return pytest.mark.parametrize(("candidate", "way"), each)(measured)


# ---- the pieces of work that most candidates do, on the host ---------------------------------------------------------

N = 1 << 15


def _vector(bandwidth):
    return (bandwidth.random(N, "float32"),)


def _vector_and_out(bandwidth):
    return bandwidth.random(N, "float32"), bandwidth.empty(N, "float32")


def work(x):
    """Return what most candidates are to compute; the reference is another function."""
    return np.sqrt(x) * 3


def _root(x):
    return np.sqrt(x) * 3


def _root_into(x, y):
    return _root(x)


# Returning, and writing into its second argument.
ROOT = Task(_vector, _root)
ROOT_INTO = Task(_vector_and_out, _root_into, writes=(1,))
COPY = Task(_vector, lambda x: x.copy())
COPY_INTO = Task(_vector_and_out, lambda x, y: x.copy(), writes=(1,))
FLIP = Task(_vector, lambda x: x[::-1].copy())
RISE = Task(_vector, lambda x: x + 1, writes=(0,), reads=(0,))
SUM = Task(_vector, lambda x: x.sum(dtype="float64").astype("float32"), nbytes=4)
SHARES = Task(_vector, lambda x: x / x.sum())
DOUBLES = Task(lambda b: (b.random(N, "float64"),), _root)
