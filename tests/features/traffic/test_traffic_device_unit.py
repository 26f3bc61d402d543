"""What the traffic device keeps between launches."""

import json
import weakref

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

from pytest_bandwidth.devices.base import Budget, KernelSource, Launch, Workload
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import KernelFault, UsageError
from pytest_bandwidth.domain.measured.measurement import UNTOUCHED
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.features.traffic import device as traffic
from pytest_bandwidth.features.traffic.device import open_traffic
from pytest_bandwidth.features.traffic.ptx import compile_cubin

COPY = 'extern "C" __global__ void copy(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x]; }'


@pytest.fixture(scope="module")
def device():
    return open_traffic()


def measured(device, work, traffic=None, **given):
    """Measure a launch or a callable."""
    launch = work if isinstance(work, Launch) else None
    call = work if launch is None else device.launcher(launch, None)
    return device.measure(Workload(call, traffic or Traffic(1, 1), launch=launch, **given), Budget(), lambda _: None)


def copied(device, out, source):
    kernel = device.kernel(KernelSource(text=COPY, name="copy"))
    device.launcher(Launch(kernel=kernel, grid=(1,), block=(64,), args=(out, source)), None)()


def test_an_empty_array_is_not_kept_alive(device):
    array = device.empty(64, "float32")
    copied(device, np.zeros(64, np.float32), np.ones(64, np.float32))
    watched = weakref.ref(array)
    del array
    assert watched() is None


def test_a_view_of_an_empty_array_is_watched(device):
    view = device.empty(128, "float32")[64:]
    with pytest.raises(KernelFault, match="uninitialised"):
        copied(device, np.zeros(64, np.float32), view)


def test_a_view_with_gaps_is_refused_as_on_a_gpu(device):
    gaps = device.random((64, 16), "float32")[:, :4]
    with pytest.raises(UsageError, match=r"argument 2 is not contiguous .*: pass bandwidth\.xp\.ascontiguousarray"):
        copied(device, np.zeros(64, np.float32), gaps)


def test_arrays_that_went_do_not_hide_those_that_stay(device):
    first, second = device.empty(64, "float32"), device.empty(64, "float32")
    del first
    with pytest.raises(KernelFault, match="uninitialised"):
        copied(device, np.zeros(64, np.float32), second)
    copied(device, second, np.ones(64, np.float32))
    copied(device, np.zeros(64, np.float32), second)


COUNTED = """
__device__ int calls = 0;
extern "C" __global__ void count(int* out) { *out = ++calls; }
extern "C" __global__ void other(int* out) { *out = -1; }
"""


def counted(device, kernel):
    out = np.zeros(1, np.int32)
    device.launcher(Launch(kernel=kernel, grid=(1,), block=(1,), args=(out,)), None)()
    return int(out[0])


def test_a_source_is_compiled_once_for_all_its_kernels(device, monkeypatch):
    compiled = []
    monkeypatch.setattr(
        traffic.nvrtc, "compile_cubin", lambda *a, **k: compiled.append(k["options"]) or compile_cubin(*a, **k)
    )
    text = COUNTED + "// a text of its own"
    kernels = [device.kernel(KernelSource(text=text, name=name)) for name in ("count", "other", "count")]
    assert [counted(device, kernel) for kernel in kernels] == [1, -1, 2]
    device.kernel(KernelSource(text=text, name="count", options=("-DN=1",)))
    open_traffic("sm_80").kernel(KernelSource(text=text, name="count"))
    assert compiled == [(), ("-DN=1",), ()]


@pytest.mark.parametrize(
    ("shift", "told"),
    [
        (32, "128 B outside the views that it was given"),
        (8, "96 B of `x`, 32 B outside the views that it was given"),
    ],
)
def test_what_a_kernel_writes_beside_a_view_is_told(device, shift, told):
    text = f'extern "C" __global__ void shifted(float* x) {{ x[threadIdx.x + {shift}] = 1; }}'
    whole = np.zeros(64, np.float32)
    launch = Launch(device.kernel(KernelSource(text, "shifted")), (1,), (32,), (whole[:32],))
    findings = measured(device, launch, Traffic(0, 64)).findings
    (finding,) = (found for found in findings if found.code == "declared-bytes-written")
    assert finding.text.endswith(f"the kernel touches 128 B: {told}")
    assert finding.level == "note"


def test_declared_arrays_that_no_launch_touches_are_told(device):
    x, y, other, whole = (np.ones(64, np.float32) for _ in range(4))
    launch = Launch(device.kernel(KernelSource(text=COPY, name="copy")), (1,), (64,), (y, x))

    def untouched(reads, writes):
        findings = measured(device, launch, reads=reads, writes=writes).findings
        return [found.text for found in findings if found.code == UNTOUCHED]

    assert untouched((x,), (y,)) == untouched((x[32:],), (y[:1],)) == untouched((), ()) == []
    assert untouched((x, other), (whole,)) == [
        "array 2 of reads= (float32, (64,)) is read by no kernel",
        "array 1 of writes= (float32, (64,)) is written by no kernel",
    ]


TWO_PASSES = """
extern "C" __global__ void pairs(float* out, const float* x) {
    int i = blockIdx.x * 32 + threadIdx.x;
    out[i] = x[i] + x[i + 128];
}
extern "C" __global__ void total(float* sum, const float* parts) { atomicAdd(sum, parts[threadIdx.x]); }
"""


def test_launches_of_a_callable_are_counted_each_and_temporaries_stay_apart(device):
    pairs, total = (device.kernel(KernelSource(TWO_PASSES, name)) for name in ("pairs", "total"))
    x, sums = np.ones(256, np.float32), np.zeros(1, np.float32)

    def launch(kernel, grid, block, *args):
        device.launcher(Launch(kernel, (grid,), (block,), args), None)()

    def both(times=1):
        for _ in range(times):
            parts = device.empty(128, "float32")
            launch(pairs, 4, 32, parts, x)
            launch(total, 1, 128, sums, parts)
            del parts

    found = measured(device, both)
    assert sums[0] == 256
    names = "load_sectors", "store_sectors", "atomic_sectors", "distinct_bytes_read", "distinct_bytes_written"
    each = [[launch[name] for name in ("kernel", "blocks", "times", *names)] for launch in found.detail["launches"]]
    # Requests of four sectors: two by each of four warps, and a store; four loads, with atomics at one place.
    assert each == [["pairs", 4, 1, 32, 16, 0, 1024, 512], ["total", 1, 1, 16, 0, 4, 516, 4]]
    assert [found.counts[name] for name in names] == [48, 16, 4, 1540, 516]
    roles = {"out": "scratch", "x": "input", "sum": "in place"}
    assert {array["name"]: array["role"] for array in found.detail["arrays"]} == roles
    assert json.dumps(measured(device, both).detail) == json.dumps(found.detail), "no address of this process"

    many = measured(device, lambda: both(60))
    assert (len(many.detail["launches"]), many.detail["launch_count"]) == (100, 120)
    assert sum(array["role"] == "scratch" for array in many.detail["arrays"]) == 60


def test_one_launch_has_no_list_of_launches_and_no_roles(device):
    out, x = np.zeros(64, np.float32), np.ones(64, np.float32)
    detail = measured(device, lambda: copied(device, out, x)).detail
    assert "launches" not in detail
    assert [line["text"] for line in detail["lines"]] == [COPY]
    assert detail["arrays"][0] == {"name": "out", "nbytes": 256, "bytes_read": 0, "bytes_written": 256}


def test_launches_alike_in_a_row_are_one(device):
    a, b = np.zeros(65, np.float32), np.zeros(64, np.float32)

    def five():
        for out, given in ((a[:64], b), (b, a[:64]), (a[1:], b), (b, a[:64]), (a[:64], b)):
            copied(device, out, given)

    found = measured(device, five)
    assert (found.method, found.detail["kernel"], found.detail["blocks"]) == ("ptx", "copy", 5)
    launches = found.detail["launches"]
    assert [(one["times"], one["store_sectors"]) for one in launches] == [(2, 8), (1, 10), (2, 8)]


def test_a_printf_that_ran_is_a_note(device):
    lines = "".join(f'    if (n > {number}) printf("%d", n);\n' for number in range(12))
    kernel = device.kernel(KernelSource(f'extern "C" __global__ void k(int n) {{\n{lines}}}\n', "k"))

    def noted(n):
        findings = measured(device, Launch(kernel, (1,), (1,), (n,)), Traffic(0, 0)).findings
        return [(found.code, found.level, found.text) for found in findings]

    assert noted(0) == []
    assert noted(2) == [("printf", "note", "printf was called and printed nothing: kernel.cu:2, kernel.cu:3")]
    ((_, _, told),) = noted(12)
    assert told.endswith(", kernel.cu:9")


def test_headers_beside_a_kernels_file_are_found(device, tmp_path):
    (tmp_path / "one.cuh").write_text("#define ONE 1\n")
    file = tmp_path / "k.cu"
    file.write_text('#include "one.cuh"\nextern "C" __global__ void k(float* x) { x[threadIdx.x] = ONE; }\n')
    x = np.zeros(32, np.float32)
    launch = Launch(device.kernel(read_source(file, "k", ())), (1,), (32,), (x,))
    device.launcher(launch, None)()
    assert x.min() == 1


def test_a_kernel_in_a_namespace_is_found_by_its_name(device):
    text = "namespace mine { __global__ void one(float* x) { x[threadIdx.x] = 1; } }"
    kernel = device.kernel(read_source(text, "mine::one", ()))
    x = np.zeros(32, np.float32)
    device.launcher(Launch(kernel, (1,), (32,), (x,)), None)()
    assert (x == 1).all()


def inputs(device, *args, blocks=None, setup=None):
    launch = Launch(None, (1, 1, 1), (32, 1, 1), args)
    return device.inputs_of(Workload(str, Traffic(1, 1), launch=launch, blocks=blocks, setup=setup))


def test_what_decides_counts_beside_code_is_hashed(device):
    whole = np.arange(96, dtype=np.int32)
    known = inputs(device, whole[:64], whole[32:], np.int32(3))
    assert inputs(device, (again := whole.copy())[:64], again[32:], np.int32(3)) == known
    others = [
        inputs(device, whole[:64], whole.copy()[32:], np.int32(3)),  # of another allocation
        inputs(device, whole[:64], whole[31:], np.int32(3)),
        inputs(device, whole[:64] + 1, whole[32:], np.int32(3)),
        inputs(device, whole[:64], whole[32:], np.int32(3), blocks=4),
    ]
    assert known not in others
    assert len({*others}) == len(others)


def test_a_set_up_runs_before_what_it_leaves_is_hashed(device):
    array = np.zeros(64, np.float32)
    assert inputs(device, array, setup=lambda: array.fill(1)) == inputs(device, np.ones(64, np.float32))


def test_what_a_callable_would_count_cannot_be_told(device):
    assert device.inputs_of(Workload(str, Traffic(1, 1))) is None


# ---- variables that a test sets --------------------------------------------------------------------------------------

TEXT = """
__constant__ float c[4];
__constant__ int none = 0, many[2] = {}, braces{0}; __constant__ int parens(0), first[2] = {1, 2}, last = 0;
__device__ int counter;
extern "C" __global__ void k(float* x) {
    x[threadIdx.x] = c[threadIdx.x % 4] + none + many[threadIdx.x % 2] + counter
        + 0 * (braces + parens + first[threadIdx.x % 2] + last);
}
"""
C = np.arange(4, dtype=np.float32)


@pytest.fixture
def kernel(device):
    device.begin_test()
    return device.kernel(read_source(TEXT, "k", ()))


def launched(device, kernel):
    x = np.zeros(32, np.float32)
    launch = Launch(kernel, (1,), (32,), (x,))
    device.launcher(launch, None)()
    return x[:4].tolist(), device.code(launch).identity.launch


def test_variables_are_set_and_identify_the_launch(device, kernel):
    kernel.set("c", C)
    first, known = launched(device, kernel)
    kernel.set("counter", np.int32(7))
    second, other = launched(device, kernel)
    assert (first, second) == ([0, 1, 2, 3], [7, 8, 9, 10])
    assert known != other
    device.begin_test()
    again = device.kernel(read_source(TEXT, "k", ()))
    again.set("c", C.copy())
    assert launched(device, again) == (first, known)
    again.set("c", C + np.float32(0.5))
    assert launched(device, again)[1] != known


def test_constants_without_a_value_are_not_read(device, kernel):
    """PTX writes a zero and no value alike: of its own PTX nothing is known."""
    with pytest.raises(KernelFault) as told:
        launched(device, kernel)
    told.match(
        r"^kernel k: uninitialised: kernel\.cu:6: thread .* reads the __constant__ c, which has no value: set it"
    )
    assert "many" not in str(told.value)
    for other in ("none", "braces", "parens", "first", "last"):
        assert other not in str(told.value)


def test_kernels_of_a_source_share_variables_until_the_test_ends():
    device = open_traffic()
    text = """__constant__ int c; __device__ int seen;
    extern "C" __global__ void put() { seen = 5; }
    extern "C" __global__ void get(int* x) { x[0] = c + seen; }"""
    put, get = (device.kernel(read_source(text, name, ())) for name in ("put", "get"))
    x = np.zeros(1, np.int32)
    put.set("c", np.int32(2))
    device.launcher(Launch(put, (1,), (1,), ()), None)()
    device.launcher(Launch(get, (1,), (1,), (x,)), None)()
    assert x[0] == 7
    device.begin_test()
    with pytest.raises(KernelFault, match="the __constant__ c, which has no value"):
        device.launcher(Launch(get, (1,), (1,), (x,)), None)()
    get.set("c", np.int32(0))
    device.launcher(Launch(get, (1,), (1,), (x,)), None)()
    assert x[0] == 0
