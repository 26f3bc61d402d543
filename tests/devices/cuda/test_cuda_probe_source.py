"""cuda_src/probe.cu without a GPU: what its kernels compute for every size, by the interpreter of PTX, and its loads.

That shows nothing of speed, and the clocks and the blocking kernel have no meaning there.
"""

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="NVRTC compiles here: pip install 'pytest-bandwidth[traffic]'")

from pytest_bandwidth.devices.kernel_source import shipped_folder
from pytest_bandwidth.devices.numpy_arrays import masks_for
from pytest_bandwidth.features.traffic.ptx import Program, PtxModule, compile_ptx, execute

pytestmark = pytest.mark.emulated
SIZES = [0, 1, 15, 61, 1000]


@pytest.fixture(scope="module")
def module() -> PtxModule:
    text = (shipped_folder() / "probe.cu").read_text(encoding="utf-8")
    return compile_ptx(text, arch="sm_90", filename="probe.cu")


@pytest.fixture(scope="module")
def run(module: PtxModule) -> Any:
    """Return a function that runs a kernel on fifteen threads; no access may be out of bounds."""
    program = Program(module)

    def run(kernel: str, *args: Any) -> None:
        assert execute(program, kernel, (3,), (5,), args).faults == ()

    return run


def words(count: int, seed: int) -> Any:
    """Random 32-bit words; rows of four are the kernels' vectors."""
    return np.random.default_rng(seed).integers(0, 2**32, (count, 4), np.uint32)


@pytest.mark.parametrize("n", SIZES)
def test_copy_and_add_compute_every_element(run: Any, n: int) -> None:
    x, y = words(n, 1), words(n, 2)
    for kernel, arrays, expected in (("probe_copy", (x,), x), ("probe_add", (x, y), x + y)):
        out = np.zeros_like(x)
        run(kernel, *arrays, out, np.int64(n))
        assert (out == expected).all()


@pytest.mark.parametrize("n", SIZES)
def test_write_fills_every_vector_differently_and_by_its_seed(run: Any, n: int) -> None:
    outs = [np.zeros((n, 4), np.uint32) for _ in range(2)]
    for seed, out in enumerate(outs, 1):
        run("probe_write", out, np.uint32(seed), np.int64(n))
        assert len({tuple(row) for row in out.tolist()}) == n
    assert n == 0 or (outs[0] != outs[1]).any()


@pytest.mark.parametrize("n", [1, 61])
def test_read_looks_at_every_element(run: Any, n: int) -> None:
    # With one thread's share the whole array, its sum is the fold of everything: change any word and it changes.
    x = words(n, 3)
    sink = np.zeros(1, np.uint32)
    for thread in range(min(15, n)):
        share = np.bitwise_xor.reduce(x[thread::15].ravel())
        sink[0] = 0
        run("probe_read", x, sink, share, np.int64(n))
        assert sink[0] == share
    before = words(1, 9)[0, 0]
    sink[0] = before
    folds = {int(np.bitwise_xor.reduce(x[t::15].ravel())) for t in range(15)}
    never = next(v for v in range(100) if v not in folds)
    run("probe_read", x, sink, np.uint32(never), np.int64(n))
    assert sink[0] == before


LINE = 8  # vectors, 128 bytes


@pytest.mark.parametrize("dirty_of_64", [0, 21, 64])
def test_filling_a_cache_writes_whole_lines_evenly_and_reads_the_others(run: Any, dirty_of_64: int) -> None:
    x = words(64 * LINE, 5)
    filled, sink = x.copy(), np.zeros(1, np.uint32)
    run("fill_cache", filled, sink, np.uint32(7), np.uint32(3), np.uint32(dirty_of_64), np.int64(len(x)))
    written = (filled != x).reshape(64, -1)
    assert (written.all(axis=1) == written.any(axis=1)).all()
    assert written.all(axis=1).sum() == dirty_of_64
    # In any sixteen lines that follow each other there are as many as in any others, to one.
    counts = [np.roll(written.all(axis=1), -start)[:16].sum() for start in range(64)]
    assert max(counts) - min(counts) <= 1


def test_filling_a_cache_looks_at_what_it_does_not_write(run: Any) -> None:
    x = words(15 * LINE, 6)  # of fifteen threads, each has eight vectors
    for thread in range(15):
        sink, share = np.zeros(1, np.uint32), np.bitwise_xor.reduce(x[thread::15].ravel())
        run("fill_cache", x, sink, share, np.uint32(3), np.uint32(0), np.int64(len(x)))
        assert sink[0] == share


def test_random_words_are_splitmix64_under_masks(run: Any) -> None:
    n = 1000
    out = np.zeros(n, np.uint64)
    run("random_words", out, np.uint64(0), np.uint64(2**64 - 1), np.uint64(0), np.int64(n))
    # The first outputs of splitmix64 from state 0, as published with it.
    assert [hex(word) for word in out[:3].tolist()] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
    assert len(np.unique(out)) == n

    keep, fixed = masks_for(np.dtype(np.float32))
    run("random_words", out, np.uint64(5), np.uint64(keep), np.uint64(fixed), np.int64(n))
    floats = out.view(np.float32)
    assert ((floats >= 1) & (floats < 2)).all()


@pytest.mark.parametrize("n", SIZES)
def test_sums_of_words_are_of_words_and_their_places(run: Any, n: int) -> None:
    x, sums = words(max(n, 1), 7).view(np.uint64).ravel()[:n].copy(), np.zeros((3, 2), np.uint64)
    run("sum_words", x, sums, np.int64(n))
    places = np.arange(n, dtype=np.uint64)
    z = x + (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    expected = z.sum(dtype=np.uint64), ((np.uint64(2) * places + np.uint64(1)) * z).sum(dtype=np.uint64)
    assert tuple(sums.sum(axis=0, dtype=np.uint64)) == expected


@pytest.mark.parametrize(
    ("kernel", "loads", "stores"),
    [("probe_read", 5, 0), ("probe_write", 0, 1), ("probe_copy", 1, 1), ("probe_add", 2, 1)],
)
def test_probes_load_and_store_16_bytes_at_once(module: PtxModule, kernel: str, loads: int, stores: int) -> None:
    body = module.ptx.split(f".entry {kernel}(")[1].split("\n}")[0]
    # Of those that read alone, four in the unrolled loop; else one by one.
    assert len(re.findall(r"ld\.global\S*\.v4\.u32|ld\.global\S*\.v4\.b32", body)) >= loads
    assert len(re.findall(r"st\.global\S*\.v4\.u32|st\.global\S*\.v4\.b32", body)) >= stores
    assert not re.findall(r"ld\.global\S*\.[ub](?:8|16|64)\b", body)
