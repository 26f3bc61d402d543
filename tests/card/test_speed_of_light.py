"""`min_sol` on the card: the least time is by the bytes that the traffic device, or a conftest.py, counts."""

from pathlib import Path
from typing import Any

import pytest
from card_processes import Card

N = 1 << 14
# It reads two arrays, of which only one is declared: three bytes for two.
TESTS = f"""
import os
import numpy as np
import pytest

ADD = '''extern "C" __global__ void add(const float* a, const float* b, float* c) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i] + b[i];
}}'''

def add(bandwidth):
    a, b, c = bandwidth.random({N}), bandwidth.random({N}), bandwidth.empty({N})
    args, unset = (a, b, c), lambda: c.fill(0)
    bandwidth.launch(bandwidth.kernel(ADD), {N} // 256, 256, args, reads=a, writes=c, setup=unset)
    bandwidth.xp.testing.assert_array_equal(c, a + b)

@pytest.mark.bandwidth(min_sol=os.environ["FLOOR"])
def test_floor(bandwidth):
    add(bandwidth)

def test_none(bandwidth):
    add(bandwidth)
"""
CONFTEST = f"""
def pytest_bandwidth_distinct_bytes(ptx, launch, host_args):
    assert "add" in ptx and [array.nbytes for array in host_args()] == [{4 * N}] * 3
    return {{"read": {N}, "written": {N}}}
"""
PEAK_GBPS = 10.0


def judged(card: Card, folder: Path, floor: float) -> Any:
    """Return the two rows, by the test's name."""
    (folder / "base.yaml").unlink(missing_ok=True)
    args = ("-obandwidth_peak=10 GB/s", "-obandwidth_confirm=1", "-obandwidth_settle=never", "--bandwidth-update")
    _, shown, rows = card.judged(folder, *args, env={"FLOOR": str(floor), "CUPY_COMPILE_WITH_PTX": "1"})
    assert rows, shown
    return {row["nodeid"].rpartition("_")[2]: row for row in rows}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_add.py").write_text(TESTS)
    return tmp_path


def test_a_floor_is_of_the_bytes_that_its_kernel_touches_and_others_are_not_executed(card: Card, folder: Path) -> None:
    pytest.importorskip("pytest_bandwidth.features.traffic.ptx", reason="needs the extra traffic")
    rows = judged(card, folder, 1e-6)
    held, plain = rows["floor"], rows["none"]
    assert (held["status"], held["sol_by"]) == ("SAVED", "counted bytes")
    assert held["sol"] == pytest.approx(1.5 * held["gbps"] / PEAK_GBPS)
    assert (plain["sol_by"], plain["sol"]) == ("declared bytes", pytest.approx(plain["gbps"] / PEAK_GBPS))
    # Between the shares by declared and by counted bytes, which new processes confirm without counting.
    rows = judged(card, folder, 0.9 * held["sol"])
    assert rows["floor"]["status"] == "SAVED"
    missed = judged(card, folder, 1.1 * held["sol"])["floor"]
    assert (missed["status"], missed["reason_code"]) == ("REGRESSED", "floor:min_sol")
    assert missed["verdict"]["confirmations"] == [pytest.approx(held["sol"], rel=0.05)]
    assert "of the speed of light is below min_sol" in missed["reason"]


def test_a_conftest_counts_in_its_own_way(card: Card, folder: Path) -> None:
    (folder / "conftest.py").write_text(CONFTEST)
    held = judged(card, folder, 1e-6)["floor"]
    assert (held["status"], held["sol_by"]) == ("SAVED", "counted bytes")
    assert held["sol"] == pytest.approx(held["gbps"] / PEAK_GBPS / 4)


def test_what_is_faster_than_its_bytes_allow_is_a_mismatch(card: Card, folder: Path) -> None:
    (folder / "conftest.py").write_text(CONFTEST.replace(f'"read": {N}', f'"read": {2000 * N}'))
    found = judged(card, folder, 1e-6)["floor"]
    assert (found["status"], found["reason_code"]) == ("MISMATCH", "faster-than-light")
    assert "that its kernel touches need" in found["reason"]
