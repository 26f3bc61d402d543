"""What the traffic device keeps between launches."""

import weakref

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

from pytest_bandwidth.devices.base import KernelSource, Launch
from pytest_bandwidth.devices.traffic import open_traffic
from pytest_bandwidth.domain.errors import KernelFault

COPY = 'extern "C" __global__ void copy(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x]; }'


@pytest.fixture(scope="module")
def device():
    return open_traffic()


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


def test_arrays_that_went_do_not_hide_those_that_stay(device):
    first, second = device.empty(64, "float32"), device.empty(64, "float32")
    del first
    with pytest.raises(KernelFault, match="uninitialised"):
        copied(device, np.zeros(64, np.float32), second)
    copied(device, second, np.ones(64, np.float32))
    copied(device, np.zeros(64, np.float32), second)
