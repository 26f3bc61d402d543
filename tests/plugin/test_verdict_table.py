"""Every status of the verdict table at its exact boundary, and each status once with `--bandwidth-strict`.

Sample times are scripted, and the clock with them, so that a figure can stand one part in a million on either side of
its limit; all else is real: pytest processes, fresh processes, the probe alone, the baseline's file.
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

import pytest
from children import SUPPORT

from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.statistics import t_quantile

STEP = 1e-6
TOLERANCE = 0.05
BYTES = 100_000_000
PEAK_GBPS = 1000.0
CODE = "what identifies the code"
PROBE_GBPS = 100.0
RUNS = 5

# Five equal runs: only the prior's spread is left, 3 % for a host's GB/s, and of shares 1 %, which entries as equal in
# the same file lower to half (docs/method.md).
DEGREES = RUNS + 5 - 1


def bound(prior: float, level: float, processes: int) -> float:
    """Drop that noise explains, as a fraction."""
    spread = prior * math.sqrt(5 / DEGREES)
    return -math.expm1(-t_quantile(level, DEGREES) * spread * math.sqrt(1 / processes + 1 / RUNS))


GATE = bound(0.005, 0.999, 3)
DEVICE_NOISE = bound(0.03, 0.99, 1)
# The fastest probe that noise explains: past it the device is up, as certainly as a test is REGRESSED.
FASTEST_ALIKE = PROBE_GBPS / (1 - bound(0.03, 0.999, 1))

# Loaded by each Python process of a run, the probe alone included: what it opens is the scripted device.
SITE = f"""
import json, os, sys
from pathlib import Path

import pytest_bandwidth.devices.open as opening
from scripted import ScriptedDevice

CASES = json.loads(Path(__file__).with_name("cases.json").read_text())
ROLES, CHILD = ("here", "fresh"), "pytest_bandwidth.session.fresh.child_plugin"

def gbps(which):
    if "pytest_bandwidth.session.fresh.probe" in sys.orig_argv:
        return next(c["alone"] for c in CASES.values() if str(c["bytes"]) == sys.orig_argv[-2])
    name = os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split(" ")[0]
    figures = CASES[name][ROLES[CHILD in sys.modules]]
    if figures is None:
        os._exit(9)
    return figures[which == "probe"]

def script(which):
    return lambda n: {BYTES} / gbps(which) / 1e9

def scripted(name):
    return ScriptedDevice(script("kernel"), script("probe"), probe_bytes={BYTES})

opening.open_device = scripted
"""


@dataclass(frozen=True)
class Case:
    """One test of the project: GB/s of kernel and probe here and in the fresh processes, and of the probe alone.

    dies: its fresh processes end before they have measured anything. code: whether what it runs is the entry's code.
    """

    status: str
    kernel: float = PROBE_GBPS
    fresh: float | None = None
    probe: float = PROBE_GBPS
    alone: float = PROBE_GBPS
    marker: str = ""
    entry: dict[str, object] | None = field(default_factory=dict)
    moved: int = BYTES
    dies: bool = False
    code: bool = False


@dataclass(frozen=True)
class Seen:
    """What became of one test: its status, what pytest says, and the whole verdict for the message."""

    status: str
    outcome: str
    verdict: str


def just(above: bool, limit: float) -> float:
    return limit * (1 + STEP if above else 1 - STEP)


CASES = {
    "within": Case("WITHIN", just(True, 95.0)),
    "regressed": Case("REGRESSED", just(False, 95.0)),
    "confirmed_just": Case("REGRESSED", 80.0, fresh=just(False, 95.0)),
    "unconfirmed": Case("UNCONFIRMED", just(False, 95.0), fresh=just(True, 95.0)),
    "nothing_confirms": Case("UNCONFIRMED", 50.0, dies=True),
    "nothing_to_confirm": Case("WITHIN", just(True, 95.0), dies=True),
    "not_yet_improved": Case("WITHIN", just(False, 100 / 0.95)),
    "improved": Case("IMPROVED", just(True, 100 / 0.95)),
    "noise_fits": Case("WITHIN", marker=f"tolerance={just(True, GATE)!r}"),
    "insufficient": Case("INSUFFICIENT", marker=f"tolerance={just(False, GATE)!r}"),
    "device_down": Case("DEVICE", 50.0, probe=50.0, alone=just(False, 100 * (1 - DEVICE_NOISE)), moved=BYTES + 1),
    "device_well": Case("WITHIN", 50.0, probe=50.0, alone=just(True, 100 * (1 - DEVICE_NOISE)), moved=BYTES + 2),
    "device_up": Case("DEVICE", 100.0, probe=just(True, FASTEST_ALIKE)),
    "device_as_it_was": Case("REGRESSED", 100.0, probe=just(False, FASTEST_ALIKE)),
    "device_up_and_as_fast": Case("DEVICE", just(True, 95.0), probe=120.0),
    "device_up_and_slower": Case("REGRESSED", just(False, 95.0), probe=120.0),
    "same_code": Case("UNCHANGED", just(True, 95.0), code=True),
    "same_code_however_noisy": Case("UNCHANGED", marker=f"tolerance={just(False, GATE)!r}", code=True),
    "same_code_dropped": Case("DEVICE", just(False, 95.0), code=True),
    "same_code_dropped_once": Case("UNCHANGED", just(False, 95.0), fresh=just(True, 95.0), code=True),
    "same_code_below_its_floor": Case("REGRESSED", just(False, 97.0), marker="min_gbps=97.0", code=True),
    "no_baseline": Case("NO_BASELINE", entry=None),
    "not_comparable": Case("NOT_COMPARABLE", entry={"bytes_read": BYTES - 1}),
    "at_the_peak": Case("WITHIN", PEAK_GBPS, probe=PEAK_GBPS, marker="judged_on='relative'"),
    "above_the_peak": Case("INVALID", just(True, PEAK_GBPS), probe=just(True, PEAK_GBPS)),
    "floor_holds": Case("WITHIN", just(True, 97.0), marker="min_gbps=97.0"),
    "floor_missed": Case("REGRESSED", just(False, 97.0), marker="min_gbps=97.0"),
    "floor_missed_once": Case("UNCONFIRMED", just(False, 97.0), fresh=just(True, 97.0), marker="min_gbps=97.0"),
    "share_missed": Case("REGRESSED", just(False, 97.0), marker="min_relative=0.97"),
    "peak_share_missed": Case("REGRESSED", just(False, 97.0), marker="min_utilization=0.097"),
}
# The table of docs/method.md: what fails whatever is asked, and what only --bandwidth-strict fails.
FAILS = {"REGRESSED", "NOT_COMPARABLE"}
FAILS_STRICTLY = FAILS | {"UNCONFIRMED", "INSUFFICIENT", "DEVICE", "NO_BASELINE", "INVALID"}

# Strict runs change what fails and no status: the first case of each status.
ONE_OF_EACH = tuple({case.status: name for name, case in reversed(CASES.items())}.values())


def project(folder: Path) -> None:
    times = {
        f"test_{name}": {
            "here": [case.kernel, case.probe],
            "fresh": None if case.dies else [case.kernel if case.fresh is None else case.fresh, case.probe],
            "alone": case.alone,
            "bytes": case.moved,
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
            f"def test_{name}(bandwidth):\n    bandwidth(int, reads={case.moved}, code={CODE!r})\n"
        )
        if case.entry is not None:
            code = {"code": f"{{function: {digest('said', CODE)}, launch: {digest()}}}"} if case.code else {}
            entries.append(entry(f"test_all.py::test_{name}", {"bytes_read": case.moved, **case.entry, **code}))
    (folder / "test_all.py").write_text("\n".join(tests))
    # The peak stands in the baseline alone, which fresh processes do not read.
    device = f"device: {{name: scripted device, memory_gib: 1, kind: cpu, peak: {PEAK_GBPS} GB/s}}\n"
    (folder / "b.yaml").write_text(f"schema: 1\n{device}entries:\n{''.join(entries)}")


def entry(key: str, fields: dict[str, object]) -> str:
    run = "      - {gbps: 100, probe_gbps: 100, relative: 1, samples: 30, at: 2026-11-21T00:00:00Z}\n"
    lines = "".join(f"    {name}: {value}\n" for name, value in fields.items())
    return f"  {key}:\n    bandwidth: 100 GB/s\n    judged_on: relative\n{lines}    runs:\n{run * RUNS}"


def judged(folder: Path, *args: str) -> dict[str, Seen]:
    """What became of each test of the project in one run."""
    project(folder)
    command = [sys.executable, "-m", "pytest", "-p", "bandwidth", "-rA"]
    command += ["--bandwidth-device=cpu", "--bandwidth-max-time=0.05", f"--bandwidth-tolerance={TOLERANCE}"]
    command += ["--bandwidth-json=run.json", *args]
    # Two dozen processes a run: none loads plugins that take no part.
    # With a lock of their own for the scripted device, so that other tests may measure theirs meanwhile.
    own = {
        "PYTHONPATH": f"{folder / 'site'}{os.pathsep}{SUPPORT}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TMPDIR": str(folder),
    }
    environment = {**os.environ, **own}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (folder / "run.json").is_file(), done.stdout + done.stderr
    rows = json.loads((folder / "run.json").read_text())["results"]
    outcomes = {name: word for word, name in re.findall(r"^(PASSED|FAILED) test_all.py::test_(\w+)", done.stdout, re.M)}
    return {
        name: Seen(row["status"], outcomes[name], json.dumps(row["verdict"]))
        for row in rows
        for name in [row["nodeid"].rpartition("::test_")[2]]
    }


@pytest.fixture(scope="module")
def plainly(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    return judged(tmp_path_factory.mktemp("plain"), "--bandwidth-baseline=b.yaml")


@pytest.fixture(scope="module")
def strictly(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    tests = (f"test_all.py::test_{name}" for name in ONE_OF_EACH)
    return judged(tmp_path_factory.mktemp("strict"), "--bandwidth-baseline=b.yaml", "--bandwidth-strict", *tests)


@pytest.mark.parametrize("name", CASES)
def test_the_status_at_its_boundary(plainly, name):
    seen, status = plainly[name], CASES[name].status
    assert seen.status == status, seen.verdict
    assert seen.outcome == ("FAILED" if status in FAILS else "PASSED")


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_strict_fails_what_could_not_be_judged(strictly, name):
    seen, status = strictly[name], CASES[name].status
    assert seen.status == status, seen.verdict
    assert seen.outcome == ("FAILED" if status in FAILS_STRICTLY else "PASSED")


@pytest.mark.parametrize("strict", [(), ("--bandwidth-strict",)])
def test_what_a_run_writes_passes(tmp_path, strict):
    seen = judged(tmp_path, "--bandwidth-baseline=new.yaml", "--bandwidth-update", "-k", "regressed", *strict)
    assert {(one.status, one.outcome) for one in seen.values()} == {("UPDATED", "PASSED")}
