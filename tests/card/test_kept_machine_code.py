"""Machine code that an update kept: it is the old kernel, whatever compilers and drivers have become meanwhile."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from card_processes import MACHINE_CODE, Card
from test_old_code_on_the_card import AS_FAST, HARMLESS, KERNELS, MORE, SLOWER, TESTS, source
from test_old_code_on_the_card import judged as judged_of
from test_old_code_on_the_card import written as written_of

from pytest_bandwidth.domain.code.identity import digest

NOT_KEPT = "the driver compiled the old kernel's PTX, since its machine code could not run: "
# NVRTC is newer than this driver, and these kernels use what a later version of PTX than its own brought.
OLD_DRIVER = {"CUDA_VERSION": 13000, "NEEDS_PTX": ",".join(f"copy_{i}=9.4" for i in range(KERNELS))}
# The last three have a source each, and so machine code.
OF_ITS_OWN = (3, 4, 5)
TESTS_OF_FILES = TESTS.replace('"copies.cu"', 'f"{i}.cu" if i > 2 else "copies.cu"')
# Another compiler: the same PTX becomes other machine code.
WORSE = TESTS_OF_FILES.replace('f"copy_{i}")', 'f"copy_{i}", options=["-Xptxas=-O0"] if i == 1 else [])')

# Where CuPy loads machine code.
judged = partial(judged_of, env=MACHINE_CODE)


@pytest.fixture(scope="module")
def written(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, with the baseline that one run wrote."""
    made = tmp_path_factory.mktemp("user")
    for kernel in OF_ITS_OWN:
        (made / f"{kernel}.cu").write_text(source(only=kernel))
    return written_of(shared_card, made, tests=TESTS_OF_FILES, env=MACHINE_CODE)


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "user"))


def kept(folder: Path, kernel: int) -> Path:
    """Return the machine code that the update kept of a kernel; `copies.cu` holds all kernels, and is the largest."""
    found = (f for f in (folder / "code").glob("*.cubin") if f".text.copy_{kernel}\0".encode() in f.read_bytes())
    return min(found, key=lambda file: file.stat().st_size)


def test_an_update_keeps_machine_code_once_for_all_kernels_of_a_source(written: Path) -> None:
    runs = (written / "base.runs.jsonl").read_text()
    for kernel, count in ((0, 3), (3, 1)):
        file = kept(written, kernel)
        assert file.stem == digest(file.read_bytes())
        assert runs.count(f'"cubin":"{file.stem}"') == count
    assert len(list((written / "code").glob("*.ptx"))) == KERNELS


def test_the_changed_kernel_regresses_beside_its_old_machine_code(card: Card, folder: Path) -> None:
    """The driver takes no PTX that uses what the kernel uses: machine code alone is the old kernel."""
    (folder / "copies.cu").write_text(source({2: MORE}))
    rows, _ = judged(card, folder, {2: SLOWER}, "-k", "test_copy and 2", **OLD_DRIVER)
    assert "slower than the old code" in rows[2]["reason"]
    assert NOT_KEPT not in rows[2]["reason"]


def spoil(file: Path, case: str) -> None:
    """Put something else in the place of the machine code."""
    code = file.read_bytes()
    if case == "replaced":
        file.write_bytes(code.replace(b"copy_", b"cope_"))
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
    "replaced": "found machine code whose hash differs from its name",
    "another kernel": "it is of another kernel than the baseline's entry",
    "another architecture": "the driver cannot load its machine code (CUDA_ERROR_NO_BINARY_FOR_GPU",
}


def test_under_strict_what_another_compiler_made_is_held_to_its_old_machine_code_and_what_is_spoilt_to_its_ptx(
    card: Card, folder: Path
) -> None:
    """One run is too few for the tolerance; what runs next to its old code needs no more."""
    (folder / "test_copies.py").write_text(WORSE)
    runs = folder / "base.runs.jsonl"
    runs.write_text(re.sub(r'"nvrtc":"[\d.]+"', '"nvrtc":"12.9"', runs.read_text()))
    settings = {"SLOW_CUBINS": f"{kept(folder, 1).stem}=0.8", "SLOW_KERNELS": "copy_1=1.25"}
    expected = {1: SLOWER, 3: SLOWER, 4: SLOWER, 5: AS_FAST}
    for kernel, case in zip(OF_ITS_OWN, SPOILT, strict=True):
        spoil(kept(folder, kernel), case)
        more = MORE if expected[kernel] is SLOWER else HARMLESS
        (folder / f"{kernel}.cu").write_text(source({kernel: more}, only=kernel))
    rows, _ = judged(card, folder, expected, "--bandwidth-strict", **settings)
    worse = rows[1]["message"]
    assert "likely cause  the same PTX's machine code changed: the compiler" in worse
    assert "nvrtc 12.9 → 13" in worse
    for kernel, said in zip(OF_ITS_OWN, SPOILT.values(), strict=True):
        assert said in rows[kernel]["reason"].partition(NOT_KEPT)[2], kernel
