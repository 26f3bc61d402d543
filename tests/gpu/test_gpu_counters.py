"""What DRAM moved, by the installed profiler's counters: a copy and a write move what they declare."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.devices.cuda.device import CudaDevice
from pytest_bandwidth.features.counters.dram_traffic import CountersFailed
from pytest_bandwidth.features.counters.profilers import profiler_of

# Of arrays so many times as large as the cache, what it keeps is little.
CACHES = 16
USERS = """
import pytest

MIB = int(__import__("os").environ["MIB"])

def test_copy(bandwidth):
    xp, x = bandwidth.xp, bandwidth.random(MIB << 18, "float32")
    y = bandwidth.empty(MIB << 18, "float32")
    one = xp.ElementwiseKernel("T x", "T y", "y = x", "plain_copy")
    bandwidth(lambda: one(x, y), reads=x, writes=y)

def test_write(bandwidth):
    xp, y = bandwidth.xp, bandwidth.empty(MIB << 18, "float32")
    one = xp.ElementwiseKernel("", "T y", "y = 1", "plain_write")
    bandwidth(lambda: one(y), writes=y)
"""


# Of which DRAM moves more than half, so that it regresses.
REGRESSES = """
@pytest.mark.bandwidth(max_dram_ratio=0.5)
def test_regresses(bandwidth):
    test_copy(bandwidth)
"""


def run_users(device: CudaDevice, folder: Path, *more: str) -> tuple[int, str, list[dict[str, Any]]]:
    """Run a user's tests with counters; return status, what was printed, and the rows. Skips where none count."""
    try:
        profiler_of("auto", device.identity)
    except CountersFailed as reason:
        pytest.skip(str(reason))
    mib = max(1, CACHES * int(device.identity.facts["last_cache_bytes"] or 0) >> 20)
    (folder / "test_users.py").write_text(USERS + REGRESSES)
    args = ("--bandwidth-device=cuda", "--bandwidth-counters=auto", "--bandwidth-json=o.json", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *args, *more],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "MIB": str(mib)},
        check=False,
    )
    shown = done.stdout + done.stderr
    assert (folder / "o.json").is_file(), shown
    rows = json.loads((folder / "o.json").read_text())["results"]
    told = [finding["text"] for row in rows for finding in row["findings"] if finding["code"] == "dram-uncounted"]
    if told:
        pytest.skip(told[0])
    return done.returncode, shown, rows


def test_the_card_moves_what_is_declared(
    device: CudaDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, shown, rows = run_users(device, tmp_path, "-k", "not regresses")
    assert status == 0, shown
    with capsys.disabled():
        for row in rows:
            name = re.sub(r".*::", "", row["nodeid"])
            dram = row["detail"]["dram"]
            print(
                f"\n{name}: DRAM read {dram['bytes_read']}, wrote {dram['bytes_written']}: {dram['ratio']:.3f}×, "
                f"{dram['kernel_count']} kernel(s)"
            )
    assert [row["detail"]["dram"]["kernel_count"] for row in rows] == [1, 1]
    assert [finding for row in rows for finding in row["findings"] if finding["code"] == "dram-differs"] == []


def test_what_moves_too_much_regresses_and_is_profiled(
    device: CudaDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, shown, (row,) = run_users(device, tmp_path, "-k", "regresses", "--bandwidth-profile=profiles")
    assert (status, row["status"], row["reason_code"]) == (1, "REGRESSED", "max_dram_ratio"), shown
    if device.identity.facts.get("gfx"):
        return  # reports are ncu's
    assert row["profile"] is not None, row["findings"]
    report = tmp_path / row["profile"]
    with capsys.disabled():
        print(f"\n{row['message']}\n{report.name}: {report.stat().st_size} bytes")
    assert report.stat().st_size > 0
