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
    n = 1 << 18
    b, c = bandwidth.random(n, "float32"), bandwidth.random(n, "float32")
    a = bandwidth.empty(n, "float32")
    triad = bandwidth.kernel("stream.cu", "triad_f32")
    bandwidth.launch(triad, 320, 256, (a, b, c, np.float32(3), np.int64(n)), reads=(b, c), writes=a, flop=2 * n)
    bandwidth.xp.testing.assert_allclose(a, b + 3 * c, rtol=1e-6)
"""
WILD = """
import pytest

WILD = 'extern "C" __global__ void wild(float* x) { x[1ll << 36] = 1; }'

@pytest.mark.bandwidth
def test_wild(bandwidth):
    x = bandwidth.empty(1024, "float32")
    bandwidth.launch(bandwidth.kernel(WILD, "wild"), 1, 1, (x,), reads=4, writes=4)

@pytest.mark.bandwidth
def test_after(bandwidth):
    x = bandwidth.random(1 << 18, "float32")
    bandwidth(lambda: x + 1, reads=x)
"""
# A memory of 20 GB/s, with which little data takes a time; a cache so small that 3 MB need no flush; and a short
# budget, since each further sample costs a real launch.
SMALL = {"BUS_BITS": 16, "L2_BYTES": 1 << 18}
SHORT = "--bandwidth-max-time=0.1"


def run(card: Card, folder: Path, *args: str, env: Any = None, **settings: object) -> tuple[int, str, Any]:
    """Run pytest on the card; returns its exit status, what it printed, and its one result (None without any)."""
    status, shown, rows = card.tested(folder, SHORT, *args, env=env or {}, **{**SMALL, **settings})
    return status, shown, rows[0] if rows else None


@pytest.fixture(scope="module")
def folder(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a test, and the baseline that three runs on a healthy card wrote."""
    made = tmp_path_factory.mktemp("user")
    (made / "test_triad.py").write_text(TRIAD)
    update = ("--bandwidth-baseline=base.yaml", "--bandwidth-update", "--bandwidth-runs=3")
    status, shown, row = run(shared_card, made, *update)
    assert (status, row["status"]) == (0, "SAVED"), shown
    return made


@pytest.fixture
def judged(card: Card, folder: Path) -> Any:
    def judge(*args: str, env: Any = None, **settings: object) -> tuple[int, str, Any]:
        return run(card, folder, "--bandwidth-baseline=base.yaml", "test_triad.py", *args, env=env, **settings)

    return judge


def test_the_same_code_that_became_slower_passes_and_says_so(judged: Any) -> None:
    status, shown, row = judged("--bandwidth-strict", SLOW_KERNELS="triad_f32=1.1")
    assert (status, row["status"], row["reason_code"]) == (0, "OK", "code-unchanged"), shown
    assert re.match(
        r"code, launch and inputs are as in the baseline; \d\.\d % slower than its figures: ", row["reason"]
    )


def test_runs_record_what_the_card_tells(folder: Path) -> None:
    (entry,) = baseline_files.load(folder / "base.yaml").entries.values()
    recorded = entry.runs[-1].extra
    assert (recorded["power_limit_w"], recorded["driver_version"]) == ("300.0", "595.45.04")
    assert {"cuda_driver", "cuda_runtime", "nvrtc", "numpy", "cupy", "python"} <= recorded.keys()


def test_another_of_the_same_cards_is_judged_alike(judged: Any) -> None:
    status, shown, row = judged("--bandwidth-device=cuda:1", DEVICES=2)
    assert status == 0, shown
    assert (row["status"], row["reason_code"]) == ("OK", "code-unchanged")


@pytest.mark.parametrize(
    ("settings", "differs"),
    [({"ECC_MODE": 0}, "ecc"), ({"VIRTUALIZATION": 2}, "virtual")],
    ids=["ecc-off", "vgpu"],
)
def test_a_card_that_is_set_otherwise_is_not_compared(judged: Any, settings: dict[str, object], differs: str) -> None:
    status, shown, row = judged(**settings)
    assert (status, row["status"], row["reason_code"]) == (1, "MISMATCH", f"setting:{differs}"), shown


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"NAME": "Other"}, "Other"), ({"MIG": "1g.5gb"}, "Emulated GPU MIG 1g.5gb")],
    ids=["model", "slice"],
)
def test_another_cards_file_judges_by_its_code_alone_and_is_not_written(
    card: Card, folder: Path, settings: dict[str, object], named: str
) -> None:
    status, shown, row = run(card, folder, "--bandwidth-baseline=base.yaml", "--bandwidth-strict", **settings)
    assert (status, row["status"], row["reason_code"]) == (0, "OK", "code-unchanged"), shown
    assert "base.yaml (of Emulated GPU: its code alone)" in shown
    status, shown, _ = run(card, folder, "--bandwidth-baseline=base.yaml", "--bandwidth-update", **settings)
    assert status == 4
    assert "found a baseline of 'Emulated GPU' (16 GiB, cuda), expected one of this run's device, " in shown
    assert repr(named) in shown


@pytest.fixture(scope="module")
def ailing(shared_card: Card, folder: Path) -> str:
    """What a run tells of a card that is throttled, and whose memory has errors."""
    settings = {"EVENT_REASONS": 0x40, "CLOCK_PACE": 0.6, "ECC": 1}
    return run(shared_card, folder, "--bandwidth-baseline=base.yaml", "test_triad.py", **settings)[1]


def test_throttling_is_told(ailing: str) -> None:
    assert "the SM clock was 900 MHz over the samples" in ailing
    assert "the driver reports hardware thermal slowdown" in ailing


def test_ecc_errors_are_told(ailing: str) -> None:
    assert "uncorrectable ECC error(s) while measuring" in ailing


def test_figures_that_others_disturb_count_for_nothing(judged: Any) -> None:
    _, shown, row = judged(OTHERS="4711=80")
    assert (row["status"], row["reason_code"], row["is_valid"]) == ("OK", "code-unchanged", False), shown
    assert "its figures do not count: other processes were active on the GPU: other (pid 4711, 80 %)" in row["reason"]


def test_launches_that_block_are_told_and_not_compared(judged: Any) -> None:
    status, shown, row = judged(env={"CUDA_LAUNCH_BLOCKING": "1"})
    assert (status, row["status"], row["reason_code"]) == (1, "MISMATCH", "method"), shown
    assert "CUDA_LAUNCH_BLOCKING=1 makes every launch wait" in shown


def test_without_nvml_it_measures(card: Card, folder: Path) -> None:
    status, shown, row = run(card, folder, "test_triad.py", NVML="absent")
    assert status == 0, shown
    assert row["gbps"] > 6


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"CUDA_VERSION": 12090}, "the NVIDIA driver is too old: it supports CUDA 12.9, CuPy needs 13.2"),
        ({"DEVICES": 0}, "the driver shows no GPU"),
    ],
)
def test_no_usable_card_is_one_line(judged: Any, settings: dict[str, object], line: str) -> None:
    status, shown, _ = judged(**settings)
    assert status == 4
    assert f"ERROR: {line}" in shown
    assert "Traceback" not in shown


def test_a_full_card_is_one_line(card: Card, folder: Path) -> None:
    status, shown, _ = run(card, folder, "test_triad.py", MEMORY_BYTES=4 << 20)
    assert status == 1
    assert "does not fit the GPU's memory" in shown
    assert "Traceback" not in shown


def test_a_lost_context_is_told_once_and_for_the_tests_behind(card: Card, tmp_path: Path) -> None:
    (tmp_path / "test_wild.py").write_text(WILD)
    status, shown, _ = run(card, tmp_path)
    assert status == 1
    assert "the GPU context is lost, a kernel read or wrote outside its arrays" in shown
    assert "Traceback" not in shown
