"""A kernel's old code next to its new one, and what is decided by it."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from card_processes import HEALTHY_PACE, Card

from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest

KERNELS = 6
COPY = """
extern "C" __global__ void copy_{i}(const float* x, float* y, int n) {{
    float more = 0;
    int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {{
        y[i] = x[i];
        {more}
    }}
    if (more < 0) y[0] = more;
}}
"""
TESTS = f"""
import numpy as np
import pytest

N = 1 << 14
HALVED = WIDER = ()  # launched in twice as many blocks of half as many threads; on a larger array

@pytest.mark.bandwidth(tolerance="3%")
@pytest.mark.parametrize("i", range({KERNELS}))
def test_copy(bandwidth, i):
    x, y = bandwidth.random((3 if i in WIDER else 2) * N, "float32"), bandwidth.xp.zeros(N + 1, "float32")
    kernel = bandwidth.kernel("copies.cu", f"copy_{{i}}")
    grid, block = (32, 128) if i in HALVED else (16, 256)
    bandwidth.launch(kernel, grid, block, (x, y, np.int32(N)), reads=4 * N, writes=4 * N)
    bandwidth.xp.testing.assert_array_equal(x[:N], y[:N])
    assert y[N] == 0
"""
HALVED_LAUNCH = "the launch changed: grid 16 → 32, block 256 → 128"
# An eighth more is read, which takes a twentieth longer; and other code that takes no longer.
MORE, HARMLESS = "if (i < n / 8) more += x[n + i];", "if (n < 0) y[1] = 2;"
Verdict = tuple[str, str]
SLOWER, AS_FAST, UNCHANGED, SLOWER_THAN_STORED = (
    ("REGRESSED", "old-kernel"),
    ("OK", "old-kernel"),
    ("OK", "code-unchanged"),
    ("REGRESSED", "stored"),
)


def source(more: Mapping[int, str] | None = None, only: int | None = None) -> str:
    """Write the kernels, or only one; more: what some do besides."""
    kernels = range(KERNELS) if only is None else (only,)
    return "".join(COPY.format(i=i, more=(more or {}).get(i, "")) for i in kernels)


def ptx_file(folder: Path, kernel: int) -> Path:
    """Return the file of a kernel's old code."""
    (found,) = (file for file in (folder / "code").glob("*.ptx") if f"copy_{kernel}(" in file.read_text())
    return found


def run(card: Card, folder: Path, *args: str, **settings: Any) -> tuple[int, str, dict[Any, Any]]:
    """Run the tests; returns the exit status, what was printed, and the results by kernel, or else by test."""
    status, shown, rows = card.judged(folder, *args, **settings)
    found = {}
    for row in rows:
        name = re.sub(r".*::(?:test_copy\[(\d)\]|test_)", r"\1", row["nodeid"])
        found[int(name) if name.isdigit() else name] = row
    return status, shown, found


def judged(
    card: Card, folder: Path, expected: Mapping[Any, Verdict], *args: str, **settings: Any
) -> tuple[dict[Any, Any], str]:
    """Run the tests; return the results and what was printed. The tests that are not named have unchanged code."""
    status, shown, rows = run(card, folder, *args, **settings)
    verdicts = {name: (row["status"], row["reason_code"]) for name, row in rows.items()}
    assert verdicts == {**dict.fromkeys(rows, UNCHANGED), **expected}, shown
    assert status == any(of_one[0] != "OK" for of_one in expected.values()), shown
    return rows, shown


def written(card: Card, made: Path, *args: str, tests: str = TESTS, **settings: Any) -> Path:
    """Put some kernels and their tests into a user's folder, with the baseline that the card writes there."""
    (made / "copies.cu").write_text(source())
    (made / "test_copies.py").write_text(tests)
    status, shown, rows = run(card, made, "--bandwidth-update", *args, **settings)
    assert (status, {row["status"] for row in rows.values()}) == (0, {"SAVED"}), shown
    return made


@pytest.fixture(scope="module")
def folder(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, with the baseline of four runs on a healthy card."""
    return written(shared_card, tmp_path_factory.mktemp("user"), "--bandwidth-runs=4")


@pytest.fixture
def changed(folder: Path) -> dict[int, Verdict]:
    """Change four kernels, and the launches of two; return the expected verdicts."""
    (folder / "copies.cu").write_text("// a comment\n" + source({1: HARMLESS, 2: MORE, 3: MORE}))
    (folder / "test_copies.py").write_text(TESTS.replace("HALVED = WIDER = ()", "HALVED, WIDER = (3, 4), ()"))
    return {1: AS_FAST, 2: SLOWER, 3: SLOWER, 4: AS_FAST}


def test_changed_kernels_alone_are_judged_by_old_beside_new(
    card: Card, folder: Path, changed: dict[int, Verdict]
) -> None:
    """Of two that the card runs slower now, whose shares of the probe fall, only their old code clears the new one."""
    rows, _ = judged(card, folder, changed, "--bandwidth-strict", SLOW_KERNELS="copy_1=1.3,copy_4=1.3")
    slower = rows[2]
    assert re.fullmatch(r"\d\.\d % slower than the old code \(tolerance 3\.0 %\)", slower["reason"])
    assert slower["message"].startswith(f"REGRESSED: {slower['reason']}\n")
    old = r"^    old code +[\d.]+ GB/s \(the old kernel, 4 processes, ± \d\.\d %\)$"
    assert re.search(old, slower["message"], re.MULTILINE)
    accesses = "in its code, loads of 32 bits 5 → 10, stores of 32 bits 5 → 6"
    sectors = "sectors of 32 bytes 256 → 272 a block"
    assert f"likely cause  the kernel's code changed; {accesses}; {sectors}; registers " in slower["message"]
    assert len(slower["fresh"]) == slower["verdict"]["runs"] == 4
    # No sectors a block: another block's are no measure of it.
    assert f"{accesses}; {HALVED_LAUNCH}; registers " in rows[3]["message"]
    for cleared in (rows[1], rows[4]):
        assert cleared["verdict"]["high"] < 0.03
        assert cleared["reason"].startswith("costs at most ")


def test_a_slower_card_is_one_line_and_changes_no_verdict(card: Card, folder: Path) -> None:
    """What differs from the baseline's card is named; tests/plugin/test_device_tolerance.py has what may fail by it."""
    (folder / "copies.cu").write_text(source({1: HARMLESS}))
    (folder / "test_copies.py").write_text(TESTS)
    _, shown = judged(card, folder, {1: AS_FAST}, MEMORY_PACE=0.7 * HEALTHY_PACE, POWER_LIMIT_W=250)
    (line,) = re.findall(r"^.*unchanged tests run .*$", shown, re.MULTILINE)
    assert re.search(r"run 2\d\.\d % below the baseline \(median of 6, from ", line)
    assert "): power limit 300.0 → 250.0 W" in line


# What stands in the baseline's folder in place of the old code, and what is said of it.
BAD = {
    "mov.u64 %rd1, 68719476736;\nst.global.u32 [%rd1], %r1;": "it faults: the GPU context is lost",
    "$Lhang:\nbra $Lhang;": "it faults: the GPU context is lost, a kernel ran longer",
    "rot 3;": "the driver cannot load its PTX (",
}


def test_old_code_that_cannot_run_leaves_it_to_stored_figures(card: Card, folder: Path, tmp_path: Path) -> None:
    """Each test measures in a context that nothing has happened to."""
    spoilt = Path(shutil.copytree(folder, tmp_path / "user"))
    (spoilt / "copies.cu").write_text(source(dict.fromkeys(range(KERNELS), MORE)))
    (spoilt / "test_copies.py").write_text(TESTS.replace("HALVED = WIDER = ()", "HALVED, WIDER = (), (5,)"))
    runs = spoilt / "base.runs.jsonl"
    for kernel, instruction in enumerate(BAD):
        good = ptx_file(spoilt, kernel)
        bad = good.read_text().replace("ret;", f"{instruction}\nret;")
        (spoilt / "code" / f"{ptx_digest(bad)}.ptx").write_text(bad)
        good.unlink()
        runs.write_text(runs.read_text().replace(good.stem, ptx_digest(bad)))
    ptx_file(spoilt, 4).unlink()
    ptx_file(spoilt, 3).write_text("damaged")
    rows, _ = judged(card, spoilt, dict.fromkeys(range(KERNELS), SLOWER_THAN_STORED))
    others = ("found PTX whose hash differs from its name", "found no ", "its launch had other arguments")
    for kernel, said in enumerate((*BAD.values(), *others)):
        assert re.search(rf"; the old kernel did not run: .*{re.escape(said)}", rows[kernel]["reason"]), kernel
        assert re.search(rf"  the old kernel did not run: .*{re.escape(said)}", rows[kernel]["message"]), kernel
    assert "the launch's arguments changed: their types, sizes or values" in rows[5]["message"]


# The baseline is written on this card; the default card compares with it.
AMPERE = {"MODEL": "NVIDIA A100-SXM4-40GB"}


def test_changed_kernels_are_judged_on_a_card_that_never_ran_the_old_ones_before(card: Card, tmp_path: Path) -> None:
    """Without its old PTX one stays undecided."""
    folder = written(card, tmp_path, **AMPERE)
    (folder / "copies.cu").write_text(source({1: MORE, 2: MORE}))
    ptx_file(folder, 2).unlink()
    rows, shown = judged(card, folder, {1: SLOWER, 2: ("UNDECIDED", "code-alone")}, "--bandwidth-strict")
    assert "baseline: base.yaml (of NVIDIA A100-SXM4-40GB: its code alone)" in shown
    assert "slower than the old code" in rows[1]["reason"]
    assert "the old kernel did not run: found no " in rows[2]["reason"]
