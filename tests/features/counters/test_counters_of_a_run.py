"""--bandwidth-counters from end to end: a stand-in for ncu counts what a scripted GPU moves, or fails as ncu does."""

import csv
import json
import os
import re
import signal
import sys
from pathlib import Path
from unittest.mock import patch

import counted_device
import pytest
import stand_in_profilers
from children import SUPPORT, gone, wait_for

from pytest_bandwidth import baseline as baseline_files

PERMITS = """
import pathlib
import pytest_bandwidth.features.counters.profilers as profilers

profilers.DRIVER_PARAMETERS = pathlib.Path("none")
"""
ON = ("--bandwidth-device=cuda", "--bandwidth-counters=auto")
KERNEL = """
import os
from pathlib import Path
import numpy as np
import pytest

def noted():
    return len(Path("notes").read_text().splitlines())

@pytest.mark.bandwidth(MARK)
def test_kernel(bandwidth):
    a = bandwidth.random(1 << 18, "float32")
    b = bandwidth.empty(1 << 18, "float32")
    bandwidth(np.copyto, b, a, reads=a, writes=b)
"""
FREE = KERNEL.replace("MARK", "")


def each_with(test=FREE, **variables):
    """Write the test for each value of these variables of the environment."""
    sets = "".join(f"    os.environ[{name!r}] = {values!r}[n]\n" for name, values in variables.items())
    runs = f"@pytest.mark.parametrize('n', range({len(next(iter(variables.values())))}))\ndef test_kernel(n, "
    return test.replace("def test_kernel(", runs).replace("    a = ", f"{sets}    a = ", 1)


TWO = """
import numpy as np

def test_two(bandwidth):
    a = bandwidth.random(1 << 18, "float32")
    first = bandwidth(np.sum, a, reads=a, label="sum")
    bandwidth.compare({"max": lambda: a.max(), "min": lambda: a.min()}, reads=a)
    assert first.gbps > 0  # nothing is timed in the process that is counted
    bandwidth(np.sum, a, reads=a, label="after")
"""


@pytest.fixture
def gpu(project, monkeypatch, tmp_path_factory):
    """A project on a scripted GPU, with the stand-in ncu on PATH; what this machine's driver permits is no part."""
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(counted_device.SITE + PERMITS)
    found = (str(site), str(SUPPORT), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
    stand_in_profilers.install(site / "bin", "ncu", "rocprofv3")
    monkeypatch.setenv("PATH", f"{site / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_NOTES", str(project.path / "notes"))
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("locks")))
    monkeypatch.setattr("pytest_bandwidth.measuring.measurer.open_device", counted_device.open_device)
    monkeypatch.setattr("pytest_bandwidth.features.counters.profilers.DRIVER_PARAMETERS", Path("none"))
    project.file("test_kernel.py", FREE)
    project.inside = True  # those under ncu are processes all the same
    with patch.dict(os.environ):  # which tests of the project change
        yield project


def rows_of(project, *args):
    result = project.run("--bandwidth-json=run.json", *ON, *args)
    return result, project.told()["results"]


def row_of(project, *args):
    result, (row,) = rows_of(project, *args)
    return result, row


def bytes_read(row):
    """What DRAM read, by hardware counters; None where it was not counted."""
    return row["detail"].get("dram", {}).get("bytes_read")


@pytest.mark.smoke
def test_what_dram_moved_stands_in_every_output(gpu):
    result, row = row_of(gpu, "-v", "--bandwidth-csv=run.csv", "--bandwidth-html=run.html")
    result.assert_outcomes(passed=1)
    dram = row["detail"]["dram"]
    assert (dram["bytes_read"], dram["bytes_written"], dram["ratio"]) == (2**20, 2**20, 1.0)
    assert dram["gbps"] == pytest.approx(row["gbps"])
    assert dram["counted_by"] == "ncu"
    assert dram["l2_sectors_read"] == 2**15
    assert not row["findings"]
    result.stdout.fnmatch_lines(["DRAM *read 1.05 MB, wrote 1.05 MB: 1.00× of the declared, * GB/s, L2 sectors*"])
    (figures,) = csv.DictReader((gpu.path / "run.csv").read_text().splitlines())
    assert [figures[name] for name in ("dram_read", "dram_written", "dram_ratio")] == ["1048576", "1048576", "1"]
    assert [figures[f"l2_sectors_{way}"] for way in ("read", "written")] == ["32768", "32768"]
    assert float(figures["dram_gb_s"]) == pytest.approx(dram["gbps"])
    assert "2.1 MB (1.00×)" in (gpu.path / "run.html").read_text()
    assert "--nvtx-include pytest-bandwidth/" in (gpu.path / "notes").read_text()


def test_every_measurement_is_counted_up_to_an_assertion_that_fails_there(gpu):
    gpu.file("test_kernel.py", TWO)
    after, *before = gpu.document(*ON)["results"]
    assert {row["label"]: bytes_read(row) for row in before} == dict.fromkeys(("sum", "max", "min"), 2**20)
    assert {row["detail"]["dram"]["kernels"][0]["name"] for row in before} == {"sum", "max", "min"}
    assert (after["label"], bytes_read(after)) == ("after", None)
    said = after["findings"][0]["text"]
    assert said.startswith("DRAM was not counted: the test did not reach this workload under ncu: it skipped, ")
    assert (
        "last line: 'FAILED test_kernel.py::test_two - " in said
        or 'last line: "FAILED test_kernel.py::test_two - ' in said
    )


def moved_by_runs(gpu):
    """Return what DRAM read and wrote in each run of the only entry."""
    (entry,) = baseline_files.load(gpu.path / "b.yaml").entries.values()
    return [(run.dram_read, run.dram_written) for run in entry.runs]


def test_counts_gate_where_time_does_not_move(gpu, monkeypatch):
    update, _ = row_of(gpu, "--bandwidth-baseline=b.yaml", "--bandwidth-update")
    update.assert_outcomes(passed=1)
    assert moved_by_runs(gpu) == [(2**20, 2**20)]
    monkeypatch.setenv("DRAM_READ", "1.2")
    risen, row = row_of(gpu, "--bandwidth-baseline=b.yaml")
    risen.assert_outcomes(failed=1)
    assert (row["status"], row["reason_code"]) == ("REGRESSED", "dram")
    title, *lines = row["message"].splitlines()
    assert title == "REGRESSED: DRAM read 1.05 MB → 1.26 MB (+20.0 %, allowed 1.07 MB)"
    options = "--bandwidth-device=cuda --bandwidth-baseline=b.yaml --bandwidth-update"
    accepted = [line.replace("python -m ", "").strip() for line in lines]  # as the tests were started
    assert f"accept it  pytest test_kernel.py::test_kernel {options}" in accepted


@pytest.mark.parametrize("counted", [3, 1])
def test_every_run_of_an_update_is_counted_and_one_that_is_not_is_named(gpu, counted):
    """Each count finds more than the one before, or nothing."""
    more = f"    os.environ['DRAM_READ'] = str((1 + noted() / 64) * (noted() <= {counted}))\n"
    more += f"    os.environ['DRAM_WRITTEN'] = str(int(noted() <= {counted}))\n    a = "
    gpu.file("test_kernel.py", FREE.replace("    a = ", more, 1))
    (gpu.path / "notes").touch()
    update, _ = row_of(gpu, "--bandwidth-baseline=b.yaml", "--bandwidth-update", "--bandwidth-runs=3")
    update.assert_outcomes(passed=1)
    said = "was not counted in every run of this update: test_kernel.py::test_kernel 1 of 3; the entry keeps "
    assert (said in update.stdout.str()) == (counted == 1)
    if counted == 3:
        assert moved_by_runs(gpu) == [((64 + run) * 2**14, 2**20) for run in (1, 2, 3)]


def test_the_markers_most(gpu, monkeypatch):
    gpu.file("test_kernel.py", KERNEL.replace("MARK", "max_dram_ratio=1.1, min_gbps='1 MB/s'"))
    monkeypatch.setenv("DRAM_WRITTEN", "1.4")
    result, row = row_of(gpu)
    result.assert_outcomes(failed=1)
    title, *lines = row["message"].splitlines()
    assert title.endswith("1.20× the 2.1 MB that are declared, max_dram_ratio is 1.1")
    remedy = "accept it  raise max_dram_ratio in the test's marker, or declare what is moved"
    assert [line.strip() for line in lines if "accept" in line] == [remedy]
    monkeypatch.setenv("STAND_IN", "not-permitted")
    result, row = row_of(gpu, "--bandwidth-strict")
    result.assert_outcomes(failed=1)
    assert (row["status"], row["reason_code"], row["findings"]) == ("UNDECIDED", "max_dram_ratio-uncounted", [])
    (row,) = gpu.document("--bandwidth-device=cuda")["results"]
    assert (row["status"], row["reason_code"]) == ("OK", "floors")
    (finding,) = row["findings"]
    assert finding["text"] == "max_dram_ratio=1.1 is not checked without counters: run with --bandwidth-counters=auto"


def test_what_fails_is_one_line_and_no_verdict_and_after_two_in_a_row_no_more_is_tried(gpu):
    gpu.file("test_kernel.py", each_with(STAND_IN=("garbage", "held", "")))
    result, rows = rows_of(gpu)
    result.assert_outcomes(passed=3)
    assert [[finding["code"] for finding in row["findings"]] for row in rows] == [["dram-uncounted"]] * 3
    garbage, held, untried = (row["findings"][0]["text"] for row in rows)
    assert "expected the header's 2" in garbage
    assert "\n" not in garbage
    assert held.startswith("DRAM was not counted: ncu counted nothing: another")
    assert untried == (
        "DRAM was not counted: not tried any more: 2 tries in a row failed, the last time: ncu counted nothing: "
        "another profiler uses the counters: end it, or pause DCGM …"
    )
    assert [bytes_read(row) for row in rows] == [None] * 3
    assert len((gpu.path / "notes").read_text().splitlines()) == 2
    result.stdout.fnmatch_lines(["NOTE *DRAM was not counted: *"])


def test_no_kernel_is_no_failure_of_the_profiler_and_other_bytes_than_declared_are_a_finding(gpu):
    gpu.file("test_kernel.py", each_with(DRAM_READ="0012", DRAM_WRITTEN="0011"))
    result, (*without, counted, other) = rows_of(gpu)
    result.assert_outcomes(passed=4)
    assert [len(row["findings"]) for row in without] == [1, 1]
    assert all("ncu saw no kernel in the range" in row["findings"][0]["text"] for row in without)
    assert bytes_read(counted) == 2**20, counted["findings"]
    (finding,) = other["findings"]
    said = "declared 2.1 MB, DRAM moved 3.15 MB (1.50×): 1.05 MB more read; data read again"
    assert finding["code"] == "dram-differs"
    assert finding["text"].startswith(said)
    result.stdout.fnmatch_lines([f"NOTE *{said}*"])


ENDS = """
import os
import numpy as np
import pytest

FIRST = b"emulated card: first 1\\xc3\\x971 1000 ns, DRAM 64 + 0 sectors\\n"

@pytest.mark.bandwidth(min_gbps="900 TB/s")
@pytest.mark.parametrize("end", ["abort", "raise", "returns"])
def test_kernel(bandwidth, end):
    a = bandwidth.random(1 << 18, "float32")
    b = bandwidth.empty(1 << 18, "float32")
    runs = []

    def work():
        np.copyto(b, a)
        runs.append(end)
        if "EMULATED_CARD_LOG" in os.environ and len(runs) == 2 and end != "returns":
            os.write(2, FIRST)
            if end == "abort":
                os.abort()
            raise ValueError("broken")

    bandwidth(work, reads=a, writes=b)
"""


def test_workloads_that_end_after_their_first_kernel_are_not_counted_and_profiled_in_part(gpu):
    gpu.inside = False  # its tests end their process
    gpu.file("test_kernel.py", ENDS)
    *ended, whole = gpu.document(*ON, "--bandwidth-profile=profiles")["results"]
    assert [bytes_read(row) for row in (*ended, whole)] == [None, None, 2**20], "no failure of the profiler"
    assert all(row["profile"] for row in (*ended, whole))
    aborted, raised, returned = ({f["code"]: f["text"] for f in row["findings"]} for row in (*ended, whole))
    said = "DRAM was not counted: the test crashed under ncu, so that kernels may be missing: run"
    assert aborted["dram-uncounted"].startswith(said)
    said = "DRAM was not counted: the workload did not end under ncu, so that kernels"
    assert raised["dram-uncounted"].startswith(said)
    assert "(exit status 1, last line: 'FAILED test_kernel.py::test_kernel[raise] - " in raised["dram-uncounted"]
    lacks = "the profile may lack kernels: the workload did not end under ncu: run its test by hand, in"
    assert [found["unprofiled"].startswith(lacks) for found in (aborted, raised)] == [True, True]
    assert "unprofiled" not in returned


def test_rocprofv3_counts_what_lies_between_two_flushes(gpu, monkeypatch):
    monkeypatch.setenv("VENDOR", "AMD")
    result, row = row_of(gpu, "-v")
    result.assert_outcomes(passed=1)
    dram = row["detail"]["dram"]
    assert (dram["bytes_read"], dram["bytes_written"], dram["counted_by"]) == (2**20, 2**20, "rocprofv3")
    assert [kernel["name"] for kernel in dram["kernels"]] == ["kernel"]
    assert "--pmc FETCH_SIZE WRITE_SIZE --output-format csv" in (gpu.path / "notes").read_text()


def test_a_regression_is_profiled_into_a_folder_and_keeps_its_verdict_whatever_becomes_of_that(gpu, monkeypatch):
    held = KERNEL.replace("MARK", "max_dram_ratio=1.1")
    gpu.file("test_kernel.py", each_with(held, DRAM_READ=("1", "2")))
    result, (fine, row) = rows_of(gpu, "--bandwidth-profile=profiles", "--bandwidth-html=run.html")
    result.assert_outcomes(passed=1, failed=1)
    assert fine["profile"] is None
    (report,) = (gpu.path / "profiles").iterdir()
    assert report.name.startswith("test-kernel-")
    assert report.suffix == ".ncu-rep"
    assert row["profile"] == f"profiles/{report.name}"
    assert re.search(rf"^ +profile +profiles/{re.escape(report.name)}$", row["message"], re.MULTILINE)
    assert f"profiles/{report.name}" in (gpu.path / "run.html").read_text()
    assert "--set full" in (gpu.path / "notes").read_text()
    floor = KERNEL.replace("MARK", 'min_gbps="900 TB/s"')
    gpu.file("test_kernel.py", each_with(floor, DRAM_READ=("1", "2")))
    monkeypatch.setenv("STAND_IN", "not-permitted")
    result = gpu.run("--bandwidth-device=cuda", "--bandwidth-profile=profiles", "--bandwidth-json=run.json")
    result.assert_outcomes(failed=2)
    *_, row = json.loads((gpu.path / "run.json").read_text())["results"]
    assert (row["status"], row["reason_code"], row["profile"]) == ("REGRESSED", "floor:min_gbps", None)
    said = row["findings"][-1]["text"]
    assert said.startswith("no profile: ncu counted nothing: the driver keeps its counters from users: load it with")
    assert list((gpu.path / "profiles").iterdir()) == []


def test_an_asked_for_profiler_that_cannot_count_ends_the_run_at_its_start(gpu, monkeypatch):
    monkeypatch.setenv("STAND_IN", "old")
    result = gpu.run("--bandwidth-device=cuda", "--bandwidth-counters=ncu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --bandwidth-counters: *is of 2020.3, expected 2021.1 or newer: install*"])
    result = gpu.run("--bandwidth-device=cpu", "--bandwidth-counters=ncu")
    result.stderr.fnmatch_lines(["ERROR: --bandwidth-counters: counters are of a GPU's memory, *"])
    result = gpu.run("--bandwidth-device=cpu", "--bandwidth-counters=auto")
    result.assert_outcomes(passed=1)
    result = gpu.run("--bandwidth-counters=nsys")
    known = "auto, ncu, rocprofv3 or off"
    result.stderr.fnmatch_lines([f"ERROR: --bandwidth-counters: found 'nsys', expected {known} (help: *"])


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels tell no process of its parent's death")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_profiler_outlives_the_run(gpu, monkeypatch, how):
    monkeypatch.setenv("STAND_IN", "hang" if how != signal.SIGKILL else "")
    gpu.file(
        "test_kernel.py",
        FREE.replace("    bandwidth(", "    import time\n    bandwidth(").replace("np.copyto, b, a,", "kernel, b, a,")
        + "\ncalls = []\ndef kernel(b, a):\n    import pathlib, sys, time\n"
        "    if 'pytest_bandwidth.evidence.processes.child_plugin' in sys.modules:\n"
        "        pathlib.Path('counted').write_text(str(os.getpid()))\n        time.sleep(600)\n    np.copyto(b, a)\n",
    )
    process = gpu.start(*ON)
    wait_for(gpu.path / ("counted" if how == signal.SIGKILL else "notes"))
    process.send_signal(how)
    assert process.wait(300) != 0
    pids = [int(line.partition(" ")[0]) for line in (gpu.path / "notes").read_text().splitlines()]
    if how == signal.SIGKILL:
        pids.append(int((gpu.path / "counted").read_text()))
    assert all(gone(pid) for pid in pids)
