"""The sizes of variables are read from PTX and from cubins; nothing that cannot be read breaks it."""

from pathlib import Path

import pytest
from containers import library
from nvcc import nvcc

from pytest_bandwidth.devices.code.variables import variable_sizes

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
