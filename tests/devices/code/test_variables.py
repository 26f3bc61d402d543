"""The sizes of variables are read from PTX and from cubins; nothing that cannot be read breaks it."""

from pathlib import Path

import numpy as np
import pytest
from containers import library
from nvcc import nvcc

from pytest_bandwidth.devices.base import KernelSource
from pytest_bandwidth.devices.code.variables import checked_contents, variable_sizes
from pytest_bandwidth.domain.errors import UsageError

DECLARED = """
.version 8.3
.target sm_90
.address_size 64
.const .align 4 .b8 c[16];
.visible .global .align 4 .u32 n = 5;
.global .align 16 .v4 .f32 wide;
\t.global .align 2 .b16 matrix[3][5] = {1, 2};
.visible .entry k(.param .u64 x) { ld.global.f32 %f1, [y]; ret; }
"""
SOURCE = """
__constant__ float c[4];
__device__ int n = 5;
__device__ double zeros[3];
extern "C" __global__ void k(double* x) { x[threadIdx.x] = c[threadIdx.x] + n + zeros[threadIdx.x]; }
"""


def test_ptx_declares_sizes() -> None:
    assert variable_sizes(DECLARED.encode()) == {"c": 16, "n": 4, "wide": 16, "matrix": 30}


@pytest.mark.parametrize("form", ["ptx", "cubin"])
def test_what_nvcc_makes_has_the_sizes_of_the_source(tmp_path: Path, form: str) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    built = nvcc(tmp_path / "k.cu", tmp_path / f"k.{form}", f"-{form}", "-arch=sm_90")
    assert variable_sizes(built.read_bytes()) == {"c": 16, "n": 4, "zeros": 24}


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x7fELF\x02\x01", library(b"")])
def test_what_holds_no_variables_has_none(data: bytes) -> None:
    assert variable_sizes(data) == {}


@pytest.mark.parametrize(
    ("declared", "dtype", "fits"),
    [
        ("__constant__ float v[2];", "f8", False),
        ("__constant__ float v[2];", "i4", False),
        ("__constant__ float v[2];", "f4", True),
        ("__constant__ float v[2];", "u4", True),  # bits
        ("__constant__ float v[2];", "u1", True),  # bytes
        ("static __device__ const volatile int v[2] = {1, 2};", "f4", False),
        ("static __device__ const volatile int v[2] = {1, 2};", "u4", True),
        ("__constant__ int w[3], v[2];", "f4", False),
        ("__constant__ float4* w, v;", "f8", True),
        ("__constant__ real v[2];", "f8", True),
        ("__device__ long long v{0};", "f8", False),
        ("/* __constant__ float v[2]; */ __constant__ double v;", "f8", True),
        ("#ifdef D\n__constant__ double v;\n#else\n__constant__ float v[2];\n#endif", "f8", True),
        ("__device__ float v(float x); __constant__ double v;", "f8", True),
    ],
)
def test_what_is_set_has_the_type_of_the_source_where_that_tells(declared: str, dtype: str, fits: bool) -> None:
    value, source = np.ones(8 // np.dtype(dtype).itemsize, dtype), KernelSource(declared, "k")
    if fits:
        assert checked_contents("v", value, {"v": 8}, source) == value.tobytes()
    else:
        with pytest.raises(
            UsageError, match=f"^kernel.set: found {value.dtype} for v, expected an array of its type, "
        ):
            checked_contents("v", value, {"v": 8}, source)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("v", np.zeros(4), r"found 32 bytes \(float64\) for v, expected an array of 8 bytes"),
        ("v", np.zeros(0), r"found 0 bytes \(float64\) for v, expected an array of 8 bytes"),
        ("nope", np.zeros(1), "the kernel's module has no variable 'nope', it has c, v; compilers leave out"),
        ([], np.zeros(1), r"the kernel's module has no variable \[\]"),
        ("v", 1.5, "found 1.5 for 'v', expected an array or a NumPy scalar"),
        ("v", [1.0], "found .* for 'v', expected an array or a NumPy scalar"),
        ("v", np.array([None, None]), r"found array\(\[None, None\].* for 'v', expected an array"),
    ],
)
def test_what_cannot_be_set_is_told(variable: object, value: object, said: str) -> None:
    with pytest.raises(UsageError, match=f"^kernel.set: {said}"):
        checked_contents(variable, value, {"v": 8, "c": 4}, KernelSource("", "k"))
