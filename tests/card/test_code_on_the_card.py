"""What identifies kernels and launches on the card: named is what ran, and what changes is the code alone.

Addresses as numbers are the same in every process, other indices are not.
"""

import json
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="module")
def told(shared_card: Card) -> Any:
    return [shared_card.told("launches") for _ in range(2)]


def test_an_address_as_a_number_is_the_same_launch_in_every_process(told: Any) -> None:
    assert told[0]["same"] == told[1]["same"]
    assert None not in told[0]["same"].values()
    assert told[0]["same"]["uint64"] != told[0]["same"]["struct"]
    assert told[0]["written"] == 8.0
    assert all(told[0][name] for name in ("number", "numbers", "struct's number")), "numbers beside them count"
    assert told[0]["is memory"] == [True, True, False, False, False], "as the driver tells"


def test_contents_are_of_what_an_array_shows_and_random_indices_repeat(told: Any) -> None:
    assert told[0]["contents"] == dict.fromkeys(told[0]["contents"], True)
    assert told[0]["on the host"]
    assert told[0]["swapped"]
    assert (told[0]["random"], told[0]["empty"]) == ([True, True], 0)


def test_functions_of_cupys_are_known_and_kernels_of_ones_own_are_not(told: Any) -> None:
    found = told[0]["library"]
    assert found["copy"] == found["copy again"] == told[1]["library"]["copy"]
    assert len({found[name] for name in ("copy", "add", "set")} - {None}) == 3
    assert found["kernel"] is found["bound"] is None


KERNEL = """
extern "C" __global__ void gather(const float* x, const int* index, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[index[i]];
}
extern "C" __global__ void halve(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] /= 2;
}
"""
TESTS = """
import numpy as np
import pytest

N = 1 << 12
ORDER = {order}

def arrays(bandwidth):
    xp = bandwidth.xp
    beside = [xp.zeros(1 << n) for n in range(np.random.default_rng().integers(1, 9))]
    index = xp.asarray(eval(ORDER).astype(np.int32))
    return bandwidth.random(N), index, bandwidth.empty(N)

@pytest.mark.bandwidth(tolerance="3%")
def test_addresses(bandwidth):
    x, index, y = arrays(bandwidth)
    args = (np.uint64(x.data.ptr), index.data.ptr, np.uint64(y.data.ptr), np.int32(N))
    bandwidth.launch(bandwidth.kernel("gather.cu", "gather"), 16, 256, args, reads=(x, index), writes=y)

@pytest.mark.bandwidth(tolerance="3%")
def test_two(bandwidth):
    x, index, y = arrays(bandwidth)
    first = bandwidth.bind(bandwidth.kernel("gather.cu", "gather"), 16, 256, (x, index, y, np.int32(N)))
    second = bandwidth.bind(bandwidth.kernel("gather.cu", "halve"), 16, 256, (y, np.int32(N)))
    bandwidth(lambda: (first(), second()), reads=(x, index, y), writes=(y, y))
"""
IN_ORDER, SCATTERED = "'np.arange(N)'", "'np.arange(N) * 1021 % N'"


@pytest.fixture(scope="module")
def folder(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("user")
    (made / "gather.cu").write_text(KERNEL)
    (made / "test_gather.py").write_text(TESTS.format(order=IN_ORDER))
    status, shown, rows = shared_card.judged(made, "--bandwidth-update")
    assert (status, {row["status"] for row in rows}) == (0, {"SAVED"}), shown
    return made


def test_addresses_and_several_launches_are_unchanged_in_a_fresh_process(card: Card, folder: Path) -> None:
    (folder / "gather.cu").write_text("// a comment\n" + KERNEL)
    (folder / "test_gather.py").write_text(TESTS.format(order=IN_ORDER))
    status, shown, rows = card.judged(folder)
    assert status == 0, shown
    assert [row["reason_code"] for row in rows] == ["code-unchanged", "code-unchanged"], shown


def test_other_indices_are_a_change_that_the_reason_names(card: Card, folder: Path) -> None:
    (folder / "test_gather.py").write_text(TESTS.format(order=SCATTERED))
    status, shown, rows = card.judged(folder)
    assert status == 1, shown
    assert [row["status"] for row in rows] == ["REGRESSED", "REGRESSED"], shown
    assert "likely cause  the contents of an index array changed" in shown


def test_of_several_launches_a_changed_kernel_is_another_function(card: Card, folder: Path) -> None:
    (folder / "test_gather.py").write_text(TESTS.format(order=IN_ORDER))
    (folder / "gather.cu").write_text(KERNEL.replace("y[i] /= 2", "y[i] *= 0.25f"))
    _, shown, rows = card.judged(folder)
    assert [row["reason_code"] == "code-unchanged" for row in rows] == [True, False], shown
