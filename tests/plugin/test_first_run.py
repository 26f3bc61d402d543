"""What a newcomer sees: a test, a header, a table, a document."""

import json
from datetime import datetime

import pytest
from user_project import COPY
from virtual_time import LEAST_SECONDS

# Its start is told in whole seconds: the measurement begins in a later one.
LATER = "import time\nprint(int(time.time()), file=open('later', 'w'))\ntime.sleep(1.1)\n"


@pytest.mark.smoke
def test_a_run_without_a_baseline_shows_and_writes_what_it_measured(slept):
    project = slept  # what it writes of its samples must not depend on how busy the machine is
    project.file("test_copy.py", LATER + COPY)
    result = project.run("--bandwidth-json=deep/er/run.json", "--bandwidth-dir=results")
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines(
        [
            r"bandwidth: .+; peak unknown: shares are of the probe's GB/s; baseline: none \(measuring only\)",
            r"=+ memory bandwidth =+",
            r"test +GB/s +share( +bound by)? +verdict",
            r"test_copy\.py::test_copy +\d.* UNDECIDED",
            r"1 measured: 1 UNDECIDED",
            r"wrote deep/er/run\.json",
        ]
    )
    assert not any(sign in result.stdout.str() for sign in ("\x1b[", "\r")), "nobody looks at a terminal"
    document = json.loads((project.path / "deep/er/run.json").read_text())
    assert set(document) >= {"schema", "run_id", "environment", "device", "settings", "results"}
    assert (document["schema"], document["device"]["kind"]) == (1, "cpu")
    started = datetime.fromisoformat(document["environment"]["started_at"].replace("Z", "+00:00"))
    assert started.timestamp() <= int((project.path / "later").read_text())
    (row,) = document["results"]
    assert (row["nodeid"], row["status"]) == ("test_copy.py::test_copy", "UNDECIDED")
    assert (row["bytes_read"], row["bytes_written"]) == (1 << 18, 1 << 18)
    assert len(row["samples"]) == len(row["probe_samples"]) >= 3
    assert set(row["samples"]) == {LEAST_SECONDS}
    assert row["gbps"] == pytest.approx(row["bytes_read"] * 2 / LEAST_SECONDS / 1e9)
    assert row["stop"] in ("precision", "max-time")
    (folder,) = (project.path / "results").iterdir()
    assert folder.name == document["run_id"]
    files = sorted(file.name for file in folder.iterdir())
    assert files == ["bandwidth_report.csv", "bandwidth_report.html", "bandwidth_report.json"]
    assert json.loads((folder / files[-1]).read_text(encoding="utf-8")) == document


TESTS = """
import numpy as np

def test_labels(bandwidth):
    a, b = bandwidth.random(1 << 14), bandwidth.empty(1 << 14)
    bandwidth(np.copyto, b, a, reads=a, writes=b, label="there")
    bandwidth(np.copyto, a, b, reads=b, writes=a, label="back")

def test_value(bandwidth):
    a = bandwidth.xp.ones(1 << 12)
    total = bandwidth(np.sum, a, reads=a)
    assert total.value == 1 << 12
    assert total.gbps > 0 and total.seconds > 0
    assert total.utilization is None or total.utilization > 0  # a busy host shows no share that can be believed
    assert total.arithmetic_intensity == 0

def test_setup_runs_before_each(bandwidth):
    a = bandwidth.empty(1 << 12)
    def zero():
        a[:] = 0
    def add():
        a[:] += 1
    bandwidth(add, reads=a, writes=a, setup=zero, flop=1 << 12)
    assert (a == 1).all()

def test_shipped_kernel(bandwidth):
    n = 100_001
    b, c = bandwidth.random(n, "float32"), bandwidth.random(n, "float32")
    a = bandwidth.xp.empty_like(b)
    triad = bandwidth.kernel("stream.cu", "triad_f32")
    result = bandwidth.launch(triad, 64, 256, (a, b, c, np.float32(3), np.int64(n)), reads=(b, c), writes=a, flop=2 * n)
    np.testing.assert_allclose(a, b + np.float32(3) * c, rtol=1e-6)
    assert result.bytes_moved == 12 * n
    assert result.arithmetic_intensity == 2 / 12
"""


@pytest.mark.smoke
def test_labels_values_setup_and_a_shipped_kernel_on_the_host(project):
    project.file("test_all.py", TESTS)
    result = project.run_here("--bandwidth-json=run.json")
    result.assert_outcomes(passed=4)
    rows = project.told()["results"]
    assert [row["key"].partition("::test_")[2] for row in rows] == [
        "labels @ back",
        "labels @ there",
        "setup_runs_before_each",
        "shipped_kernel",
        "value",
    ]
