"""What `--bandwidth-against` can say of a test, each at its exact boundary, and once with `--bandwidth-strict`.

As in test_verdict_table.py sample times are scripted; all else is real: git's worktree, pytest's processes in pairs.
Both processes of a pair sample alternately where the scripted host has memory for both; elsewhere they follow each
other, as on a GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from repositories import committed
from verdict_tables import BYTES, FAILS, FAILS_STRICTLY, just, rows_of_run

# docs/judging.md: probes that differ by more between the two processes of a pair saw another machine.
EVEN_PROBES = math.exp(0.10)

SMALL_MEMORY, LARGE_MEMORY = 2 * BYTES, 100 * BYTES

# The n-th process that measures a test in its tree takes the n-th of that tree's figures.
SITE = f"""
import os, sys
from dataclasses import replace
from pathlib import Path

import pytest_bandwidth.devices.open as opening
from scripted import SCRIPTED_IDENTITY, ScriptedDevice

turns = {{}}

def turn(name, tree):
    if name not in turns:
        turns[name] = len(list(Path(__file__).parent.glob(f"{{name}}-{{tree}}-*")))
        Path(__file__).with_name(f"{{name}}-{{tree}}-{{turns[name]}}").touch()
    return turns[name]

def script(which):
    def seconds(n):
        kern = sys.modules["kern"]
        figures = kern.GBPS[kern.measured][which]
        return {BYTES} / figures[turn(kern.measured, kern.TREE) % len(figures)] / 1e9
    return seconds

identity = replace(SCRIPTED_IDENTITY, memory_bytes=int(os.environ["MEMORY_BYTES"]))
opening.open_device = lambda name: ScriptedDevice(
    script("kernel"), script("probe"), probe_bytes={BYTES}, identity=identity
)
"""


@dataclass(frozen=True)
class Case:
    """One measurement: GB/s of kernel and probe in the working tree's processes, over and over; the revision's are 100.

    there: how many bytes the revision's test declares; None where it has no such test.
    """

    status: str
    rule: str
    kernel: tuple[float, ...] = (100.0,)
    probe: tuple[float, ...] = (100.0,)
    there: int | None = BYTES


CASES = {
    "ok": Case("OK", "pairs", (just(True, 95.0),)),
    "regressed": Case("REGRESSED", "pairs", (just(False, 95.0),)),
    "not_yet_improved": Case("OK", "pairs", (just(False, 100 / 0.95),)),
    "improved": Case("IMPROVED", "pairs", (just(True, 100 / 0.95),)),
    "not_there": Case("UNDECIDED", "not-there", there=None),
    "other_bytes": Case("MISMATCH", "bytes", there=BYTES - 1),
}
# Measured in one test, whose measurements share their pairs; each of the others has a test of its own.
PASS_TOGETHER = ("ok", "not_yet_improved", "improved")
# These see by the probe whether both processes of a pair had the same machine. After the run itself comes a pair that
# just had not, and one that just had.
PROBES = (100.0, just(True, 100 * EVEN_PROBES), just(False, 100 * EVEN_PROBES), *[100.0] * 12)
ONE_AFTER_THE_OTHER = {"one_by_one": Case("REGRESSED", "pairs", (just(False, 95.0),), PROBES)}
ALL = CASES | ONE_AFTER_THE_OTHER
# Strict runs change what fails and no verdict: cases that take no pair. test_verdict_table.py has one of each status.
STRICTLY = ("not_there", "other_bytes")


def kernels(tree: str, figures: dict[str, dict[str, tuple[float, ...]]]) -> str:
    return f"TREE = {tree!r}\nGBPS = {figures!r}\n"


@pytest.fixture(scope="module")
def plainly(tmp_path_factory):
    return judged(tmp_path_factory.mktemp("plain"), *CASES)


@pytest.fixture(scope="module")
def strictly(tmp_path_factory):
    return judged(tmp_path_factory.mktemp("strict"), *STRICTLY, more=("--bandwidth-strict",))


@pytest.fixture(scope="module")
def one_after_the_other(tmp_path_factory):
    return judged(tmp_path_factory.mktemp("one_by_one"), *ONE_AFTER_THE_OTHER, memory_bytes=SMALL_MEMORY)


def text_of_tests(there: bool) -> str:
    """Return the tests of one tree. id is no function whose code would be known, and the same in both."""
    declared = {name: case.there if there else BYTES for name, case in ALL.items()}
    tests = {name: (name,) for name in ALL if name not in PASS_TOGETHER and declared[name] is not None}
    text = "import kern\n"
    for test, names in {"together": PASS_TOGETHER, **tests}.items():
        text += f"\ndef test_{test}(bandwidth):\n"
        for name in names:
            text += f"    kern.measured = {name!r}\n    bandwidth(id, 'abc', reads={declared[name]}, label={name!r})\n"
    return text


def judged(folder, *names, more=(), memory_bytes=LARGE_MEMORY):
    """Return what became of each measurement in one run: pytest's word of its test, and the row of the document."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    repo = folder / "repo"
    repo.mkdir()
    (repo / "pytest.ini").write_text("[pytest]\naddopts = -p no:unraisableexception\npythonpath = .\n")
    figures = {name: {"kernel": case.kernel, "probe": case.probe} for name, case in ALL.items()}
    hundreds = {name: {"kernel": (100.0,), "probe": (100.0,)} for name in figures}
    (repo / "test_all.py").write_text(text_of_tests(there=True))
    (repo / "kern.py").write_text(kernels("there", hundreds))
    committed(repo)
    (repo / "test_all.py").write_text(text_of_tests(there=False))
    (repo / "kern.py").write_text(kernels("here", figures))
    tests = dict.fromkeys("together" if name in PASS_TOGETHER else name for name in names)
    given = ("--bandwidth-against=HEAD", *more, *(f"test_all.py::test_{test}" for test in tests))
    code, rows = rows_of_run(repo, site, *given, MEMORY_BYTES=str(memory_bytes))
    assert code == any(word == "FAILED" for word, _ in rows.values())
    return rows


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_at_its_boundary(plainly, name):
    word, row = plainly[name]
    status = CASES[name].status
    assert (row["status"], row["reason_code"]) == (status, CASES[name].rule), row["reason"]
    assert word == ("FAILED" if status in FAILS else "PASSED")


@pytest.mark.parametrize("name", STRICTLY)
def test_strict_fails_what_could_not_be_judged(strictly, name):
    word, row = strictly[name]
    status = CASES[name].status
    assert (row["status"], row["reason_code"]) == (status, CASES[name].rule), row["reason"]
    assert word == ("FAILED" if status in FAILS_STRICTLY else "PASSED")


def test_processes_that_follow_each_other_are_compared_where_even(one_after_the_other):
    word, row = one_after_the_other["one_by_one"]
    assert (word, row["status"], row["reason_code"]) == ("FAILED", "REGRESSED", "pairs"), row["reason"]
    assert {name: row["verdict"]["facts"][name] for name in ("alternate", "uneven")} == {
        "alternate": False,
        "uneven": 1,
    }
    # Each process has addresses of its own, so four pairs that agree do not suffice.
    assert row["verdict"]["runs"] == 8
