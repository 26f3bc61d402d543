"""A kernel's old code next to its new one: what the device makes of it, and what is decided by it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from card_processes import HEALTHY_PACE, MACHINE_CODE, Card

from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest


@pytest.fixture(scope="module")
def told(shared_card: Card) -> Any:
    """Tell where the driver compiles kernels, and where CuPy loads machine code."""
    slow = {"SLOW_KERNELS": "adds=1.5"}
    return {
        "PTX": shared_card.told("old_code", **slow),
        "machine code": shared_card.told("old_code", env=MACHINE_CODE, **slow),
    }


@pytest.mark.parametrize(
    ("loads", "old", "calls"), [("PTX", "ptx", 1), ("machine code", "ptx", 2), ("machine code", "cubin", 1)]
)
def test_old_code_takes_turns_and_leaves_no_trace(told: Any, loads: str, old: str, calls: int) -> None:
    """Where CuPy loads machine code and the old code is PTX, the driver compiles the new code, too."""
    seen = told[loads][old]
    assert (seen["kept"], seen["by_old"] > 5, seen["restored"]) == (5, True, 5)
    assert seen["calls"] == calls
    assert len(set(seen["rounds"])) == 1
    assert len(seen["rounds"]) == 1 + calls
    assert seen["registers"]
    assert seen["slower"]
    assert seen["set_up_a_sample"]


def test_ptx_that_the_driver_does_not_take_is_one_line_and_costs_nothing(told: Any) -> None:
    for loads in told.values():
        assert loads["damaged"].startswith("the driver does not take its PTX (")
        assert loads["none"] == "its PTX holds no kernel, or several"
        assert loads["after"]


def test_ptx_newer_than_the_driver_is_loaded_in_the_drivers_version(told: Any) -> None:
    assert {loads["newer"] for loads in told.values()} == {"loaded"}


def test_machine_code_that_the_driver_does_not_take_is_one_line(told: Any) -> None:
    said = told["machine code"]["spoilt"]
    expected = {
        "cut short": "INVALID_IMAGE",
        "of another architecture": "NO_BINARY_FOR_GPU",
        "of another kernel": "NOT_FOUND",
        "unknown": "INVALID_IMAGE",
        "text": "INVALID_IMAGE",
        "empty": "INVALID_IMAGE",
    }
    assert said.keys() == expected.keys()
    for case, name in expected.items():
        assert said[case].startswith(f"the driver does not take its machine code (CUDA_ERROR_{name}"), case


def test_machine_code_is_not_held_to_what_the_driver_compiles(told: Any) -> None:
    said = told["PTX"]["without machine code"]
    assert said == "CuPy has the driver compile kernels here, and it is machine code of NVRTC's"


KERNELS = 4
CHANGED = 2
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

@pytest.mark.bandwidth(tolerance="3%")
@pytest.mark.parametrize("i", range({KERNELS}))
def test_copy(bandwidth, i):
    x, y = bandwidth.random(2 * N, "float32"), bandwidth.xp.zeros(N + 1, "float32")
    kernel = bandwidth.kernel("copies.cu", f"copy_{{i}}")
    bandwidth.launch(kernel, 16, 256, (x, y, np.int32(N)), reads=4 * N, writes=4 * N)
    bandwidth.xp.testing.assert_array_equal(x[:N], y[:N])
    assert y[N] == 0
"""


MORE = "if (i < n / 8) more += x[n + i];"


def source(more: str = "") -> str:
    """Write the kernels; more: what the changed one does besides."""
    return "".join(COPY.format(i=i, more=more if i == CHANGED else "") for i in range(KERNELS))


def run(card: Card, folder: Path, *args: str, **settings: Any) -> tuple[int, str, dict[str, Any]]:
    """Run the tests; returns the exit status, what was printed, and the results by kernel."""
    status, shown, rows = card.judged(folder, *args, **settings)
    return status, shown, {row["nodeid"].partition("[")[2].rstrip("]"): row for row in rows}


def statuses(rows: dict[str, Any]) -> dict[str, str]:
    return {name: row["status"] for name, row in rows.items()}


def written(card: Card, made: Path, *args: str, tests: str = TESTS, **settings: Any) -> Path:
    """Put some kernels and their tests into a user's folder, with the baseline that the card writes there."""
    (made / "copies.cu").write_text(source())
    (made / "test_copies.py").write_text(tests)
    status, shown, rows = run(card, made, "--bandwidth-update", *args, **settings)
    assert (status, set(statuses(rows).values())) == (0, {"SAVED"}), shown
    return made


@pytest.fixture(scope="module")
def folder(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, with the baseline of four runs on a healthy card."""
    return written(shared_card, tmp_path_factory.mktemp("user"), "--bandwidth-runs=4")


ONLY = ("-k", f"test_copy and {CHANGED}")
# A run's exit status, and the status and the reason of its one kernel.
SLOWER, AS_FAST, SLOWER_THAN_STORED = (
    (1, "REGRESSED", "old-kernel"),
    (0, "OK", "old-kernel"),
    (1, "REGRESSED", "stored"),
)


def changed_alone(card: Card, folder: Path, expected: tuple[int, str, str], *args: str, **settings: Any) -> Any:
    """Run the changed kernel's test, which has to end as expected; returns its row."""
    status, shown, rows = run(card, folder, *ONLY, *args, **settings)
    row = rows[str(CHANGED)]
    assert (status, row["status"], row["reason_code"]) == expected, shown
    return row


def regressed_alone(card: Card, folder: Path, *args: str) -> tuple[Any, Any, str]:
    """Have the changed kernel read an eighth more, which alone regresses by its old code.

    Returns its row, those of the others, and what was printed.
    """
    (folder / "copies.cu").write_text(source(MORE))
    status, shown, rows = run(card, folder, *args)
    assert status == 1, shown
    assert statuses(rows) == {str(i): "REGRESSED" if i == CHANGED else "OK" for i in range(KERNELS)}, shown
    row = rows.pop(str(CHANGED))
    assert row["reason_code"] == "old-kernel"
    return row, rows.values(), shown


def test_the_changed_kernel_alone_regresses_by_old_beside_new(card: Card, folder: Path) -> None:
    """An eighth more is read, which takes a twentieth longer."""
    changed, _, _ = regressed_alone(card, folder)
    assert re.fullmatch(r"\d\.\d % slower than the old code \(tolerance 3\.0 %\)", changed["reason"])
    assert changed["message"].startswith(f"REGRESSED: {changed['reason']}\n")
    old = r"^    old code +[\d.]+ GB/s \(the old kernel, 4 processes, ± \d\.\d %\)$"
    assert re.search(old, changed["message"], re.MULTILINE)
    accesses = "in its code, loads of 32 bits 5 → 10, stores of 32 bits 5 → 6"
    sectors = "sectors of 32 bytes 256 → 272 a block"
    assert f"likely cause  the kernel's code changed; {accesses}; {sectors}; registers " in changed["message"]
    assert len(changed["fresh"]) == changed["verdict"]["runs"] == 4


@pytest.mark.parametrize("cause", [{"SLOW_KERNELS": f"copy_{CHANGED}=1.3"}, {"MEMORY_PACE": 0.7 * HEALTHY_PACE}])
def test_a_changed_kernel_as_fast_as_its_old_code_is_not_blamed_for_a_slower_card(
    card: Card, folder: Path, cause: dict[str, object]
) -> None:
    """By the first alone the kernel's share of the probe falls: only its old code, as slow now, clears the new one."""
    (folder / "copies.cu").write_text(source("if (n < 0) y[1] = 2;"))
    changed = changed_alone(card, folder, AS_FAST, "--bandwidth-strict", **cause)
    assert changed["verdict"]["high"] < 0.03
    assert changed["reason"].startswith("costs at most ")


def test_it_regresses_beside_its_old_code_on_a_slower_card_too(card: Card, folder: Path) -> None:
    (folder / "copies.cu").write_text(source(MORE))
    changed_alone(card, folder, SLOWER, MEMORY_PACE=0.7 * HEALTHY_PACE)


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


@pytest.fixture
def relaunched(folder: Path) -> Iterator[None]:
    """The changed kernel launched in twice as many blocks of half as many threads, for one test."""
    tests = folder / "test_copies.py"
    text = tests.read_text()
    tests.write_text(text.replace("kernel, 16, 256,", f"kernel, *((32, 128) if i == {CHANGED} else (16, 256)),"))
    yield
    tests.write_text(text)


@pytest.mark.usefixtures("relaunched")
def test_a_kernel_that_is_launched_otherwise_regresses_beside_its_old_launch(card: Card, folder: Path) -> None:
    changed, _, _ = regressed_alone(card, folder)
    launch = "the launch changed: grid 16 → 32, block 256 → 128"
    assert f"; {launch}; registers " in changed["message"]  # no sectors a block: another block's are no measure of it


@pytest.mark.usefixtures("relaunched")
def test_the_same_code_launched_otherwise_is_held_to_its_old_launch(card: Card, folder: Path) -> None:
    (folder / "copies.cu").write_text(source())
    changed_alone(card, folder, AS_FAST, SLOW_KERNELS=f"copy_{CHANGED}=1.3")


def test_other_arguments_leave_it_to_stored_figures(card: Card, folder: Path) -> None:
    (folder / "copies.cu").write_text(source(MORE))
    tests = folder / "test_copies.py"
    text = tests.read_text()
    tests.write_text(text.replace("random(2 * N", "random(3 * N"))
    try:
        changed = changed_alone(card, folder, SLOWER_THAN_STORED)
    finally:
        tests.write_text(text)
    assert "the old kernel did not run: its launch had other arguments" in changed["reason"]
    assert "the launch's arguments changed: their types, sizes or values" in changed["message"]


# What stands in the baseline's folder in place of the old code, and what is said of it.
BAD = {
    "faults": ("mov.u64 %rd1, 68719476736;\nst.global.u32 [%rd1], %r1;", "it faults: the GPU context is lost"),
    "hangs": ("$Lhang:\nbra $Lhang;", "it faults: the GPU context is lost, a kernel ran longer"),
    "is no PTX": ("rot 3;", "the driver does not take its PTX ("),
}


@pytest.mark.parametrize("case", BAD)
def test_old_code_that_cannot_run_leaves_it_to_stored_figures(card: Card, folder: Path, case: str) -> None:
    """The next test measures in a context that nothing has happened to."""
    (folder / "copies.cu").write_text(source(MORE))
    instruction, said = BAD[case]
    base = folder / "base.runs.jsonl"
    good = base.read_text()
    (name,) = (file.stem for file in (folder / "code").iterdir() if f"copy_{CHANGED}(" in file.read_text())
    bad = (folder / "code" / f"{name}.ptx").read_text().replace("ret;", f"{instruction}\nret;")
    (folder / "code" / f"{ptx_digest(bad)}.ptx").write_text(bad)
    base.write_text(good.replace(name, ptx_digest(bad)))
    try:
        status, shown, rows = run(card, folder, "-k", f"test_copy and ({CHANGED} or {CHANGED + 1})")
    finally:
        base.write_text(good)
        (folder / "code" / f"{ptx_digest(bad)}.ptx").unlink()
    assert status == 1, shown
    assert statuses(rows) == {str(CHANGED): "REGRESSED", str(CHANGED + 1): "OK"}, shown
    changed = rows[str(CHANGED)]
    assert changed["reason_code"] == "stored"
    assert f"; the old kernel did not run: {said}" in changed["reason"]
    assert f"  the old kernel did not run: {said}" in changed["message"]


def test_a_missing_or_damaged_file_leaves_it_to_stored_figures(card: Card, folder: Path) -> None:
    (folder / "copies.cu").write_text(source(MORE))
    kept = {file: file.read_text() for file in (folder / "code").iterdir()}
    try:
        for text, said in (("damaged", "found PTX of another hash than its name says"), (None, "found no ")):
            for file in kept:
                file.unlink(missing_ok=True)
                if text is not None:
                    file.write_text(text)
            changed = changed_alone(card, folder, SLOWER_THAN_STORED)
            assert "the old kernel did not run: " in changed["reason"]
            assert said in changed["reason"]
    finally:
        for file, text in kept.items():
            file.write_text(text)
