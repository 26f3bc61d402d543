"""`pytest-bandwidth resources`: what a compiler gave the kernels of a file, and whether it is worse than before."""

import json
import math
import re

import pytest

pytest.importorskip("cuda.bindings", reason="kernels are compiled with NVRTC: pip install 'pytest-bandwidth[traffic]'")


from pytest_bandwidth.cli.main import main
from pytest_bandwidth.devices.code.cubin import resources_of
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.features.traffic.ptx.nvrtc import _compile, compile_cubin

TWO = """
__device__ __noinline__ float far(const float* in, int i) { return in[i] + in[i + 1]; }
extern "C" __global__ void sums(float* out, const float* in)
{
    float kept[64];
    #pragma unroll
    for (int k = 0; k < 64; k++)
        kept[k] = in[threadIdx.x + k * 32];
    #pragma unroll
    for (int k = 0; k < 256; k++)
        kept[k % 64] = kept[k % 64] * kept[(k + 7) % 64] + kept[(k + 31) % 64];
    float sum = far(in, threadIdx.x);
    #pragma unroll
    for (int k = 0; k < 64; k++)
        sum += kept[k] * kept[63 - k];
    out[threadIdx.x] = sum;
}
extern "C" __global__ void turned(float* out)
{
    __shared__ float tile[256];
    tile[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[255 - threadIdx.x];
}
"""
FEW = ("--maxrregcount=32",)


@pytest.mark.parametrize(("arch", "options"), [("sm_75", ()), ("sm_90", FEW), ("sm_120", ())])
def test_a_cubin_says_what_ptxas_reports(arch, options):
    log = _compile(TWO, arch, arch, (*options, "--ptxas-options=-v"), (), "kernel.cu", math.inf)["log"]
    reported = {}
    for name, told in re.findall(r"Compiling entry function '(\w+)'(.*?Used [^\n]*)", log, re.DOTALL):
        shared = re.findall(r"(\d+) bytes smem", told)
        stack, registers = re.findall(r"(\d+) bytes stack", told)[-1], re.findall(r"Used (\d+) registers", told)[0]
        reported[f"{name} {arch}"] = KernelResources(int(registers), int(stack), int(*shared))
    assert resources_of(compile_cubin(TWO, arch=arch, options=options).data) == reported
    assert len(reported) == 2
    assert bool(reported[f"sums {arch}"].local_bytes) is bool(options)


@pytest.fixture(scope="module")
def lean():
    return compile_cubin(TWO).data


@pytest.fixture(scope="module")
def spilling():
    return compile_cubin(TWO, options=FEW).data


def test_a_kernel_that_came_to_spill_is_worse_and_listed(tmp_path, capsys, lean, spilling):
    file, known = tmp_path / "k.cubin", tmp_path / "known.json"
    file.write_bytes(lean)
    assert main(["resources", str(file), "-o", str(known)]) == 0
    figures = json.loads(known.read_text())["kernels"]
    assert figures["turned sm_90"]["shared_bytes"] == 1024
    assert main(["resources", str(file), f"--baseline={known}"]) == 0
    capsys.readouterr()
    file.write_bytes(spilling)
    assert main(["resources", str(file), f"--baseline={known}"]) == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("sums sm_90"))
    assert " 0 → " in line
    assert main(["resources", str(file), "-o", str(known)]) == 0
    file.write_bytes(lean)
    assert main(["resources", str(file), f"--baseline={known}"]) == 0, "registers alone are no loss"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("k.so", b"\x7fELF\x02\x01", "found no machine code of a CUDA kernel"),
        ("k.ptx", b".version 8.3\n.target sm_90\n", "found no machine code of a CUDA kernel"),
        ("known.json", b"{}", "found another form"),
    ],
)
def test_what_holds_no_kernels_is_unusable(tmp_path, capsys, lean, name, data, said):
    file, cubin = tmp_path / name, tmp_path / "lean.cubin"
    file.write_bytes(data)
    cubin.write_bytes(lean)
    given = [str(cubin), f"--baseline={file}"] if name == "known.json" else [str(file)]
    assert main(["resources", *given]) == 2
    assert said in capsys.readouterr().err


def test_files_of_a_folder_are_listed_by_name_and_those_that_are_gone(tmp_path, capsys, lean):
    folder, known = tmp_path / "built", tmp_path / "known.json"
    (folder / "in").mkdir(parents=True)
    for name in ("a.cubin", "in/b.cubin", "c.txt"):
        (folder / name).write_bytes(lean)
    assert main(["resources", str(folder), "-o", str(known)]) == 0
    files = {name.partition(":")[0] for name in json.loads(known.read_text())["kernels"]}
    assert files == {"a.cubin", "in/b.cubin"}
    (folder / "a.cubin").unlink()
    assert main(["resources", str(folder), f"--baseline={known}"]) == 0
    assert "gone: a.cubin: sums sm_90" in capsys.readouterr().out.splitlines()
    (folder / "in" / "b.cubin").rename(folder / "renamed.cubin")
    assert main(["resources", str(folder), f"--baseline={known}"]) == 2, "nothing was compared"
    assert f"{known}: found none of its 4 kernels in {folder}" in capsys.readouterr().err
