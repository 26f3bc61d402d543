"""A test sets the __constant__ and __device__ variables of a kernel on the traffic device."""

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import KernelFault, UsageError
from pytest_bandwidth.features.traffic.device import open_traffic

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


@pytest.fixture(scope="module")
def device():
    return open_traffic()


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


def test_constants_of_ptx_are_set_as_well(device):
    text = """.version 8.3
.target sm_90
.address_size 64
.const .align 4 .b8 c[8];
.visible .entry k(.param .u64 x)
{
.reg .f32 %f<2>; .reg .b64 %rd<3>;
ld.param.u64 %rd1, [x]; cvta.to.global.u64 %rd2, %rd1;
ld.const.f32 %f1, [c+4]; st.global.f32 [%rd2], %f1; ret;
}
"""
    kernel = device.kernel(read_source(text, None, ()))
    assert launched(device, kernel)[0] == [0, 0, 0, 0]
    kernel.set("c", C[:2])
    assert launched(device, kernel)[0] == [1, 0, 0, 0]
    kernel.set("c", np.array([0.0]))  # of bytes nothing is known


@pytest.mark.parametrize(("kind", "fits"), [(".f32", "float32"), (".b32", "float32 int32"), (".u32", "int32 uint32")])
def test_the_type_that_ptx_declares_is_expected(device, kind, fits):
    text = f".version 8.3\n.target sm_90\n.address_size 64\n.global .align 4 {kind} v;\n.visible .entry k() {{ ret; }}"
    kernel = device.kernel(read_source(text, None, ()))
    for dtype in ("float32", "int32", "float16", "int64"):
        value = np.zeros(4 // np.dtype(dtype).itemsize or 1, dtype)
        if dtype in fits or (kind == ".b32" and value.nbytes == 4):
            kernel.set("v", value)
        else:
            with pytest.raises(UsageError, match=f"^kernel.set: found .*{dtype}.* for v, expected an array of"):
                kernel.set("v", value)
