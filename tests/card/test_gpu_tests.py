"""The tests that are made for a GPU, all of them, on the emulated card."""

import re
from pathlib import Path

import pytest
from card_processes import TESTS, Card

FILES = sorted((TESTS / "gpu").glob("test_*.py"))
# What cannot run here, and why.
NOT_HERE = {
    "test_gpu_end_to_end.py::test_every_shipped_kernel_compiles_on_this_gpu": "translates all of them, once more",
    "test_gpu_kernels.py::test_a_busy_neighbour_is_seen": "samples for three seconds of the card, which take minutes",
}
REASONS_TO_SKIP = ("could not import 'torch'", "could not import 'ml_dtypes'", "Numba sees no GPU", "no datasheet row")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_they_pass(card: Card, file: Path) -> None:
    left_out = [f"--deselect=tests/gpu/{nodeid}" for nodeid in NOT_HERE]
    args = [
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-rs",
        "-q",
        *left_out,
        f"tests/gpu/{file.name}",
    ]
    done = card.run(args, {}, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in re.findall(r"^SKIPPED .*$", done.stdout, re.MULTILINE):
        assert any(reason in line for reason in REASONS_TO_SKIP), line
