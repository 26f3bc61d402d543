"""Kernels that identify themselves on the card: named is what ran, and unchanged code never fails."""

import json
import re
from pathlib import Path

import pytest
from card_processes import HEALTHY_PACE, PROGRAMS, Card

KERNELS = 10
CHANGED = 3
COPY = """
extern "C" __global__ void copy_{i}(const float* x, float* y, int n) {{
    float more = 0;
    int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {{
        y[i] = x[i];
        if (i < {extra}) more += x[n + i];
    }}
    if (more < 0) y[0] = more;
}}
"""
TESTS = f"""
import numpy as np
import pytest

N = 1 << 14

@pytest.mark.bandwidth(tolerance="3%")
@pytest.mark.parametrize("i", range({KERNELS}))
def test_copy(bandwidth, i):
    x, y = bandwidth.random(2 * N, "float32"), bandwidth.empty(N, "float32")
    kernel = bandwidth.kernel("copies.cu", f"copy_{{i}}")
    bandwidth.launch(kernel, 16, 256, (x, y, np.int32(N)), reads=4 * N, writes=y)
    bandwidth.xp.testing.assert_array_equal(x[:N], y)
"""


@pytest.mark.parametrize("with_ptx", [1, 0], ids=["PTX", "machine code"])
def test_the_code_is_that_which_cupy_compiled(card: Card, tmp_path: Path, with_ptx: int) -> None:
    """With a driver that compiles PTX, and with NVRTC's own machine code."""
    environment = {"CUPY_CACHE_DIR": str(tmp_path / "cache"), "CUPY_COMPILE_WITH_PTX": str(with_ptx)}
    done = card.run([str(PROGRAMS / "codes.py")], {}, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    if not with_ptx:  # what its kernel is called only a card that loads it tells
        del found["template"]
    for case, (loaded, said, unknown) in found.items():
        assert unknown is None, case
        assert loaded is not None, case
        assert said == loaded, case
    assert len({said for _, said, _ in found.values()}) == len(found)


def test_a_kernel_follows_the_files_that_it_includes(card: Card, tmp_path: Path) -> None:
    environment = {"CUPY_CACHE_DIR": str(tmp_path / "cache")}
    done = card.run([str(PROGRAMS / "headers.py"), str(tmp_path)], {}, env=environment)
    assert done.returncode == 0, done.stderr
    values, hashes = json.loads(done.stdout.splitlines()[-1])
    assert values == [1, 2, 1]
    assert hashes[0] == hashes[2] != hashes[1]


def source(changed: int | None = None) -> str:
    """Write ten kernels; the changed one reads an eighth more, which takes it a twentieth longer."""
    return "".join(COPY.format(i=i, extra="n / 8" if i == changed else 0) for i in range(KERNELS))


@pytest.fixture(scope="module")
def folder(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: ten kernels, and the baseline of a healthy card."""
    made = tmp_path_factory.mktemp("user")
    (made / "copies.cu").write_text(source())
    (made / "test_copies.py").write_text(TESTS)
    status, shown, rows = shared_card.judged(made, "--bandwidth-update")
    assert (status, {row["status"] for row in rows}) == (0, {"SAVED"}), shown
    assert len(list((made / "code").iterdir())) == KERNELS
    return made


@pytest.mark.parametrize(
    ("asked", "status"),
    [((), 0), (("--bandwidth-device-tolerance=40%",), 0), (("--bandwidth-device-tolerance=20%",), 1)],
)
def test_unchanged_kernels_on_a_slower_card_are_one_line(
    card: Card, folder: Path, asked: tuple[str, ...], status: int
) -> None:
    """What differs from the baseline's card is named; past the tolerance for devices the run fails, and no test."""
    (folder / "copies.cu").write_text("// a comment\n" + source())
    pace = 0.7 * HEALTHY_PACE
    found, shown, rows = card.judged(folder, "--bandwidth-strict", *asked, MEMORY_PACE=pace, POWER_LIMIT_W=250)
    assert {(row["status"], row["reason_code"]) for row in rows} == {("OK", "code-unchanged")}, shown
    assert found == status, shown
    lines = re.findall(r"^.*unchanged tests run .*$", shown, re.MULTILINE)
    assert len(lines) == (asked != ("--bandwidth-device-tolerance=40%",)), shown
    for line in lines:
        assert re.search(rf"run 2\d\.\d % below the baseline \(median of {KERNELS}, from ", line)
        assert "): power limit 300.0 → 250.0 W" in line


def test_of_ten_kernels_the_changed_one_alone_regresses(card: Card, folder: Path) -> None:
    (folder / "copies.cu").write_text(source(CHANGED))
    status, shown, rows = card.judged(folder)
    assert status == 1, shown
    verdicts = {row["nodeid"].partition("[")[2].rstrip("]"): row["status"] for row in rows}
    expected = {str(i): "REGRESSED" if i == CHANGED else "OK" for i in range(KERNELS)}
    assert verdicts == expected, shown
    assert "the kernel's code changed" in shown
