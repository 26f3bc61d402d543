"""Stored figures on the card: what is slower is found, what is not is not, whatever the card's memory does."""

import re
from pathlib import Path
from typing import Any

import pytest
from card_processes import Card

from pytest_bandwidth.domain.measured.measurement import HELD_UP

STREAM = """
import os
import numpy as np
import pytest

INPUTS = {"copy_f32": 1, "scale_f32": 1, "add_f32": 2}

@pytest.mark.bandwidth(tolerance="2.5%", judged_on="relative")
@pytest.mark.parametrize("kernel", INPUTS)
def test_stream(bandwidth, kernel):
    n = 1 << 17
    inputs = tuple(bandwidth.random(n, "float32") for _ in range(INPUTS[kernel]))
    out = bandwidth.empty(n, "float32")
    scalar = (np.float32(3),) if kernel == "scale_f32" else ()
    args = (out, *inputs, *scalar, np.int64(n))
    grid = int(os.environ["GRID"])
    bandwidth.launch(bandwidth.kernel("stream.cu", kernel), grid, 256, args, reads=inputs, writes=out)
"""
# Processes that hardly differ, so that no verdict here is chance. A small cache, so that little data is 16 of them.
QUIET = {"L2_BYTES": 1 << 16, "PROCESS_JITTER": 0.0005}


Verdicts = dict[str, tuple[str, str]]


def run(card: Card, folder: Path, *args: str, grid: int = 320, **settings: object) -> tuple[int, str, Verdicts]:
    """Run pytest on the card; returns its exit status, what it printed, and each kernel's verdict and its rule."""
    ours = ("--bandwidth-baseline=base.yaml", "-obandwidth_settle=never")
    status, shown, rows = card.tested(folder, *ours, *args, env={"GRID": str(grid)}, **{**QUIET, **settings})
    assert rows, shown
    verdicts = {re.sub(r".*\[(\w+)_f32\]", r"\1", row["nodeid"]): (row["status"], row["reason_code"]) for row in rows}
    return status, shown, verdicts


# One block more is another launch, and so other code (docs/judging.md), and its old launch is not to run: noise and the
# baseline's runs alone decide.
OTHER_CODE = 321


@pytest.fixture(scope="module")
def folder(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A user's folder: three kernels' tests, and the baseline that five runs wrote."""
    made = tmp_path_factory.mktemp("user")
    (made / "test_stream.py").write_text(STREAM)
    status, shown, verdicts = run(shared_card, made, "--bandwidth-update", "--bandwidth-runs=5")
    assert (status, set(verdicts.values())) == (0, {("SAVED", "written")}), shown
    return made


def test_slower_kernels_are_found_and_the_others_are_not(card: Card, folder: Path) -> None:
    status, shown, verdicts = run(card, folder, grid=OTHER_CODE, SLOW_KERNELS="scale_f32=1.03,add_f32=1.1")
    assert status == 1
    regressed = ("REGRESSED", "stored")
    assert verdicts == {"copy": ("OK", "stored"), "scale": regressed, "add": regressed}, shown
    assert shown.count("the kernel, not the device") == 2


def test_an_unseen_neighbour_makes_no_regression_and_hides_none(card: Card, tmp_path: Path) -> None:
    """Kernels of half a millisecond and of five, beside slices of 2 ms in each 10 ms: the second has one every time."""
    (tmp_path / "test_stream.py").write_text(STREAM)
    slow: dict[str, object] = {"MEMORY_PACE": 0.04}
    update = ("--bandwidth-update", "--bandwidth-runs=5")
    written, shown, _ = run(card, tmp_path, *update, SLOW_KERNELS="add_f32=10", **slow)
    assert written == 0, shown
    beside = {**slow, "NEIGHBOUR": "2000/10000", "SLOW_KERNELS": "scale_f32=1.1,add_f32=11"}
    _, shown, verdicts = run(card, tmp_path, "--bandwidth-max-time=0.2", grid=OTHER_CODE, **beside)
    assert verdicts.pop("copy") in (("OK", "stored"), ("UNDECIDED", HELD_UP)), shown
    assert set(verdicts.values()) <= {("REGRESSED", "stored"), ("UNDECIDED", HELD_UP)}, shown
    assert "other work ran on the GPU " in (tmp_path / "out.json").read_text()


def test_a_slower_card_turns_no_share_of_the_probe_red(card: Card, folder: Path) -> None:
    status, shown, verdicts = run(card, folder, grid=OTHER_CODE, MEMORY_PACE=0.8)
    assert status == 0
    assert verdicts == dict.fromkeys(("copy", "scale", "add"), ("OK", "stored")), shown
