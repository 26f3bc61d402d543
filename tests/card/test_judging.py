"""The rule on the card: what is slower is found, what is not is not, and a slower card is one line and nothing red."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from card_processes import ALONE, Card

STREAM = """
import os
import numpy as np
import pytest

INPUTS = {"copy_f32": 1, "scale_f32": 1, "add_f32": 2}

@pytest.mark.bandwidth(tolerance="2.5%")
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


def run(card: Card, folder: Path, *args: str, grid: int = 320, **settings: object) -> tuple[int, str, dict[str, str]]:
    """Run pytest on the card; returns its exit status, what it printed, and each kernel's verdict."""
    out = folder / "out.json"
    ours = ("--bandwidth-device=cuda", "--bandwidth-baseline=base.yaml", "--bandwidth-max-time=0.05")
    ours += ("--bandwidth-settle=never",)
    command = ["-m", "pytest", *ours, f"--bandwidth-json={out}", *args]
    done = card.run(command, {**QUIET, **settings}, cwd=folder, env={**ALONE, "GRID": str(grid)})
    assert out.exists(), done.stdout + done.stderr
    rows = json.loads(out.read_text())["results"]
    statuses = {re.sub(r".*\[(\w+)_f32\]", r"\1", row["nodeid"]): row["status"] for row in rows}
    return done.returncode, done.stdout + done.stderr, statuses


# One block more is another launch, and so other code (docs/method.md): noise and the rule alone decide. The old launch,
# which the card would slow as well, does not run beside it (`--bandwidth-settle=never`).
OTHER_CODE = 321


@pytest.fixture(scope="module")
def folder(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A user's folder: three kernels' tests, and the baseline that five runs wrote."""
    made = tmp_path_factory.mktemp("user")
    (made / "test_stream.py").write_text(STREAM)
    status, shown, statuses = run(shared_card, made, "--bandwidth-update", "--bandwidth-runs=5")
    assert (status, set(statuses.values())) == (0, {"UPDATED"}), shown
    return made


def test_slower_kernels_are_found_and_the_others_are_not(card: Card, folder: Path) -> None:
    status, shown, statuses = run(card, folder, grid=OTHER_CODE, SLOW_KERNELS="scale_f32=1.03,add_f32=1.1")
    assert status == 1
    assert statuses == {"copy": "WITHIN", "scale": "REGRESSED", "add": "REGRESSED"}, shown
    assert shown.count("the kernel, not the device") == 2


@pytest.mark.slow
@pytest.mark.parametrize(("slower", "allowed"), [(1.0, {"WITHIN", "INVALID"}), (1.1, {"REGRESSED", "INVALID"})])
def test_a_neighbour_that_nobody_tells_of_makes_no_regression_and_hides_none(
    card: Card, tmp_path: Path, slower: float, allowed: set[str]
) -> None:
    """Kernels of half a millisecond and of five, beside slices of 2 ms in each 10 ms: the second has one every time."""
    (tmp_path / "test_stream.py").write_text(STREAM)
    slow = {"MEMORY_PACE": 0.04}
    written, shown, _ = run(
        card,
        tmp_path,
        "--bandwidth-update",
        "--bandwidth-runs=5",
        "-k",
        "copy or add",
        SLOW_KERNELS="add_f32=20",
        **slow,
    )
    assert written == 0, shown
    factors = f"copy_f32={slower},add_f32={20 * slower}"
    args = ("-k", "copy or add", "--bandwidth-settle=never", "--bandwidth-max-time=0.3")
    beside = {**slow, "NEIGHBOUR": "2000/10000", "SLOW_KERNELS": factors}
    _, shown, statuses = run(card, tmp_path, *args, grid=OTHER_CODE, **beside)
    assert set(statuses.values()) <= allowed, shown
    assert "something else had the GPU in" in shown or slower > 1, shown


def test_a_slower_card_is_one_line_and_nothing_red(card: Card, folder: Path) -> None:
    status, shown, statuses = run(card, folder, "-k", "copy or add", grid=OTHER_CODE, MEMORY_PACE=0.8)
    assert status == 0
    assert statuses == {"copy": "DEVICE", "add": "DEVICE"}, shown
    (line,) = re.findall(r"^DEVICE .*", shown, re.MULTILINE)
    assert line.startswith("DEVICE 2 tests: the device is down, not the kernel: a probe reaches ")
