"""What follows from a baseline's values alone."""

from __future__ import annotations

import pytest

from pytest_bandwidth.domain.baseline import (
    NEWEST_RUNS_KEPT,
    Entry,
    Run,
    changing_part,
    settled,
)


def test_settling_keeps_the_newest_runs_and_six_digits() -> None:
    entry = Entry("a", anchor=Run(1.23456789), runs=tuple(Run(100.0 + n, relative=0.987654321) for n in range(25)))
    found = settled(entry)
    assert [run.gbps for run in found.runs] == [100.0 + n for n in range(25)][-NEWEST_RUNS_KEPT:]
    assert {run.relative for run in found.runs} == {0.987654}
    assert found.anchor == Run(1.23457)
    assert Entry("a", 1.0, line=3) == Entry("a", 1.0, line=9), "where it stands is no part of it"
    assert settled(found) == found


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("t.py::test[<Case object at 0x7f86d78d6480>]", "an object's address (at 0x7f86d78d6480)"),
        ("t.py::test[0x55d0c8a3b2f0]", "an object's address (0x55d0c8a3b2f0)"),
        ("t.py::test[/tmp/pytest-of-me/pytest-12/a0]", "a temporary path (pytest-of-me/pytest-12)"),
        ("t.py::test[/tmp/tmpab12cd_x/data]", "a temporary path (/tmpab12cd_x)"),
        ("tests/tmp_modules/t.py::test[0x1000-0xdeadbeef]", None),
        ("t.py::test_at 0x1234567", None),
    ],
)
def test_what_changes_in_an_id_from_run_to_run_is_known(key: str, part: str | None) -> None:
    assert changing_part(key) == part
