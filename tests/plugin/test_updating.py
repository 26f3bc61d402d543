"""--bandwidth-update and its relatives."""

import platform

import numpy
import pytest
import virtual_time
from children import HANGS_SECONDS, gone, heeded, wait_for
from user_project import COPY

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.reports.summary import summary_of_run
from pytest_bandwidth.storage.saved_run import read_document


@pytest.mark.smoke
def test_update_writes_a_file_that_the_next_run_is_judged_by(project):
    project.file("test_copy.py", COPY)
    result = project.run("--bandwidth-baseline=b.yaml", "--bandwidth-update")
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines(
        [r".* SAVED", r"baseline .*b\.yaml: 1 new, 0 updated", r"\+ test_copy\.py::test_copy .*"]
    )
    entry = baseline_files.load(project.path / "b.yaml").entries["test_copy.py::test_copy"]
    assert (entry.bytes_read, entry.bytes_written, entry.method) == (1 << 18, 1 << 18, "clock")
    (run,) = entry.runs
    assert {"python": platform.python_version(), "numpy": numpy.__version__}.items() <= run.extra.items()
    assert entry.anchor is not None
    again = project.document("--bandwidth-baseline=b.yaml")
    assert again["results"][0]["baseline"]["runs"]


def test_update_new_leaves_known_entries_alone_and_any_update_what_people_wrote(project):
    project.file("test_copy.py", COPY)
    file = project.path / "b.yaml"
    project.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update")
    before = baseline_files.load(file).entries
    by_hand = "# ours\ntests:\n  hand.py::test_written: {bandwidth: 12 GB/s}\n"
    file.write_text(file.read_text().replace("tests:\n", by_hand))
    project.file("test_new.py", COPY.replace("test_copy", "test_new"))
    project.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update-new", "--bandwidth-tolerance=90%")
    after = baseline_files.load(file).entries
    assert after["test_copy.py::test_copy"].runs == before["test_copy.py::test_copy"].runs
    assert "test_new.py::test_new" in after
    project.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update")
    assert "# ours" in file.read_text()
    assert baseline_files.load(file).entries["hand.py::test_written"].gbps == 12


INVALID_ONCE = """
import sys
from pathlib import Path

import virtual_time

def pytest_configure():
    if "pytest_bandwidth.evidence.processes.child_plugin" in sys.modules and not Path("was_invalid").exists():
        Path("was_invalid").touch()
        virtual_time.LEAST_SECONDS = 0.0  # a sample that took no time
"""


def test_an_invalid_further_run_never_enters(slept):
    slept.file("test_copy.py", COPY)
    slept.file("conftest.py", INVALID_ONCE)
    result = slept.run("--bandwidth-baseline=b.yaml", "--bandwidth-update", "--bandwidth-runs=3")
    result.stdout.fnmatch_lines(["*baseline run 3 of 3*"])
    result.stdout.re_match_lines([r"some runs were discarded .*: test_copy\.py::test_copy kept 2 of 3; run .*"])
    result.assert_outcomes(passed=1)
    assert (slept.path / "was_invalid").exists()
    assert len(baseline_files.load(slept.path / "b.yaml").entries["test_copy.py::test_copy"].runs) == 2


SUSPECT = """
import os
import numpy as np
import pytest
from virtual_time import sleep

@pytest.mark.bandwidth(judged_on="gbps", tolerance="50%")
def test_known(bandwidth):
    a, b = bandwidth.random(1 << 14, "float32"), bandwidth.empty(1 << 14, "float32")
    def kernel():
        np.copyto(b, a)
        sleep(float(os.environ.get("SLOW", "0.002")))
    bandwidth(kernel, reads=a, writes=b)
"""
# One measurement more in the suspect's test: its new processes measure that, too.
LABELLED = '    bandwidth(np.copyto, b, a, reads=a, writes=b, label="new")\n'


def test_fresh_processes_of_a_suspect_never_enter(slept, monkeypatch):
    slept.file("test_known.py", SUSPECT)
    slept.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update")
    known = baseline_files.load(slept.path / "b.yaml").entries
    slept.file("test_known.py", SUSPECT + LABELLED)
    slept.file("test_new.py", COPY.replace("test_copy", "test_new"))
    slept.file("conftest.py", virtual_time.ONLY_HERE)
    monkeypatch.setenv("SLOW", "0.02")
    result = slept.run("--bandwidth-baseline=b.yaml", "--bandwidth-update-new", "--bandwidth-json=run.json")
    result.assert_outcomes(passed=2)
    rows = {row["key"]: row for row in slept.told()["results"]}
    assert rows["test_known.py::test_known"]["verdict"]["confirmations"]
    entries = baseline_files.load(slept.path / "b.yaml").entries
    assert entries["test_known.py::test_known"] == known["test_known.py::test_known"]
    runs = {key: len(entry.runs) for key, entry in entries.items() if key not in known}
    assert runs == {"test_new.py::test_new": 1, "test_known.py::test_known @ new": 1}


NEVER = """
import numpy as np
import pytest

@pytest.fixture
def breaks():
    yield
    raise RuntimeError("late")

def copied(bandwidth):
    a, b = bandwidth.random(1 << 14), bandwidth.empty(1 << 14)
    bandwidth(np.copyto, b, a, reads=a, writes=b)

def test_fails(bandwidth):
    copied(bandwidth)
    assert False

def test_breaks(bandwidth, breaks):
    copied(bandwidth)

@pytest.mark.parametrize("case", [object()], ids=repr)
def test_address(bandwidth, case):
    copied(bandwidth)

def test_fine(bandwidth):
    copied(bandwidth)
"""


def test_what_fails_also_late_and_an_id_with_an_address_never_enter(project):
    """The next run would not meet the entry of the address, and a regression would pass as a test without one."""
    project.file("test_k.py", NEVER)
    ran = project.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update", "--bandwidth-json=run.json")
    ran.assert_outcomes(passed=3, failed=1, errors=1)
    said = "*not saved, because the id contains an object's address (at 0x*test_k.py::test_address[[]<object*"
    ran.stdout.fnmatch_lines([said])
    assert list(baseline_files.load(project.path / "b.yaml").entries) == ["test_k.py::test_fine"]
    document = project.told()
    row = next(row for row in document["results"] if row["nodeid"] == "test_k.py::test_breaks")
    assert (row["status"], row["reason_code"], row["reason"]) == (
        "UNDECIDED",
        "not-written",
        "not saved: the test failed",
    )
    assert (row["verdict"]["status"], row["verdict"]["rule"]) == ("UNDECIDED", "not-written")
    late = [one["text"].split()[0] for one in document["findings"] if one["code"] == "failed-otherwise"]
    assert late == ["test_k.py::test_breaks"], "it failed after it was judged"


def test_runs_are_held_to_what_the_marker_says(slept, monkeypatch):
    slept.file("test_known.py", SUSPECT.replace("50%", "95%"))
    slept.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update")
    monkeypatch.setenv("SLOW", "0.02")
    slept.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update").assert_outcomes(passed=1)
    assert len(baseline_files.load(slept.path / "b.yaml").entries["test_known.py::test_known"].runs) == 2


def test_a_baseline_that_cannot_be_written_is_told_by_its_rows(project):
    project.file("test_copy.py", COPY)
    project.file("taken", "a file, not a folder")
    project.file("test_taken.py", "def test_taken():\n    open('other', 'w').close()\n")
    late = project.run_here("--bandwidth-json=other/run.json")
    late.stdout.fnmatch_lines(["ERROR: other/run.json was not written: File exists; choose another place with *-json"])
    assert late.ret != 0
    result = project.run_here("--bandwidth-baseline=taken/b.yaml", "--bandwidth-update", "--bandwidth-json=run.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["*1 measured: 1 UNDECIDED*", "ERROR: the baseline was not updated: *b.yaml*"])
    document = project.told()
    assert [row["reason_code"] for row in document["results"]] == ["not-written"]
    assert [finding["code"] for finding in document["findings"]] == ["not-updated"]
    summary = summary_of_run(read_document(document))
    assert (summary.sentence, summary.severity) == ("1 measurement, none saved to the baseline", "bad")
    assert [row["reason"] for row in document["results"]] == ["not saved: the update failed"]


def test_what_is_told_after_the_tests_has_lines_of_its_own(project):
    project.file("test_one.py", "def test_one():\n    pass\n")
    project.file(
        "conftest.py",
        "from pytest_bandwidth.measuring.progress import write_line\n\n"
        "def pytest_sessionfinish(session):\n"
        "    for text in ('run 2', 'run 3'):\n"
        "        write_line(session.config, text)\n",
    )
    result = project.run_here("-p", "no:randomly")
    result.stdout.fnmatch_lines(["*[[]100%[]]", "run 2", "run 3"], consecutive=True)


def test_an_interrupt_of_fresh_runs_leaves_the_summary_and_the_baseline_as_it_was(project, monkeypatch):
    number = heeded("SIGTERM")
    (project.path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(project.path / "temporary"))
    project.file("test_copy.py", COPY)
    project.run("--bandwidth-baseline=b.yaml", "--bandwidth-update")
    files = [project.path / name for name in ("b.yaml", "b.runs.jsonl")]
    before = [file.read_bytes() for file in files]
    project.file(
        "conftest.py",
        "import os, sys, time\ndef pytest_sessionstart():\n"
        "    if 'pytest_bandwidth.evidence.processes.child_plugin' in sys.modules:\n"
        "        open('pid', 'w').write(str(os.getpid()))\n        time.sleep(600)\n",
    )
    parent = project.start("--bandwidth-baseline=b.yaml", "--bandwidth-update", "--bandwidth-runs=3")
    wait_for(project.path / "pid")
    parent.send_signal(number)
    said, _ = parent.communicate(timeout=HANGS_SECONDS)
    assert parent.returncode == pytest.ExitCode.INTERRUPTED, said
    assert not list((project.path / "temporary").glob("pytest-bandwidth-????????"))
    assert said.splitlines().count("interrupted: the baseline was not updated") == 1
    assert "Traceback" not in said
    assert "1 measured: 1 UNDECIDED" in said
    assert "1 passed" in said
    assert gone(int((project.path / "pid").read_text()))
    assert [file.read_bytes() for file in files] == before
    assert {path.name for path in project.path.glob("*b.*")} == {"b.yaml", "b.runs.jsonl"}
