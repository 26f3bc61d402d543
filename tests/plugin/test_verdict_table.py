"""Each status by default and with `--bandwidth-strict`, up to pytest's exit status; tests/judging has the boundaries.

Sample times are scripted, and the clock with them, so that a figure can lie one part in a million on either side of
its limit. All else is real: pytest processes, new processes, the baseline's file. No old code can run, since the
project is in no repository: test_against_a_revision.py and test_settled_by_commit.py have what old code decides.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from children import SUPPORT

from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.measured.validity import BUSY_PROCESSORS

STEP = 1e-6
TOLERANCE = 0.05
BYTES = 100_000_000
# The table of docs/method.md: what fails whatever is asked, and what only --bandwidth-strict fails.
FAILS = {"REGRESSED", "MISMATCH"}
FAILS_STRICTLY = FAILS | {"UNDECIDED"}
STRICT = ("--bandwidth-strict",)
PEAK_GBPS = 1000.0
CODE = "what identifies the code"
PROBE_GBPS = 100.0
RUNS = 5

# Loaded by each Python process of a run: what it opens is the scripted device.
SITE = f"""
import json, os, sys
from pathlib import Path

import pytest_bandwidth.devices.open as opening
from pytest_bandwidth.domain.device import Conditions
from scripted import ScriptedDevice

CASES = json.loads(Path(__file__).with_name("cases.json").read_text())
ROLES, CHILD = ("here", "fresh"), "pytest_bandwidth.evidence.processes.child_plugin"

def case():
    return CASES[os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split(" ")[0]]

def gbps(which):
    figures = case()[ROLES[CHILD in sys.modules]]
    if figures is None:
        os._exit(9)
    return figures[which == "probe"]

def script(which):
    return lambda n: {BYTES} / gbps(which) / 1e9

class Scripted(ScriptedDevice):
    def conditions(self):
        return Conditions(others_processors=case()["busy"])

def scripted(name):
    return Scripted(script("kernel"), script("probe"), probe_bytes={BYTES})

opening.open_device = scripted
"""


def just(above: bool, limit: float) -> float:
    return limit * (1 + STEP if above else 1 - STEP)


@dataclass(frozen=True)
class Case:
    """One test of the project: GB/s of kernel and probe here and in the new processes.

    dies: its new processes end before they have measured anything. code: whether what it runs is the entry's code.
    busy: how many processors others use. entry: what the entry holds beside the figures of five equal runs.
    """

    status: str
    rule: str
    kernel: float = PROBE_GBPS
    fresh: float | None = None
    probe: float = PROBE_GBPS
    marker: str = ""
    entry: dict[str, object] | None = field(default_factory=dict)
    dies: bool = False
    code: bool = False
    busy: float = 0.0


CASES = {
    "ok": Case("OK", "stored", just(True, 95.0)),
    "regressed": Case("REGRESSED", "stored", just(False, 95.0)),
    "not_reproduced": Case("OK", "not-reproduced", just(False, 95.0), fresh=just(True, 95.0)),
    "not_rerun": Case("UNDECIDED", "not-rerun", 90.0, dies=True),
    "improved": Case("IMPROVED", "stored", just(True, 100 / 0.95)),
    "noise_is_too_wide": Case("UNDECIDED", "too-noisy", marker="tolerance=0.01"),
    "as_slow_as_its_probe": Case("OK", "stored", 50.0, probe=50.0),
    "same_code_however_noisy": Case("OK", "code-unchanged", marker="tolerance=0.0001", code=True),
    "no_entry": Case("UNDECIDED", "no-entry", entry=None),
    "other_bytes": Case("MISMATCH", "bytes", entry={"bytes": f"{{read: {BYTES - 1}}}"}),
    "above_the_peak": Case("MISMATCH", "faster-than-light", just(True, PEAK_GBPS), probe=PEAK_GBPS),
    "in_no_time": Case("MISMATCH", "clock", math.inf),
    "share_past_belief": Case("UNDECIDED", "no-probe", probe=just(False, 50.0)),
    "disturbed_by_others": Case("UNDECIDED", "others", busy=BUSY_PROCESSORS),
    "floor_holds_without_entry": Case("OK", "floors", just(True, 97.0), marker="min_gbps=97.0", entry=None),
    "floor_missed": Case("REGRESSED", "floor:min_gbps", just(False, 97.0), marker="min_gbps=97.0"),
}
# Strict runs change what fails and no verdict: one case of each status that takes no new process.
STRICTLY = ("improved", "other_bytes", "noise_is_too_wide", "no_entry", "disturbed_by_others")


def project(folder: Path) -> None:
    times = {
        f"test_{name}": {
            "here": [case.kernel, case.probe],
            "fresh": None if case.dies else [case.kernel if case.fresh is None else case.fresh, case.probe],
            "busy": case.busy,
        }
        for name, case in CASES.items()
    }
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    (site / "cases.json").write_text(json.dumps(times))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:unraisableexception\n")
    tests = ["import pytest"]
    entries = []
    for name, case in CASES.items():
        tests.append(
            f"@pytest.mark.bandwidth({case.marker})\n"
            f"def test_{name}(bandwidth):\n    bandwidth(int, reads={BYTES}, code={CODE!r})\n"
        )
        if case.entry is not None:
            code = {"code": f"{{function: {digest('said', CODE)}, launch: {digest()}}}"} if case.code else {}
            fields = {"bytes": f"{{read: {BYTES}}}", **case.entry, **code, "bandwidth": "100 GB/s"}
            fields |= {"judged_on": "relative", "runs": RUNS}
            lines = "".join(f"    {field}: {value}\n" for field, value in fields.items())
            entries.append(f"  test_all.py::test_{name}:\n{lines}")
    (folder / "test_all.py").write_text("\n".join(tests))
    # The peak is in the baseline alone, which new processes do not read.
    device = f"device: {{name: scripted device, memory_gib: 1, kind: cpu, peak: {PEAK_GBPS} GB/s}}\n"
    (folder / "b.yaml").write_text(f"schema: 2\n{device}tests:\n{''.join(entries)}")
    runs = {f"test_all.py::test_{name}": {"gbps": 100.0, "probe_gbps": 100.0, "relative": 1.0} for name in CASES}
    line = {"schema": 2, "at": "2026-11-21T00:00:00Z", "tests": runs}
    ids = [f"18ebe921fd8f11ef-a3ec2f.{number}" for number in range(RUNS)]
    (folder / "b.runs.jsonl").write_text("".join(json.dumps({**line, "id": name}) + "\n" for name in ids))


def judged(folder: Path, *args: str) -> tuple[int, dict[str, tuple[str, dict[str, Any]]]]:
    """Return pytest's exit status, and what became of each test of the project, in one run."""
    project(folder)
    command = [sys.executable, "-m", "pytest", "-p", "bandwidth", "-rA", "--bandwidth-device=cpu"]
    command += ["--bandwidth-max-time=0.05", f"--bandwidth-tolerance={TOLERANCE}", "--bandwidth-json=run.json", *args]
    # Dozens of processes a run: none loads plugins that take no part.
    # With a lock of their own for the scripted device, so that other tests may measure theirs meanwhile.
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder / 'site'}{os.pathsep}{SUPPORT}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TMPDIR": str(folder),
    }
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (folder / "run.json").is_file(), done.stdout + done.stderr
    words = {name: word for word, name in re.findall(r"^(PASSED|FAILED) test_all.py::test_(\w+)", done.stdout, re.M)}
    found = {}
    for row in json.loads((folder / "run.json").read_text())["results"]:
        test = row["nodeid"].rpartition("::test_")[2]
        found[test] = words[test], row
    assert done.returncode == any(word == "FAILED" for word, _ in found.values())
    return done.returncode, found


def nodes(*names: str) -> list[str]:
    return [f"test_all.py::test_{name}" for name in names]


@pytest.fixture(scope="module")
def plainly(tmp_path_factory):
    return judged(tmp_path_factory.mktemp("plain"), "--bandwidth-baseline=b.yaml")[1]


@pytest.mark.parametrize("name", CASES)
def test_the_verdict(plainly, name):
    (word, row), case = plainly[name], CASES[name]
    assert (row["status"], row["reason_code"]) == (case.status, case.rule), [row["reason"], row["verdict"]]
    assert word == ("FAILED" if case.status in FAILS else "PASSED")


def test_strict_fails_what_could_not_be_judged(tmp_path):
    code, rows = judged(tmp_path, "--bandwidth-baseline=b.yaml", *STRICT, *nodes(*STRICTLY))
    assert {name: row["status"] for name, (_, row) in rows.items()} == {name: CASES[name].status for name in STRICTLY}
    failed = {name for name, (word, _) in rows.items() if word == "FAILED"}
    assert failed == {name for name in STRICTLY if CASES[name].status in FAILS_STRICTLY}
    assert code == 1


def test_what_a_run_saves_passes(tmp_path):
    given = ("--bandwidth-baseline=new.yaml", "--bandwidth-update", "--bandwidth-runs=1", *STRICT)
    code, rows = judged(tmp_path, *given, *nodes("ok", "regressed"))
    assert {(row["status"], word) for word, row in rows.values()} == {("SAVED", "PASSED")}
    assert code == 0


def test_without_a_baseline_nothing_is_decided(tmp_path):
    code, rows = judged(tmp_path, *STRICT, *nodes("ok"))
    assert [(row["status"], row["reason_code"]) for _, row in rows.values()] == [("UNDECIDED", "no-baseline")]
    assert code == 1
