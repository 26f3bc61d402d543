"""Kernels in the shape of Triton's tutorials on the traffic device: results by NumPy, sectors by hand."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", minversion="3.8", reason="make frameworks installs Triton")
pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

import triton
import triton_kernels as kernels
from triton_launches import FOLDER, LAUNCHES, ptx_of
from user_project import bandwidth_on

from pytest_bandwidth.devices.base import Budget, Workload
from pytest_bandwidth.domain.errors import KernelFault, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.features.traffic.device import TrafficDevice, open_traffic


@pytest.fixture(autouse=True)
def _nothing_compiled():
    """Let Triton compile anew: each test has a cache folder of its own, and another architecture."""
    for kernel in vars(kernels).values():
        if isinstance(kernel, triton.runtime.JITFunction):
            kernel.device_caches.clear()


@pytest.fixture(params=["sm_80", "sm_90"])
def device(request):
    """A device that Triton launches on."""
    opened = open_traffic(request.param)
    opened.begin_test()
    yield opened
    opened.end_test()


def counted(device: TrafficDevice, call, traffic: Traffic | None = None) -> Measurement:
    return device.measure(Workload(call, traffic or Traffic(1, 1)), Budget(), lambda _: None)


def test_add(device):
    n = 98_432
    x, y, out = device.random(n, "float32"), device.random(n, "float32"), device.empty(n, "float32")
    grid = (triton.cdiv(n, 1024),)
    found = counted(
        device, lambda: kernels.add[grid](x, y, out, n, block=1024), Traffic(x.nbytes + y.nbytes, out.nbytes)
    )
    np.testing.assert_array_equal(out, x + y)
    # 16 bytes a thread: n / 4 / 32 requests of 16 sectors.
    assert found.counts["load_sectors"] == 2 * n * 4 // 32
    assert found.counts["store_requests"] == n // 128
    assert found.detail["kernel"] == "add[block=1024]"
    assert {line["file"] for line in found.detail["lines"]} == {"triton_kernels.py"}
    assert any("tl.store(" in line["text"] for line in found.detail["lines"])
    assert not found.findings
    assert found.device.settings == {"arch": device.identity.settings["arch"], "triton": triton.__version__}


@pytest.mark.parametrize(("columns", "sectors"), [(1024, 16), (1000, 4)])
def test_softmax_loses_its_vector_width_where_rows_are_no_multiple_of_16_bytes(device, columns, sectors):
    """Triton knows that 1,024 is a multiple of 16, and takes nothing for granted of 1,000."""
    rows = 8
    x, out = device.random((rows, columns), "float32"), device.empty((rows, columns), "float32")
    found = counted(device, lambda: kernels.softmax[(rows,)](out, x, columns, columns, block=1024))
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
    assert found.counts["load_sectors"] == found.counts["store_sectors"] == rows * columns * 4 // 32
    assert found.counts["load_requests"] == rows * -(-1024 * 4 // 32 // sectors)


def test_a_row_with_nan_is_no_race(device):
    """Lanes that store a result which is NaN store the same."""
    x, out = device.random((4, 1024), "float32"), device.empty((4, 1024), "float32")
    x[1, 5], x[1, 9] = np.inf, np.nan
    counted(device, lambda: kernels.softmax[(4,)](out, x, 1024, 1024, block=1024))
    assert np.isnan(out[1]).all()
    assert np.isfinite(out[[0, 2, 3]]).all()


def test_copies_of_a_sum_that_differ_in_the_last_bit_are_no_race(device):
    """Four warps share 64 numbers: each number is of two threads, and each warp stores 32 copies of its sum."""
    x, out = device.random((64, 64), "float32"), device.empty(64, "float32")
    counted(device, lambda: kernels.sum_of_squares[(64,)](out, x, block=64, num_warps=4))
    np.testing.assert_allclose(out, (x.astype("float64") ** 2).sum(axis=1), rtol=1e-5)


def test_an_array_may_be_given_another_type(device):
    x, out = device.random(1024, "uint8"), device.empty(1024, "uint8")
    float8 = [triton.reinterpret(array, triton.language.float8e5) for array in (x, out)]
    counted(device, lambda: kernels.copy[(1,)](float8[0], 1024, float8[1], 1024))
    np.testing.assert_array_equal(out, x)


def test_an_autotuner_may_reset_and_restore_arrays(device):
    configs = [triton.Config({"block": block}) for block in (512, 256)]
    tuned = triton.autotune(configs, key=["n"], reset_to_zero=["out"], restore_value=["x"])(kernels.add)
    x, out = device.random(2048, "float32"), device.random(2048, "float32")
    counted(device, lambda: tuned[lambda meta: (triton.cdiv(2048, meta["block"]),)](x, x, out, 2048))
    np.testing.assert_array_equal(out, 2 * x)


def test_an_interpreter_of_triton_s_is_refused(device, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(UsageError, match=r"TRITON_INTERPRET is set, .* unset it"):
        counted(device, lambda: None)


class TestLaunch:
    N = 5000
    GRID = (triton.cdiv(N, 1024),)

    @pytest.fixture(params=["sm_80", "sm_90"])
    def bandwidth(self, request, tmp_path):
        found = bandwidth_on(f"traffic:{request.param}", tmp_path)
        found._device.begin_test()
        yield found
        found._device.end_test()

    @pytest.fixture
    def arrays(self, bandwidth):
        return bandwidth.random(self.N), bandwidth.random(self.N), bandwidth.empty(self.N)

    @pytest.mark.parametrize("grid", [GRID, GRID[0], lambda meta: (triton.cdiv(5000, meta["block"]),)])
    def test_it_counts_what_a_callable_that_launches_counts(self, bandwidth, arrays, grid):
        x, y, out = arrays
        args, declared = (*arrays, np.int32(self.N)), {"reads": (x, y), "writes": out}
        launched = bandwidth.launch(
            kernels.add, grid, None, args, constants={"block": 1024}, num_warps=8, label="one", **declared
        )
        np.testing.assert_array_equal(out, x + y)
        called = bandwidth(
            lambda: kernels.add[self.GRID](*arrays, self.N, block=1024, num_warps=8), label="other", **declared
        )
        assert launched.counts == called.counts
        assert launched.code == called.code

    def test_an_autotuned_kernel_takes_its_first_configuration(self, bandwidth, arrays):
        tuned = triton.autotune([triton.Config({"block": block}) for block in (512, 256)], key=["n"])(kernels.add)
        found = bandwidth.launch(
            tuned,
            lambda meta: (triton.cdiv(self.N, meta["block"]),),
            None,
            (*arrays, self.N),
            reads="args",
            writes=arrays[2],
        )
        assert found.detail["kernel"] == "add[block=512]"

    def test_of_an_autotuner_s_configurations_that_do_not_fit_the_next_is_taken(self, bandwidth):
        tiles = ({"rows_of_tile": side, "columns_of_tile": side, "step": step} for side, step in ((256, 128), (32, 32)))
        tuned = triton.autotune([triton.Config(tile, num_stages=4) for tile in tiles], key=["k"])(kernels.matmul)
        a, b, c = (bandwidth.random((64, 64), "float16") for _ in range(3))
        args, given = (a, b, c, 64, 64, 64), {"constants": {"together": 1}, "reads": (a, b), "writes": c}
        found = bandwidth.launch(tuned, 4, None, args, **given)
        assert "step=32" in found.detail["kernel"]

    @pytest.mark.filterwarnings("ignore:warmup, rep, and use_cuda_graph:DeprecationWarning")
    @pytest.mark.parametrize("option", ["cache_results", "use_cuda_graph"])
    def test_an_autotuner_times_nothing_and_keeps_nothing_on_disk(self, bandwidth, arrays, option):
        class Tuner(triton.runtime.Autotuner):
            """Be another library's."""

            __module__ = "another"

        configs = [triton.Config({"block": block}) for block in (512, 256)]
        tuned = Tuner(kernels.add, kernels.add.arg_names, configs, ["n"], None, None, **{option: True})
        found = bandwidth.launch(tuned, 20, None, (*arrays, self.N), reads="args", writes=arrays[2])
        assert found.detail["kernel"] == "add[block=512]"
        assert not list(Path(os.environ["TRITON_CACHE_DIR"]).rglob("*autotune*"))

    def test_an_autotuner_prunes_by_the_arguments(self, bandwidth, arrays):
        def pruned(configs, named, **_):
            return configs[named["n"] == self.N :]

        configs = [triton.Config({"block": block}) for block in (512, 256)]
        tuned = triton.autotune(configs, key=["n"], prune_configs_by={"early_config_prune": pruned})(kernels.add)
        found = bandwidth.launch(tuned, 20, None, (*arrays, self.N), reads="args", writes=arrays[2])
        assert found.detail["kernel"] == "add[block=256]"

    def test_constants_may_stand_between_arguments_which_may_be_any_arrays_of_numpy(self, bandwidth):
        x, out = np.ones(self.N, np.float32), np.zeros(self.N, np.float32)
        bandwidth.launch(
            kernels.copy, self.GRID, None, (x, out, self.N), constants={"block": 1024}, reads="x", writes="out"
        )
        np.testing.assert_array_equal(out, x)
        bandwidth.bind(kernels.copy, np.int64(5), None, (x, 1024, out, 7))()

    def test_what_the_compiler_gave_it_is_counted(self, bandwidth, arrays):
        declared = {"reads": 8, "constants": {"block": 1024}}
        found = bandwidth.launch(kernels.add, self.GRID, None, (*arrays, self.N), **declared)
        assert found.resources.registers > 0
        assert (found.counts["local_bytes_per_thread"], found.counts["resident_warps"]) == (0, 64)
        wide = bandwidth.launch(kernels.add, self.GRID, None, (*arrays, self.N), label="wide", num_warps=1, **declared)
        assert wide.counts["resident_warps"] < 64

    def test_a_sample_of_its_blocks_is_counted(self, bandwidth, arrays):
        bandwidth.marker = replace(bandwidth.marker, blocks=2)
        args, declared = (*arrays, self.N), {"reads": 8}
        run = bandwidth.bind(kernels.add, self.GRID, None, args, constants={"block": 1024})
        assert bandwidth(run, **declared).method == "ptx, 2 blocks"
        run()
        np.testing.assert_array_equal(arrays[2], arrays[0] + arrays[1])

    def test_several_are_bound_and_counted_together(self, bandwidth, arrays):
        x, y, out = arrays
        first = bandwidth.bind(kernels.add, self.GRID, None, (x, y, out, self.N), constants={"block": 1024})
        second = bandwidth.bind(kernels.add, self.GRID, None, (out, y, out, self.N), constants={"block": 1024})
        one = bandwidth(first, reads=(x, y), writes=out, label="first")
        both = bandwidth(lambda: (first(), second()), reads=(x, y), writes=out)
        np.testing.assert_allclose(out, x + y + y, rtol=1e-6)
        assert both.counts["load_sectors"] == 2 * one.counts["load_sectors"]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"block": 256}, r"found block=256, expected None: Triton sets it by num_warps"),
            ({"block": None, "shared_mem": 64}, r"found shared_mem=, which Triton's kernels do not take"),
            ({"block": None, "stream": 7}, r"found stream=, which Triton's kernels do not take"),
            (
                {"block": None, "constants": 1024},
                r"found constants=1024, expected values by the names of tl\.constexpr",
            ),
            ({"block": None, "constants": {3: 4}}, r"found constants=\{3: 4\}, expected values by the names"),
            ({"block": None, "grid": None}, r"launch: grid=None, expected one to three whole numbers"),
            (
                {"block": None, "args": (1, 2, 3, 4, 5, 6)},
                r"found 6 arguments, expected at most 5 besides constants \(x, y",
            ),
            (
                {"block": None, "args": (1, 2), "constants": {"blok": 8}},
                r"found 2 arguments and no value for out, n, block; constants= has blok, which the kernel does not "
                r'take: expected a value for each parameter, those of tl\.constexpr in constants={"block": …}',
            ),
            ({"block": None, "num_warps": "4"}, r"found num_warps='4', expected a power of two"),
            ({"block": None, "num_warps": 3}, r"found num_warps=3, expected a power of two"),
            ({"block": None, "num_stages": 2.0}, r"found num_stages=2\.0, expected a whole number"),
            ({"block": None, "num_ctas": True}, r"found num_ctas=True, expected a whole number"),
            (
                {"block": None, "args": (np.zeros(4, np.complex64),)},
                r"argument 1 holds complex64, expected whole or floating",
            ),
            ({"block": None, "args": (4, np.zeros(4, ">f4"))}, r"argument 2 holds >f4, expected whole or floating"),
        ],
    )
    def test_what_triton_s_kernels_do_not_take_is_refused(self, bandwidth, given, message):
        with pytest.raises(UsageError, match=message):
            bandwidth.launch(kernels.add, **{"grid": 4, "args": (), "reads": 8, **given})

    def test_what_a_tuner_sets_is_no_argument(self, bandwidth, arrays):
        sizes = triton.heuristics({"block": lambda _: 1024})(kernels.add)
        tuned = triton.autotune([triton.Config({}, num_warps=warps) for warps in (2, 4)], key=[])(sizes)
        found = bandwidth.launch(
            tuned, lambda named: named["n"] // named["block"] + 1, None, (*arrays, self.N), reads=8
        )
        assert found.detail["kernel"] == "add[block=1024]"
        with pytest.raises(UsageError, match="found num_warps, which the autotuner sets: leave it out"):
            bandwidth.launch(tuned, 4, None, (*arrays, self.N), reads=8, num_warps=4)
        with pytest.raises(
            UsageError, match=r"found 5 arguments, expected at most 4 besides constants \(x, y, out, n\)"
        ):
            bandwidth.launch(tuned, 4, None, (*arrays, self.N, 1024), reads=8, label="many")
        some = [triton.Config({"block": 1024}), triton.Config({})]
        pruned = {"early_config_prune": lambda configs, *_, **__: configs[:1]}
        tuned = triton.autotune(some, key=[], prune_configs_by=pruned)(kernels.add)
        bandwidth.launch(tuned, self.GRID, None, (*arrays, self.N), reads=8, label="pruned")

    def test_a_compiled_kernel_is_refused(self, bandwidth, arrays):
        compiled = kernels.add[self.GRID](*arrays, self.N, block=1024)
        with pytest.raises(
            UsageError, match=r"found a CompiledKernel of Triton, expected a function with @triton\.jit"
        ):
            bandwidth.launch(compiled, self.GRID, None, (*arrays, self.N), reads=8)

    def test_a_kernel_of_cuda_takes_no_option_of_triton_s(self, bandwidth):
        with pytest.raises(UsageError, match="found num_warps=, which only Triton's kernels take"):
            bandwidth.launch(object(), 4, 64, (), reads=8, num_warps=4)
        with pytest.raises(UsageError, match="found constants=, which only Triton's kernels take"):
            bandwidth.launch(object(), 4, 64, (), reads=8, constants={})

    def test_on_the_host_the_test_skips(self, tmp_path):
        with pytest.raises(NotOnThisDevice, match="a Triton kernel needs a GPU, or --bandwidth-device=traffic"):
            bandwidth_on("cpu", tmp_path).launch(kernels.add, 4, None, (), reads=8)


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_tutorials(device, name):
    """Their PTX is kept for tests without Triton, and is what Triton makes today."""
    launch = LAUNCHES[name]()
    text = ptx_of(device, name, launch)
    launch.check()
    kept = (FOLDER / f"{name}.{device.identity.settings['arch']}.ptx").read_text(encoding="utf-8")
    assert text == kept, f"Triton {triton.__version__} makes other PTX: python tests/support/triton_launches.py"


@pytest.mark.parametrize("together", [1, 4])
def test_matrix_products(device, together):
    """As Triton does unless told otherwise: three stages, larger tiles."""
    m, n, k = 200, 136, 80
    a, b, c = device.random((m, k), "float16"), device.random((k, n), "float16"), device.empty((m, n), "float16")
    tile = {"rows_of_tile": 64, "columns_of_tile": 64, "step": 32, "together": together}
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 64),)
    found = counted(device, lambda: kernels.matmul[grid](a, b, c, m, n, k, **tile))
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-3)
    # Each tile's row of A and column of B, once; the last tiles read beginnings of the matrices for what is beyond.
    tiles, halves = grid[0], 2
    assert found.counts["load_bytes"] == tiles * (64 + 64) * k * halves


HELPED = """
import triton
import triton.language as tl
from helping import fetched

@triton.jit
def scale(x, y, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, fetched(x, at, n) * 3)

def test_scale(bandwidth):
    n = 1 << 12
    x, y = bandwidth.random(n, "float32"), bandwidth.empty(n, "float32")
    bandwidth(lambda: scale[(n // 1024,)](x, y, n, block=1024), reads=x, writes=y)
"""
HELPING = (
    "import triton, triton.language as tl\n\n@triton.jit\ndef fetched(x, at, n):\n    return tl.load(x + at * 8 % n)\n"
)


def test_what_a_helper_loads_is_counted_at_the_helper_s_line(project):
    project.file("helping.py", HELPING)
    project.file("test_scale.py", HELPED)
    project.run("--bandwidth-device=traffic", "--bandwidth-json=run.json").assert_outcomes(passed=1)
    (row,) = json.loads((project.path / "run.json").read_text())["results"]
    loads = {(line["file"], line["line"]) for line in row["detail"]["lines"] if line["loads"]["requests"]}
    assert loads == {("helping.py", 5)}


def test_a_lost_mask_is_a_fault_with_the_line_of_python(device):
    x, out = device.random(1000, "float32"), device.empty(1000, "float32")
    lines = Path(kernels.__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "total = tl.load(x + at" in text)
    with pytest.raises(KernelFault, match=rf"kernel add: out-of-bounds: triton_kernels\.py:{line}: .* of x, which has"):
        kernels.add[(1,)](x, x, out, 1024, block=1024)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_a_tensor_without_memory_is_refused_by_name(device):
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    torch, y = sys.modules["torch"], device.empty(64, "float32")
    with fake.FakeTensorMode():
        x = torch.ones(64)
    with pytest.raises(UsageError, match="argument `x` of kernel add: found a FakeTensor on cpu, expected an array"):
        kernels.add[(1,)](x, y, y, 64, block=64)


def test_addresses_in_an_array_are_no_fault(device):
    """As the tutorial of grouped matrix products takes its matrices."""
    x, out, table = device.random(64, "float32"), device.empty(64, "float32"), device.empty(1, "int64")
    table[0] = x.ctypes.data
    with pytest.raises(NotOnThisDevice, match=r"line \d+: table holds addresses of arrays"):
        kernels.copy_from_table[(1,)](table, out, block=64)
    torch = pytest.importorskip("torch")
    y = torch.ones(64)
    with pytest.raises(NotOnThisDevice, match=r"line \d+: table holds addresses of arrays"):
        kernels.copy_from_table[(1,)](torch.tensor([y.data_ptr()]), out, block=64)


def test_tensors_of_pytorch_are_read_and_written(device):
    torch = pytest.importorskip("torch")
    n = 2000
    x = torch.arange(n, dtype=torch.bfloat16)[8:]
    out = torch.empty_like(x)
    counted(device, lambda: kernels.add[(2,)](x, x, out, n - 8, block=1024))
    assert torch.equal(out, x + x)


def test_memory_of_a_tensor_that_went_is_no_other_array(device):
    torch = pytest.importorskip("torch")
    x, out = torch.arange(1024, dtype=torch.float32), torch.zeros(1024)

    def through_temporaries():
        for _ in range(3):
            between = torch.empty_like(x)
            kernels.copy[(1,)](x, 1024, between, 1024)
            kernels.copy[(1,)](between, 1024, out, 1024)
            del between

    found = counted(device, through_temporaries)
    assert torch.equal(out, x)
    arrays = {name: [] for name in ("input", "scratch", "output")}
    for array in found.detail["arrays"]:
        arrays[array["role"]].append((array["nbytes"], array["bytes_read"], array["bytes_written"]))
    size = 4096
    assert arrays == {
        "input": [(size, 3 * size, 0)], "scratch": [(size, size, size)] * 3, "output": [(size, 0, 3 * size)],
    }  # fmt: skip


def test_what_is_no_array_of_this_process_is_refused_by_name(device):
    class Elsewhere:
        dtype, device = "float32", "cuda:0"

        def data_ptr(self) -> int:
            return 64

    x = device.random(64, "float32")
    with pytest.raises(UsageError, match="argument `y` of kernel add: found a Elsewhere on cuda:0, expected an array"):
        kernels.add[(1,)](x, Elsewhere(), x, 64, block=64)


def test_a_program_may_be_a_cluster_of_blocks(device):
    if "sm_80" in device.identity.name:
        pytest.skip("sm_80 has no clusters")
    x, y, out = (device.random(1000, "float32") for _ in range(3))
    kernels.add[(8,)](x, y, out, 1000, block=128, num_ctas=2)
    np.testing.assert_array_equal(out, x + y)
    x, out = device.random((4, 1024), "float32"), device.empty((4, 1024), "float32")
    found = counted(device, lambda: kernels.softmax[(4,)](out, x, 1024, 1024, block=1024, num_ctas=2))
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
    assert found.counts["load_sectors"] == 4 * 1024 * 4 // 32


TEST = """
import triton
import triton.language as tl

@triton.jit
def scale(x, y, n, stride: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, tl.load(x + at * stride % n) * 3)

def test_scale(bandwidth):
    n = 1 << 14
    x, y = bandwidth.random(n, "float32"), bandwidth.empty(n, "float32")
    bandwidth(lambda: scale[(n // 1024,)](x, y, n, stride=STRIDE, block=1024), reads=x, writes=y)
"""


OWN = "import numpy as np\n" + TEST.replace('bandwidth.random(n, "float32")', 'np.ones(n, "float32")')


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (OWN, "traffic", r".*of type: (numpy\.)?ndarray; Triton takes arrays of bandwidth\.random and .*"),
        (TEST, "cpu", r".*0 active drivers .*; Triton finds no GPU: --bandwidth-device=traffic counts its kernels.*"),
    ],
)
def test_what_a_user_of_triton_meets_first_is_told_with_a_remedy(project, text, kind, said):
    project.file("test_scale.py", text.replace("STRIDE", "1"))
    result = project.run(f"--bandwidth-device={kind}")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([said])


def test_what_the_compiler_says_keeps_its_lines_and_names_the_helper_s_file(project):
    project.file("helping.py", HELPING.replace("tl.load", "tl.loda"))
    project.file("test_scale.py", HELPED)
    result = project.run("--bandwidth-device=traffic")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r".* raised CompilationError: kernel fetched \(helping\.py:5\): AttributeError\(.*'loda'\"\)",
            r"    def fetched\(x, at, n\):",
            r"        return tl\.loda\(x \+ at \* 8 % n\)",
            r"               \^",
        ],
        consecutive=True,
    )


# Where the mask may end anywhere, a thread loads 4 bytes in place of 16.
MASKED = TEST.replace("at * stride % n) * 3", "at, mask=at < n) * 3, mask=at < n").replace("STRIDE", "1")


@pytest.mark.parametrize(
    ("good", "bad", "first", "where"),
    [
        (
            *(TEST.replace("STRIDE", stride) for stride in "18"),
            r"REGRESSED: 8× more sectors loaded than the baseline",
            r" +at +test_scale\.py:8 loads strided .*",
        ),
        (
            *(MASKED, MASKED.replace("triton.jit", 'triton.jit(do_not_specialize=["n"])')),
            r"REGRESSED: 4× more sectors loaded than the baseline",
            r" +at +test_scale\.py:8 loads strided \(16 bytes\), 16\.0 sectors a request",
        ),
    ],
)
def test_a_kernel_that_lost_its_pattern_is_regressed_with_the_line(project, monkeypatch, good, bad, first, where):
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    options = ("--bandwidth-device=traffic", "--bandwidth-baseline=t.yaml")
    project.file("test_scale.py", good)
    project.run(*options, "--bandwidth-update").assert_outcomes(passed=1)
    result = project.run(*options, "--bandwidth-strict")
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r".* OK +code unchanged"])
    project.file("test_scale.py", bad)
    result = project.run(*options)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([first, where])


def test_what_another_release_of_triton_compiled_is_not_comparable(project, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    options = ("--bandwidth-device=traffic", "--bandwidth-baseline=t.yaml")
    project.file("test_scale.py", TEST.replace("STRIDE", "1"))
    project.run(*options, "--bandwidth-update").assert_outcomes(passed=1)
    file = project.path / "t.runs.jsonl"
    assert f'"triton":"{triton.__version__}"' in file.read_text()
    file.write_text(file.read_text().replace(triton.__version__, "2.0.0"))
    project.file("test_scale.py", TEST.replace("STRIDE", "8"))
    result = project.run(*options)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r".*MISMATCH: triton is .*, was 2\.0\.0", r"    remedy +pin triton==2\.0\.0, or .*"])


def test_after_the_test_triton_has_the_driver_that_it_had(device):
    driver = triton.runtime.driver
    assert driver.__dict__["_active"] is device._triton
    assert triton.runtime.Autotuner._bench.__module__ != "triton.runtime.autotuner"
    device.end_test()
    assert driver.__dict__["_active"] is not device._triton
    assert triton.runtime.Autotuner._bench.__module__ == "triton.runtime.autotuner"
    device.begin_test()
    assert driver.__dict__["_active"] is device._triton
