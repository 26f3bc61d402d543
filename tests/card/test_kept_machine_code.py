"""Machine code that an update kept: it is the old kernel, whatever compilers and drivers have become meanwhile."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from card_processes import MACHINE_CODE, Card
from repositories import committed
from test_old_code_on_the_card import AS_FAST, CHANGED, KERNELS, MORE, ONLY, SLOWER, SLOWER_THAN_STORED, TESTS, source
from test_old_code_on_the_card import changed_alone as changed_alone_of
from test_old_code_on_the_card import run as run_of
from test_old_code_on_the_card import written as written_of

from pytest_bandwidth.domain.code.identity import digest

# Another compiler: the same PTX becomes other machine code.
WORSE = TESTS.replace('f"copy_{i}")', 'f"copy_{i}", options=["-Xptxas=-O0"])')
NOT_KEPT = "the driver compiled the old kernel's PTX, since its machine code could not run: "
# NVRTC is newer than this driver.
OLD_DRIVER = {"CUDA_VERSION": 13000}
# These kernels use what a later version of PTX than the old driver's brought.
NEEDS = {"NEEDS_PTX": ",".join(f"copy_{i}=9.4" for i in range(KERNELS))}


# Where CuPy loads machine code.
run, changed_alone = partial(run_of, env=MACHINE_CODE), partial(changed_alone_of, env=MACHINE_CODE)


@pytest.fixture(scope="module")
def written(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, with the baseline that one run wrote."""
    return written_of(shared_card, tmp_path_factory.mktemp("user"), env=MACHINE_CODE)


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "user"))


def kept(folder: Path) -> Path:
    """Return the machine code that the update kept: one file, of a source with all its kernels."""
    (found,) = (folder / "code").glob("*.cubin")
    return found


def test_an_update_keeps_machine_code_once_for_all_kernels_of_a_source(written: Path) -> None:
    file = kept(written)
    assert file.stem == digest(file.read_bytes())
    assert (written / "base.runs.jsonl").read_text().count(f'"cubin":"{file.stem}"') == KERNELS
    assert len(list((written / "code").glob("*.ptx"))) == KERNELS


def test_the_changed_kernel_regresses_beside_its_old_machine_code(card: Card, folder: Path) -> None:
    """The driver takes no PTX that uses what the kernel uses: machine code alone is the old kernel."""
    (folder / "copies.cu").write_text(source(MORE))
    status, shown, rows = run(card, folder, *ONLY, **OLD_DRIVER, **NEEDS)
    changed = rows[str(CHANGED)]
    assert (status, changed["status"], changed["reason_code"]) == (1, "REGRESSED", "old-kernel"), shown
    assert "slower than the old code" in changed["reason"]
    assert NOT_KEPT not in changed["reason"]
    assert "old kernels cannot run" not in shown


def test_a_compiler_that_became_worse_is_a_regression_of_the_code(card: Card, folder: Path) -> None:
    (folder / "test_copies.py").write_text(WORSE)
    settings = {"SLOW_CUBINS": f"{kept(folder).stem}=0.8", "SLOW_KERNELS": f"copy_{CHANGED}=1.25"}
    changed = changed_alone(card, folder, SLOWER, **settings)
    assert "slower than the old code" in changed["reason"]
    assert "likely cause  the same PTX became other machine code: the compiler" in changed["message"]


def test_what_another_compiler_made_as_fast_is_not_blamed(card: Card, folder: Path) -> None:
    (folder / "test_copies.py").write_text(WORSE)
    changed_alone(card, folder, AS_FAST, SLOW_KERNELS=f"copy_{CHANGED}=1.3")


def test_under_strict_rebuilt_code_is_held_to_its_old_machine_code(card: Card, folder: Path) -> None:
    (folder / "test_copies.py").write_text(WORSE)
    runs = folder / "base.runs.jsonl"
    runs.write_text(re.sub(r'"nvrtc":"[\d.]+"', '"nvrtc":"12.9"', runs.read_text()))
    settings = {"SLOW_CUBINS": f"{kept(folder).stem}=0.95", "SLOW_KERNELS": f"copy_{CHANGED}=0.98"}
    changed = changed_alone(card, folder, SLOWER, "--bandwidth-strict", **settings)
    assert "nvrtc 12.9 → 13" in changed["message"]


def test_a_revision_hands_machine_code_over(card: Card, folder: Path) -> None:
    """Its PTX is as new as this code's, which the driver refuses."""
    committed(folder, "fast", "copies.cu", "test_copies.py")
    (folder / "copies.cu").write_text(source(MORE))
    changed = changed_alone(card, folder, SLOWER, "--bandwidth-against=HEAD", **OLD_DRIVER, **NEEDS)
    assert NOT_KEPT not in changed["reason"]


def spoil(file: Path, case: str) -> None:
    """Put something else in the place of the machine code."""
    code = file.read_bytes()
    if case == "replaced":
        file.write_bytes(code.replace(b"copy_0", b"copy_9"))
        return
    # It is what its name says, and so says the baseline.
    other_architecture = code[:0x31] + bytes([80]) + code[0x32:]
    forged = code.replace(b"copy_", b"cope_") if case == "another kernel" else other_architecture
    file.unlink()
    file.with_name(f"{digest(forged)}.cubin").write_bytes(forged)
    runs = file.parents[1] / "base.runs.jsonl"
    runs.write_text(runs.read_text().replace(file.stem, digest(forged)))


# Refused by the file, by the kernel, by the driver; tests/baseline/test_code_files.py has what else a file may hold.
SPOILT = {
    "replaced": "found machine code of another hash than its name says",
    "another kernel": "it is of another kernel than the baseline's entry",
    "another architecture": "the driver does not take its machine code (CUDA_ERROR_NO_BINARY_FOR_GPU",
}


@pytest.mark.parametrize("case", SPOILT)
def test_the_ptx_takes_the_place_of_machine_code_that_is_refused(card: Card, folder: Path, case: str) -> None:
    (folder / "copies.cu").write_text(source(MORE))
    spoil(kept(folder), case)
    changed = changed_alone(card, folder, SLOWER)
    assert f"{NOT_KEPT}" in changed["reason"]
    assert SPOILT[case] in changed["reason"].partition(NOT_KEPT)[2]


def test_refused_machine_code_leaves_a_rebuilt_kernel_to_stored_figures(card: Card, folder: Path) -> None:
    """Its PTX is the new one's, so it cannot tell of the compiler."""
    (folder / "test_copies.py").write_text(WORSE)
    spoil(kept(folder), "another architecture")
    changed = changed_alone(card, folder, SLOWER_THAN_STORED, SLOW_KERNELS=f"copy_{CHANGED}=1.3")
    assert f"the old kernel did not run: {SPOILT['another architecture']}" in changed["reason"]


@pytest.fixture
def ptx_alone(folder: Path) -> Path:
    """The same folder without machine code."""
    runs, file = folder / "base.runs.jsonl", kept(folder)
    runs.write_text(runs.read_text().replace(f',"cubin":"{file.stem}"', ""))
    file.unlink()
    return folder


def test_ptx_newer_than_the_driver_runs_where_it_uses_nothing_new(card: Card, ptx_alone: Path) -> None:
    (ptx_alone / "copies.cu").write_text(source(MORE))
    changed_alone(card, ptx_alone, SLOWER, **OLD_DRIVER)


CANNOT_RUN = f"old kernels cannot run here: {KERNELS} of the baseline's {KERNELS} kernels need a newer driver"


def shown_at_start(card: Card, folder: Path, *args: str, **settings: object) -> str:
    """Return what stands before the first test's result."""
    _, shown, _ = run(card, folder, "-v", *ONLY, *args, **settings)
    return shown.partition("test_copies.py::")[0]


def test_the_start_says_that_old_kernels_cannot_run(card: Card, ptx_alone: Path) -> None:
    said = shown_at_start(card, ptx_alone, **OLD_DRIVER, **NEEDS)
    (line,) = (line for line in said.splitlines() if "old kernels" in line)
    assert line.startswith(f"bandwidth: {CANNOT_RUN} than that of CUDA 13.0 (NVRTC is 13.")
    assert " as 9.0 (CUDA_ERROR_INVALID_PTX: " in line
    assert line.endswith("; update the driver, or run --bandwidth-update here, which keeps machine code")


@pytest.mark.parametrize("more", ["-obandwidth_settle=never", "--bandwidth-update"])
def test_the_start_says_nothing_where_no_old_kernel_is_asked_for(card: Card, ptx_alone: Path, more: str) -> None:
    assert "old kernels" not in shown_at_start(card, ptx_alone, more, **OLD_DRIVER, **NEEDS)
