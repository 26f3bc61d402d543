"""Run one side of an arena in a process of its own: pytest, with the tests of `arena_cases`, reports to its parent."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from pytest_bandwidth.devices.host import available_bytes
from pytest_bandwidth.features.honest.arena_inputs import Case, case_of

HERE: pytest.StashKey[Child] = pytest.StashKey()
_PAGE_COUNT = Path("/proc/self/statm")


class Child:
    """Be pytest's plugin, and hold what the tests are to do.

    asked: `side` ("reference" or "candidate"), `reference`, `candidate`, `cases`, `rtol`, `atol`. data: the arrays of
    the cases: the reference's process writes them, a candidate's reads them.
    """

    def __init__(self, asked: Mapping[str, Any], answer: int, data: BinaryIO) -> None:
        self.asked, self.data = asked, data
        self.cases: list[Case] | None = None if asked["cases"] is None else [case_of(one) for one in asked["cases"]]
        self._answer, self._token = answer, asked["token"]
        self._told: dict[str, Any] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[HERE] = self

    def tell(self, **facts: Any) -> None:
        """Add to the report of the running test."""
        self._told.update(facts)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what was judged, and report a test when it is over."""
        if rows := vars(report).get("bandwidth_rows"):
            self._told["rows"] = [row["outcome"] for row in json.loads(rows)]
        if not report.passed and "failure" not in self._told:
            self._told["failure"] = _said(report)
            self._told["skipped"] = report.skipped
        if report.when == "teardown":
            line = json.dumps({"token": self._token, **self._told}) + "\n"
            with open(self._answer, "ab", closefd=False) as stream:
                stream.write(line.encode())
            self._told = {}


def _said(report: pytest.TestReport) -> str:
    """Return what a test failed with, or skipped for, in a line."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else crash.message
    return next((line.strip() for line in text.splitlines() if line.strip()), "it failed")


def main(*descriptors: str) -> int:
    """Do what is asked. descriptors: of the question, the answer and the arrays."""
    question, answer, data = map(int, descriptors)
    with open(question, encoding="utf-8") as stream:
        stream.seek(0)
        asked = json.load(stream)
    for descriptor in (answer, data):
        os.set_inheritable(descriptor, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(data, "r+b") as arrays:
        child = Child(asked, answer, arrays)
        if asked["limits_memory"]:
            _limit_memory(asked["memory"])
        return pytest.main(
            [
                str(Path(__file__).with_name("arena_cases.py")),
                "-cpytest.ini",
                f"--rootdir={os.getcwd()}",
                "--noconftest",
                "--import-mode=importlib",
                "--assert=plain",
                "-s",
                *("-p", "pytest_bandwidth.plugin", "-p", "no:cacheprovider"),
                f"--bandwidth-device={asked['device']}",
                *([] if asked["max_time"] is None else [f"--bandwidth-max-time={asked['max_time']}"]),
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
