"""Run one side of an arena in a process of its own: pytest, with the tests of `arena_cases`, reports to its parent."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from pytest_bandwidth.devices.host import available_bytes
from pytest_bandwidth.devices.numpy_arrays import resolve_dtype
from pytest_bandwidth.features.honest.arena_inputs import case_of
from pytest_bandwidth.reports.text_safe import one_line

HERE: pytest.StashKey[Child] = pytest.StashKey()
_LONGEST_SAID = 400
_PACKAGE = Path(__file__).parents[2]
_PAGE_COUNT = Path("/proc/self/statm")


class Child:
    """Be pytest's plugin, and hold what the tests are to do.

    asked: `test`, `reference`, `candidate`, `cases`, `rtol`, `atol`, and what `main` takes. data: the file of the
    cases' arrays: the reference's process writes it, a candidate's reads it.
    """

    def __init__(self, asked: Mapping[str, Any], answer: int, data: BinaryIO) -> None:
        self.asked, self._answer, self._data = asked, answer, data
        self.cases = [case_of(one["case"]) for one in asked["cases"] or ()]
        self._told: dict[str, Any] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[HERE] = self

    def tell(self, **facts: Any) -> None:
        """Add to the next report."""
        self._told.update(facts)

    def report(self) -> None:
        """Send what was told to the parent."""
        line = json.dumps({"token": self.asked["token"], **self._told}) + "\n"
        self._told = {}
        with open(self._answer, "ab", closefd=False) as stream:
            stream.write(line.encode())

    def keep(self, array: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Keep an array for the candidates; return where it is."""
        at = self._data.seek(0, os.SEEK_END)
        self._data.write(array.reshape(-1).view(np.uint8).data)
        self._data.flush()
        return {"dtype": array.dtype.name, "shape": array.shape, "at": at}

    def kept(self, place: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        """Return an array that `keep` kept."""
        kind, shape = resolve_dtype(place["dtype"]), tuple(place["shape"])
        self._data.seek(place["at"])
        return np.fromfile(self._data, kind, prod(shape)).reshape(shape)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what was judged, and report a test when it is over."""
        if rows := vars(report).get("bandwidth_rows"):
            self.tell(rows=[row["outcome"] for row in json.loads(rows)])
        if not report.passed and "failure" not in self._told:
            self.tell(failure=_said(report), skipped=report.skipped)
        if report.when == "teardown":
            self.report()


def _said(report: pytest.TestReport) -> str:
    """Return what a test failed with, or skipped for, in a line."""
    if isinstance(report.longrepr, tuple):
        return one_line(str(report.longrepr[2]).removeprefix("Skipped: "), _LONGEST_SAID)
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else crash.message
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it failed"]
    line = " ".join(lines[: 1 + lines[0].endswith(":")])  # a compiler's log begins below
    if crash is not None and _PACKAGE not in Path(crash.path).parents:
        line = f"{Path(crash.path).name}:{crash.lineno}: {line}"
    return one_line(line.removeprefix("Failed: ").partition(" (help: ")[0], _LONGEST_SAID)


def main(*descriptors: str) -> int:
    """Do what is asked. descriptors: of the question, the answer and the arrays."""
    question, answer, data = map(int, descriptors)
    with open(question, encoding="utf-8") as stream:
        stream.seek(0)
        asked = json.load(stream)
    for descriptor in (answer, data):
        os.set_inheritable(descriptor, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(data, "r+b" if asked["candidate"] is None else "rb") as arrays:
        child = Child(asked, answer, arrays)
        if asked["limits_memory"]:
            _limit_memory(asked["memory"])
        return pytest.main(
            [
                f"{Path(__file__).with_name('arena_cases.py')}::{asked['test']}",
                "-cpytest.ini",
                f"--rootdir={os.getcwd()}",
                "--noconftest",
                "--import-mode=importlib",
                "--assert=plain",
                "-s",
                *("-ppytest_bandwidth.plugin", "-pno:cacheprovider", "-pno:faulthandler", "-pno:terminal"),
                *asked["options"],
            ],
            plugins=[child],
        )


def _limit_memory(more_bytes: int | None) -> None:
    """Let this process take so many further bytes of addresses; None: what is free. Nothing where that is not known."""
    more = available_bytes() if more_bytes is None else more_bytes
    with suppress(OSError, ValueError, IndexError):
        pages = int(_PAGE_COUNT.read_text().split()[0])
        if more is not None:
            limit = pages * resource.getpagesize() + more
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
