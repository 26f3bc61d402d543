"""A baseline's life on the card: written, judged by, and what each trouble of a card makes of it; by runs of pytest."""

import re
from pathlib import Path
from typing import Any

import pytest
from card_processes import Card

from pytest_bandwidth import baseline as baseline_files

TRIAD = """
import numpy as np
import pytest

@pytest.mark.bandwidth(tolerance="3%")
def test_triad(bandwidth):
    n = 1 << 16
    b, c = bandwidth.random(n, "float32"), bandwidth.random(n, "float32")
    a = bandwidth.empty(n, "float32")
    triad = bandwidth.kernel("stream.cu", "triad_f32")
    bandwidth.launch(triad, 320, 256, (a, b, c, np.float32(3), np.int64(n)), reads=(b, c), writes=a, flop=2 * n)
    bandwidth.xp.testing.assert_allclose(a, b + 3 * c, rtol=1e-6)
"""
# A memory of 5 GB/s, with which little data takes a time, and a cache so small that it needs no flush.
SMALL = {"BUS_BITS": 4, "L2_BYTES": 1 << 16}


def run(card: Card, folder: Path, *args: str, **settings: object) -> tuple[int, str, Any]:
    """Run pytest on the card; returns its exit status, what it printed, and its one result (None without any)."""
    ours = ("--bandwidth-baseline=base.yaml", "--bandwidth-max-time=0.1")
    status, shown, rows = card.tested(folder, *ours, *args, **{**SMALL, **settings})
    return status, shown, rows[0] if rows else None


@pytest.fixture(scope="module")
def folder(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a test, and the baseline that two runs on a healthy card wrote."""
    made = tmp_path_factory.mktemp("user")
    (made / "test_triad.py").write_text(TRIAD)
    status, shown, row = run(shared_card, made, "--bandwidth-update", "--bandwidth-runs=2")
    assert (status, row["status"]) == (0, "SAVED"), shown
    return made


def test_runs_record_what_the_card_tells(folder: Path) -> None:
    (entry,) = baseline_files.load(folder / "base.yaml").entries.values()
    recorded = entry.runs[-1].extra
    assert (recorded["power_limit_w"], recorded["driver_version"]) == ("300.0", "595.45.04")
    assert {"cuda_driver", "cuda_runtime", "nvrtc", "numpy", "cupy", "python"} <= recorded.keys()


def test_the_same_code_that_became_slower_passes_on_another_of_the_same_cards_and_says_so(
    card: Card, folder: Path
) -> None:
    other = ("--bandwidth-strict", "--bandwidth-device=cuda:1")
    status, shown, row = run(card, folder, *other, DEVICES=2, SLOW_KERNELS="triad_f32=1.1")
    assert (status, row["status"], row["reason_code"]) == (0, "OK", "code-unchanged"), shown
    said = r"code, launch and inputs are as in the baseline; \d\.\d % slower than its figures: "
    assert re.match(said, row["reason"])


def test_a_card_that_is_set_otherwise_is_not_compared(card: Card, folder: Path) -> None:
    status, shown, row = run(card, folder, ECC_MODE=0)
    assert (status, row["status"], row["reason_code"]) == (1, "MISMATCH", "setting:ecc"), shown


def test_another_cards_file_is_not_written(card: Card, folder: Path) -> None:
    status, shown, _ = run(card, folder, "--bandwidth-update", MIG="1g.5gb")
    assert status == 4
    assert "found a baseline of 'Emulated GPU' (16 GiB, cuda), expected one of this run's device, " in shown
    assert "'Emulated GPU MIG 1g.5gb'" in shown


def test_an_ailing_card_is_told_and_its_figures_count_for_nothing(card: Card, folder: Path) -> None:
    """It is throttled, its memory has errors, and another process works on it."""
    _, shown, row = run(card, folder, EVENT_REASONS=0x40, CLOCK_PACE=0.6, ECC=1, OTHERS="4711=80")
    assert "the SM clock was 900 MHz over the samples" in shown
    assert "the driver reports hardware thermal slowdown" in shown
    assert "uncorrectable ECC error(s) while measuring" in shown
    assert (row["status"], row["reason_code"], row["is_valid"]) == ("OK", "code-unchanged", False), shown
    assert "its figures do not count: other processes were active on the GPU: other (pid 4711, 80 %)" in row["reason"]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"CUDA_VERSION": 12090}, "the NVIDIA driver is too old: it supports CUDA 12.9, CuPy needs 13.2"),
        ({"DEVICES": 0, "NVML": "absent"}, "the driver shows no GPU"),
    ],
)
def test_no_usable_card_is_one_line(card: Card, folder: Path, settings: dict[str, object], line: str) -> None:
    status, shown, _ = run(card, folder, **settings)
    assert status == 4
    assert f"ERROR: {line}" in shown
    assert "Traceback" not in shown
