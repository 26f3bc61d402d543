"""Arrays whose numbers are not those that a kernel's source reads."""

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

from pytest_bandwidth.devices.arguments import misread_arrays


def found(parameter, dtype):
    source = f'extern "C" __global__ void k({parameter}, int n) {{ }}'
    return [*misread_arrays(source, "k", (np.zeros(4, dtype), np.int32(4)))]


@pytest.mark.parametrize(
    ("parameter", "dtype", "kind"),
    [
        ("const float* a", "float64", "float"),
        ("const float* __restrict__ a", "float16", "float"),
        ("float a[]", "int32", "float"),
        ("float (*a)[4]", "float64", "float"),
        ("float4 *a", "float64", "float4"),
        ("double* a", "float32", "double"),
        ("unsigned int* a", "int64", "unsigned int"),
        ("const long long* a", "int32", "long long"),
        ("__half* a", "float32", "__half"),
        ("__nv_bfloat16* a", "float16", "__nv_bfloat16"),
    ],
)
def test_other_numbers_than_the_source_reads(parameter, dtype, kind):
    assert found(parameter, dtype) == [f"`a` is {dtype}, the kernel's parameter is {kind}"]


@pytest.mark.parametrize(
    ("parameter", "dtype"),
    [
        ("const float* a", "float32"),
        ("const float4* a", "float32"),
        ("float2* a", "complex64"),
        ("unsigned* a", "int32"),
        ("float* a", "uint32"),
        ("float* a", "uint8"),
        ("__nv_bfloat16* a", "uint16"),
        ("T* a", "float64"),
        ("char* a", "float64"),
        ("void* a", "float64"),
        ("const Block* a", "uint8"),
    ],
)
def test_the_same_numbers_their_bits_and_types_that_are_not_known(parameter, dtype):
    assert found(parameter, dtype) == []
