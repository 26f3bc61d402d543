"""A stand-in ncu counts, through the real NVTX of CuPy, what kernels on the card move: what is declared, or not."""

from pathlib import Path

import pytest
from card_processes import ALONE, PTX, Card
from test_old_code_on_the_card import AMPERE, AS_FAST, HARMLESS, MORE, judged, source, written
from test_old_code_on_the_card import TESTS as TESTS_OF_COPIES

USERS = """
import numpy as np

def test_copy(bandwidth):
    n = 1 << 17
    x, y = bandwidth.random(n, "float32"), bandwidth.empty(n, "float32")
    copy = bandwidth.kernel("stream.cu", "copy_f32")
    bandwidth.launch(copy, 320, 256, (y, x, np.int64(n)), reads=x, writes=y, label="right")
    bandwidth.launch(copy, 320, 256, (y, x, np.int64(n)), reads=x.nbytes // 2, writes=y, label="wrong")

def test_two_kernels(bandwidth):
    x = bandwidth.random(1 << 17, "float32")
    bandwidth(lambda: (x + 1) * 2, reads=x, writes=x, setup=lambda: x.fill(1))
"""
SMALL = """
def test_small(bandwidth):
    x, y = bandwidth.random(1 << 14, "float32"), bandwidth.empty(1 << 14, "float32")
    bandwidth(lambda: bandwidth.xp.copyto(y, x), reads=x, writes=y)
"""


def test_what_kernels_move_is_counted_inside_of_the_range_alone(
    card: Card, tmp_path: Path, ncu: dict[str, str]
) -> None:
    (tmp_path / "test_users.py").write_text(USERS)
    # A cache so small that what it holds at the end shows in no count.
    status, shown, rows = card.tested(tmp_path, "--bandwidth-counters=ncu", env=ncu, L2_BYTES=1 << 14)
    assert status == 0, shown
    right, wrong, two = rows
    size = 1 << 19
    for row in (right, wrong):
        assert row["detail"]["dram"]["bytes_read"] == size
        assert row["detail"]["dram"]["bytes_written"] == pytest.approx(size, abs=1 << 14)
        assert [kernel["name"] for kernel in row["detail"]["dram"]["kernels"]] == ["copy_f32"]
    assert right["findings"] == []
    assert [finding["code"] for finding in wrong["findings"]] == ["dram-differs"]
    assert "262 kB more read" in wrong["findings"][0]["text"]
    assert (two["detail"]["dram"]["kernel_count"], two["detail"]["dram"]["bytes_read"]) == (2, 2 * size)


@pytest.mark.slow
def test_by_another_cards_baseline_the_old_kernel_is_counted_here(
    card: Card, tmp_path: Path, ncu: dict[str, str]
) -> None:
    """A changed kernel reads more, and its time stays within the tolerance; that baseline holds no counts."""
    two = ("-k", "1 or 2")
    folder = written(card, tmp_path, *two, tests=TESTS_OF_COPIES.replace("3%", "60%"), **AMPERE)
    (folder / "copies.cu").write_text(source({1: HARMLESS, 2: MORE}))
    expected = {1: AS_FAST, 2: ("REGRESSED", "dram")}
    counted = ("--bandwidth-counters=ncu", *two)
    rows, _ = judged(card, folder, expected, *counted, env={**PTX, **ncu}, L2_BYTES=1 << 14)
    reason, message = rows[2]["reason"], rows[2]["message"]
    assert "DRAM read 65.5 kB → 73.7 kB (+12.5 %, allowed 66.8 kB); the old kernel was counted here" in reason
    assert "likely cause  the kernel's code changed; in its code, loads of 32 bits 5 → 10, stores" in message
    assert rows[1]["detail"]["dram"]["bytes_read"] == 4 << 14


def test_lines_that_an_access_policy_keeps_are_reset_before_every_flush(card: Card, tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(SMALL)
    args = ("-s", "--bandwidth-device=cuda", "--bandwidth-max-time=0.01")
    done = card.run(["-m", "pytest", *args], {"L2_BYTES": 1 << 16, "LOG": 1}, cwd=tmp_path, env=ALONE)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line for line in done.stderr.splitlines() if " fill_cache " in line or "persisting lines" in line]
    # A launch of nothing shows how long one takes at least.
    flushes = [at for at, line in enumerate(told) if " fill_cache " in line and "DRAM 0 + 0" not in line]
    assert len(flushes) > 10
    # But the first, which only loads the kernel.
    assert all("persisting lines" in told[at - 1] for at in flushes[1:])
