"""On the traffic device kernels run that are compiled already: PTX, and libraries that hold it."""

import json
from pathlib import Path

import numpy as np
import pytest
from containers import MACHINE_CODE, PTX, copying, fatbin, library
from nvcc import nvcc

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

from pytest_bandwidth.devices.base import CompiledCode, KernelSource, Launch
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice, OutOfMemory
from pytest_bandwidth.features.traffic.device import open_traffic
from pytest_bandwidth.features.traffic.ptx import compile_cubin


@pytest.fixture(scope="module")
def device():
    return open_traffic()


def run(device, source, *args):
    kernel = device.kernel(source)
    device.launcher(Launch(kernel, (1,), (32,), args), None)()
    return kernel


def copied(device, source):
    out, given = np.zeros(32, np.float32), np.arange(32, dtype=np.float32)
    kernel = run(device, source, out, given)
    assert (out == given).all()
    return kernel


@pytest.mark.parametrize("target", ["sm_90a", "sm_120", "sm_50"])
def test_ptx_runs_whatever_it_was_compiled_for(device, target):
    kernel = copied(device, read_source(copying("k", target), None, ()))
    assert kernel.resources is None
    assert kernel.code.identity.sass is None


def test_ptx_is_known_by_its_instructions(device):
    def identity(text):
        return device.kernel(read_source(text, "k", ())).code.identity.ptx

    known = identity(copying("k"))
    assert known is not None
    assert identity(f"// moved\n{copying('k')}") == known != identity(copying("k", value="%f2"))


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (copying("k").replace("u64 %rd3, %rd1", "u64 %rd3, %tid.x"), NotOnThisDevice, "of %tid.x, a .u32 register"),
        (copying("k").replace(" k(", " k.reg("), KernelError, "the PTX has no kernel named 'k'; it has: "),
        (copying("k").replace(".visible", ".global .u8 m[4000000000][4000000];\n.visible"), OutOfMemory, "variable m"),
    ],
)
def test_ptx_that_cannot_run_is_told_with_its_line(device, text, error, said):
    with pytest.raises(error, match=said):
        copied(device, read_source(text, "k", ()))


def test_errors_of_ptx_name_its_file(device, tmp_path):
    file = tmp_path / "k.ptx"
    file.write_text(copying("k").replace("ret;", "bra NOPE;"))
    with pytest.raises(KernelError, match=f"^{file}: PTX line 14: found no label NOPE"):
        copied(device, read_source(file, None, ()))


def test_of_several_ptx_the_driver_would_take_that_of_the_newest_architecture(tmp_path):
    codes = [(PTX, arch, copying("k", value=f"0f{arch:08x}").encode()) for arch in (80, 100, 90)]
    (tmp_path / "libx.so").write_bytes(library(fatbin(*codes)))
    source = read_source("libx.so", "k", (tmp_path,))
    out = np.zeros(32, np.float32)
    for arch, expected in (("sm_90", 90), ("sm_89", 80), ("sm_75", 80)):
        run(open_traffic(arch), source, out, out.copy())
        assert (out.view(np.uint32) == expected).all()


def test_without_ptx_a_test_skips_and_says_how_to_build(device):
    source = KernelSource("", "k", Path("libx.so"), compiled=(CompiledCode(b"", 90, is_ptx=False),))
    expected = "libx.so holds only machine code of k, .* build it with -gencode arch=compute_90,code=compute_90"
    with pytest.raises(NotOnThisDevice, match=expected):
        device.kernel(source)


KERNELS = """extern "C" __global__ void k(float* out, const float* in) {
    out[threadIdx.x] = in[threadIdx.x];
}
template <typename T> __global__ void scale(T* x) { x[threadIdx.x] *= 3; }
template __global__ void scale<float>(float*);
"""


@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        ("ptx", ("-ptx", "-arch=compute_90")),
        ("so", ("-shared", "-Xcompiler=-fPIC", "-gencode", "arch=compute_90,code=[sm_90,compute_90]")),
    ],
)
def test_what_nvcc_builds_runs_and_names_lines_of_the_source(device, tmp_path, suffix, options):
    (tmp_path / "k.cu").write_text(KERNELS)
    built = nvcc(tmp_path / "k.cu", tmp_path / f"libx.{suffix}", "-lineinfo", *options)
    kernel = copied(device, read_source(built, "k", ()))
    assert {site.line for site in kernel.program.kernel("k").sites if site.opcode.startswith("st")} == {2}
    assert {site.file for site in kernel.program.kernel("k").sites if site.line} == {"k.cu"}
    assert (kernel.resources is None) == (suffix == "ptx")
    x = np.ones(32, np.float32)
    run(device, read_source(built, "_Z5scaleIfEvPT_", ()), x)
    assert (x == 3).all()


def test_a_cubin_of_nvcc_holds_no_ptx(device, tmp_path):
    (tmp_path / "k.cu").write_text(KERNELS)
    cubin = nvcc(tmp_path / "k.cu", tmp_path / "k.cubin", "-cubin", "-arch=sm_90")
    (tmp_path / "libx.so").write_bytes(library(fatbin((MACHINE_CODE, 90, cubin.read_bytes()))))
    for file in (cubin, tmp_path / "libx.so"):
        assert device.kernel(read_source(file, "k", ())).resources.registers > 0
        with pytest.raises(NotOnThisDevice, match="holds only machine code of k"):
            copied(device, read_source(file, "k", ()))
        with pytest.raises(KernelError, match="has no kernel 'scale', it has _Z5scaleIfEvPT_, k"):
            read_source(file, "scale", ())


# Its array has an index that the compiler does not know.
SPILLING = """extern "C" __global__ void k(float* out, const float* in) {
    float held[32];
    for (int i = 0; i < 32; i++)
        held[int(in[i]) % 32] = in[i];
    out[threadIdx.x] = held[threadIdx.x];
}
"""
TEST = """
import numpy as np

def test_set(bandwidth):
    x, y = bandwidth.random(32), bandwidth.empty(32)
    copy = bandwidth.kernel("k.ptx")
    copy.set("c", np.full(2, VALUE, np.float32))
    bandwidth.launch(copy, 1, 32, (y, x), reads=x, writes=y)

def test_stripped(bandwidth):
    x, y = bandwidth.random(32), bandwidth.empty(32)
    bandwidth.launch(bandwidth.kernel("k.cubin", "k"), 1, 32, (y, x), reads=x, writes=y)
    assert (y == x).all()
"""


def test_a_suite_gates_ptx_with_the_variables_that_it_sets_and_machine_code_by_its_resources(project, traffic_loaded):
    del traffic_loaded
    (project.path / "k.cubin").write_bytes(compile_cubin(KERNELS).data)
    project.file("k.ptx", copying("k").replace(".visible", ".const .align 4 .b8 c[8];\n.visible"))
    traffic = ("--bandwidth-device=traffic", "--bandwidth-baseline=t.yaml")
    project.file("test_k.py", TEST.replace("VALUE", "1.5"))
    project.run_here(*traffic, "--bandwidth-update").assert_outcomes(passed=1, skipped=1)
    for value, reason in (("1.5", "code-unchanged"), ("2.5", "counts")):
        project.file("test_k.py", TEST.replace("VALUE", value))
        result = project.run_here(*traffic, "--bandwidth-json=run.json", "-rs")
        result.assert_outcomes(passed=1, skipped=1)
        result.stdout.fnmatch_lines(["SKIPPED*holds only machine code of k, * build it with -gencode arch=compute_90*"])
        of_ptx, of_cubin = json.loads((project.path / "run.json").read_text())["results"]
        assert (of_ptx["status"], of_ptx["reason_code"]) == ("OK", reason)
        assert (of_cubin["status"], of_cubin["method"]) == ("OK", "machine code")
    (project.path / "k.cubin").write_bytes(compile_cubin(SPILLING).data)
    result = project.run_here(*traffic, "--bandwidth-json=run.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines([r".*REGRESSED: stack and spill bytes a thread 0 → \d+"])
    on_host = project.run_here("--bandwidth-device=cpu", "-rs")
    on_host.assert_outcomes(skipped=2)
    on_host.stdout.fnmatch_lines(["SKIPPED*CUDA kernels need a CUDA or traffic device*"])
