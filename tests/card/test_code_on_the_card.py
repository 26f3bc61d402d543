"""Kernels that identify themselves on the card: named is what ran."""

import json
from pathlib import Path

import pytest
from card_processes import PROGRAMS, Card


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
    values, hashes, root, unknown = json.loads(done.stdout.splitlines()[-1])
    assert values == [1, 2, 1]
    assert (root, unknown) == (8, None)
    assert hashes[0] == hashes[2] != hashes[1]
