"""The host as a device, from end to end."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from two_processes import InTurn

from pytest_bandwidth.devices.base import Budget, Launch, Workload
from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice
from pytest_bandwidth.domain.measured.roofline import DISPATCH_SECONDS
from pytest_bandwidth.domain.measured.validity import CALL_SECONDS
from pytest_bandwidth.domain.traffic import Traffic

# Other workers of the test run may compute meanwhile.
SHORT = Budget(min_samples=5, max_seconds=0.05, precision=0.5, tolerates_run_delay="all")


@pytest.fixture
def device():
    opened = CpuDevice()
    yield opened
    opened.release()


def silent(_text):
    pass


def triad(device, n):
    b, c, a = device.random(n, "float32"), device.random(n, "float32"), device.empty(n, "float32")
    kernel = device.kernel(read_source("stream.cu", "triad_f32", []))
    launch = Launch(kernel, (4, 1, 1), (256, 1, 1), (a, b, c, np.float32(3), n))
    traffic = Traffic(b.nbytes + c.nbytes, a.nbytes, 2 * n)
    return Workload(device.launcher(launch, None), traffic, launch=launch, reads=(b, c), writes=(a,)), (a, b, c)


def test_a_measurement_has_samples_a_probe_of_the_same_size_and_the_result_and_again_once_released(device):
    n = 100_000
    workload, (a, b, c) = triad(device, n)
    measurement = device.measure(workload, SHORT, silent)
    np.testing.assert_allclose(a, b + 3 * c, rtol=1e-6)
    assert measurement.method == "clock"
    assert len(measurement.samples) >= 3
    assert measurement.rounds.probe_name == "Numba add, reading the test's arrays"
    assert abs(measurement.rounds.probe_bytes - 12 * n) < 12
    assert measurement.relative > 0
    assert measurement.gbps > 0
    assert (measurement.peak, device.peak_flops("fp16-tensor")) == (None, None)
    assert min(device.peak_flops("fp32"), device.peak_flops("fp64")) > 0
    assert measurement.utilization_of == "probe"
    assert measurement.resources is None
    assert measurement.invalid is None
    assert measurement.conditions_after.load_average is not None or sys.platform == "win32"
    declared = device.measure(replace(workload, reads=(), writes=()), SHORT, silent)
    assert declared.rounds.probe_name == "Numba add, reading the test's arrays", "what the kernel is launched with"
    device.release()
    device.release()
    assert device.measure(workload, SHORT, silent).relative > 0


def test_a_shipped_twin_is_known_by_its_name_and_its_launch(device):
    one, other = (triad(device, n)[0].launch for n in (1000, 2000))
    copied = replace(one, kernel=device.kernel(read_source("stream.cu", "add_f32", [])))
    first = device.code(one).identity
    assert first == device.code(one).identity
    assert (first.function, first.launch) == (device.code(other).identity.function, first.launch)
    assert first.function != device.code(copied).identity.function
    assert first.launch != device.code(other).identity.launch


def test_small_data_stay_in_the_cache_where_that_is_asked_for(device):
    x = device.random((50, 40), "float32")
    workload = Workload(lambda: x.sum(), Traffic(1 << 26, 0), reads=(x,))
    warm, cold = (device.measure(replace(workload, cold=cold), SHORT, silent) for cold in (False, True))
    assert (warm.method, cold.method) == ("clock+warm", "clock")
    assert [("warm" in {f.code for f in found.findings}) for found in (warm, cold)] == [True, False]


def does_nothing():
    pass


def test_a_short_callable_is_sampled_beside_one_that_does_nothing(device):
    x = device.random(1000, "float32")
    called = Workload(x.sum, Traffic(x.nbytes, 0), nothing=does_nothing)
    one, other = (device.measure(called, SHORT, silent).detail for _ in range(2))
    assert set(one) == {CALL_SECONDS}
    assert one == other, "measured once a process"
    long = replace(called, call=lambda: [x.sum() for _ in range(1000)])
    launched = replace(triad(device, 1000)[0], nothing=does_nothing)
    assert device.measure(long, SHORT, silent).detail == {}
    assert set(device.measure(launched, SHORT, silent).detail) == {DISPATCH_SECONDS}
    assert device.measure(called, replace(SHORT, turns=InTurn(1)), silent).detail == {}


def test_a_kernel_that_is_not_for_this_device_is_refused(device):
    shipped = read_source("stream.cu", "copy_f32", [])
    for own in (None, shipped.file.with_name("own.cu")):
        with pytest.raises(NotOnThisDevice, match="CUDA kernels need a CUDA or traffic device"):
            device.kernel(replace(shipped, shipped=False, file=own))
    with pytest.raises(
        KernelError, match=r"'probe_read' has no Numba twin.*of its file with one: read_f32.*triad_f16x8"
    ):
        device.kernel(replace(shipped, name="probe_read"))


def test_another_librarys_array_will_do_where_it_offers_the_interface(device):
    class Foreign:
        def __init__(self, n):
            self.array = np.zeros(n, np.float32)

        @property
        def __array_interface__(self):
            return self.array.__array_interface__

    out = Foreign(64)
    kernel = device.kernel(read_source("stream.cu", "write_f32", []))
    device.launcher(Launch(kernel, (1, 1, 1), (1, 1, 1), (out, np.float32(2), 64)), None)()
    assert (out.array == 2).all()


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None  # makes every import of it fail
from pytest_bandwidth.devices.base import Budget, Workload
from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.domain.traffic import Traffic
device = CpuDevice()
x, out = device.random(1000, "float32"), device.empty(1000, "float32")
def work(): out[:] = x
found = device.measure(Workload(work, Traffic(4000, 4000)), Budget(5, 0.05, 0.5), lambda _: None)
codes = {f.code for f in found.findings} - {"run-delay", "cache-evicted"}  # of a busy machine, a huge cache
print(found.rounds.probe_name, *sorted(codes), device.identity.settings["threads"])
try:
    device.kernel(read_source("stream.cu", "triad_f32", []))
except NotOnThisDevice as error:
    print(error)
"""


def test_without_numba_everything_but_kernels_works_and_says_so():
    found = subprocess.run([sys.executable, "-c", WITHOUT_NUMBA], capture_output=True, text=True, check=True)
    measured, refused = found.stdout.splitlines()
    assert measured == "NumPy copy probe-numpy numpy"
    assert refused == "kernels on the host need Numba: pip install 'pytest-bandwidth[cpu]'"
