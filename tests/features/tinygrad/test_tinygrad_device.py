"""A backend of tinygrad as a device, on its interpreter, and its probes: they move what they say."""

import numpy as np
import pytest

from pytest_bandwidth.devices.base import Budget, KernelSource, Launch, TimedDevice, Workload
from pytest_bandwidth.devices.cpu.probes import SMALLEST_BYTES
from pytest_bandwidth.domain.code.identity import MeasuredCode
from pytest_bandwidth.domain.errors import NotOnThisDevice, UsageError
from pytest_bandwidth.domain.measured.roofline import DISPATCH_SECONDS
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.features.tinygrad.backend import Counts
from pytest_bandwidth.features.tinygrad.device import (
    LARGEST_INTERPRETED_BYTES,
    OPERATIONS,
    WRITTEN,
    BackendProbes,
    TinygradDevice,
)

# Other workers of the test run may compute meanwhile.
SHORT = Budget(min_samples=5, max_seconds=0.05, precision=0.5, tolerates_run_delay="all")
N = 256
ARRAYS = {"read": 1, "write": 1, "copy": 2, "add": 3}


@pytest.fixture
def device(backend):
    opened = TinygradDevice(backend)
    yield opened
    opened.release()


def silent(_text):
    pass


def test_a_measurement_has_samples_a_probe_and_the_result(device, tinygrad):
    assert isinstance(device, TimedDevice)
    assert (device.xp, device.peak, device.peak_flops("fp32")) == (tinygrad, None, None)
    x = device.random(N, "float32")
    doubled = tinygrad.TinyJit(lambda x: (x * 2).realize())
    workload = Workload(lambda: doubled(x), Traffic(4 * N, 4 * N), reads=(x,))
    measurement = device.measure(workload, SHORT, silent)
    np.testing.assert_array_equal(measurement.value.numpy(), 2 * x.numpy())
    assert measurement.method == "clock+synchronize"
    assert len(measurement.rounds.kernel_seconds) >= 3
    assert measurement.rounds.probe_name == "tinygrad copy"
    assert measurement.detail["tinygrad"] == {"kernels": 1, "total_bytes": 8 * N, "declared_bytes": 8 * N}
    assert measurement.detail[DISPATCH_SECONDS] > 0
    assert not measurement.findings
    device.release()
    assert device.measure(workload, SHORT, silent).rounds.probe_seconds, "its buffers are made anew"
    device.make_ready()
    np.testing.assert_array_equal(device.run(workload).numpy(), 2 * x.numpy())


def test_kernels_that_move_more_than_is_declared_are_told(device, tinygrad):
    x = device.random(N, "float32")
    twice = tinygrad.TinyJit(lambda x: ((x * 2).realize() + 1).realize())
    measurement = device.measure(Workload(lambda: twice(x), Traffic(4 * N, 4 * N)), SHORT, silent)
    (finding,) = measurement.findings
    assert finding.code == "kernels-move"
    assert finding.text == (
        "declared 2.05 kB; tinygrad's 2 kernels move 4.1 kB by its own count (a graph is one kernel; each buffer "
        "counts at most once)"
    )


def test_a_replayed_graph_counts_as_one_kernel(null, tinygrad):
    """NULL has graphs, as GPUs do; the bytes are those of all its kernels."""
    x = null.tensor(np.ones(N, np.float32))
    twice = tinygrad.TinyJit(lambda x: ((x * 2).realize() + 1).realize())
    counts = Counts(tinygrad)
    call = counts.around(lambda: twice(x))
    found = []
    for _ in range(3):
        call()
        found.append((counts.kernels, counts.total_bytes))
    assert (found[0], found[2]) == ((2, 16 * N), (1, 16 * N))


def test_memory_is_given_back(device, tinygrad):
    def used():
        return tinygrad.GlobalCounters.mem_used

    device.release()
    before = used()
    probe = device.probe(Traffic(4096, 4096))
    probe.call()
    assert used() > before
    del probe
    device.release()
    assert used() == before


def test_caches_of_a_gpu_are_made_cold_by_more_than_the_largest_there_is(null):
    """On NULL, whose kernels take no time, so that the measurement is of nothing but what is done around it."""
    device = TinygradDevice(null)
    x = device.random(N, "float32")
    workload = Workload(lambda: (x + 1).realize(), Traffic(4 * N, 4 * N))
    found = {finding.code: finding.text for finding in device.measure(workload, SHORT, silent).findings}
    assert found["cache-evicted"].startswith("before each sample 537 MB of other memory were read, 1.07 GB would evict")


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int8", "bool"])
def test_random_tensors_are_realized_and_fresh(device, dtype):
    x, y = device.random((8, 32), dtype), device.random((8, 32), dtype)
    assert x.uop.is_realized
    assert x.shape == (8, 32)
    assert device.nbytes(x) == 256 * x.dtype.itemsize
    assert x.tolist() != y.tolist()
    if "float" in dtype:
        assert all(1 <= number < 2 for number in x.flatten().tolist())
    empty = device.empty((3,), dtype)
    assert empty.uop.is_realized
    assert empty.dtype == x.dtype


def test_shapes_and_dtypes_that_make_no_tensor_are_named(device):
    assert device.nbytes(device.random((), "float32")) == 4
    with pytest.raises(UsageError, match=r"^shape is \(0, 3\), expected no size of 0"):
        device.empty((0, 3), "float32")
    with pytest.raises(UsageError, match=r"^tinygrad's PYTHON made no tensor of dtype complex64 .*such as 'float32'$"):
        device.random(4, "complex64")


def test_arrays_that_are_not_in_the_backends_memory_have_no_size(device, tinygrad):
    x = device.random((4, 4), "float32")
    refused = {
        r"a numpy\.ndarray in reads= or writes= is not in the memory of tinygrad's PYTHON": np.ones(4),
        r"is on NULL, this run measures tinygrad's PYTHON": tinygrad.Tensor.empty(4, device="NULL"),
        r"is not realized or a view: give contiguous\(\)\.realize\(\)": x + 1,
        r"not realized or a view": x[1:3],
    }
    for said, array in refused.items():
        with pytest.raises(UsageError, match=said):
            device.nbytes(array)


def test_kernels_of_cuda_source_do_not_run_here(device):
    with pytest.raises(NotOnThisDevice, match=r"a CUDA or traffic device: tinygrad measures callables"):
        device.kernel(KernelSource("", "kernel"))
    launch = Launch(None, (1, 1, 1), (1, 1, 1), ())
    with pytest.raises(NotOnThisDevice, match=r"tinygrad measures callables"):
        device.launcher(launch, None)
    assert device.resources(launch) is None
    assert device.code(launch) == MeasuredCode()


def counted(tinygrad, call):
    counters = tinygrad.GlobalCounters
    before = counters.kernel_count, counters.global_mem
    value = call()
    return value, counters.kernel_count - before[0], counters.global_mem - before[1]


@pytest.mark.parametrize("name", ARRAYS)
def test_an_operation_does_what_its_name_says(tinygrad, backend, name):
    probes = BackendProbes(backend)
    buffers = probes.buffers(ARRAYS[name], N)
    before = [buffer.numpy() for buffer in buffers]
    call = probes.captured(OPERATIONS[name], buffers)
    # What the runs before it wrote would hide that a replay does nothing.
    if name != "read":
        buffers[0].assign(buffers[0].const_like(0)).realize()
    value, kernels, moved = counted(tinygrad, call)
    expected = {
        "read": lambda: before[0].max(),
        "write": lambda: np.full(N, WRITTEN),
        "copy": lambda: before[1],
        "add": lambda: before[1] + before[2],
    }[name]()
    found = value if name == "read" else buffers[0]
    np.testing.assert_array_equal(found.numpy(), expected)
    assert kernels == 1
    assert moved == N * 4 * ARRAYS[name] + (4 if name == "read" else 0), "a read writes its one result"


@pytest.mark.parametrize(
    ("traffic", "name"),
    [
        (Traffic(8192, 0), "read"),
        (Traffic(0, 8192), "write"),
        (Traffic(8192, 8192), "copy"),
        (Traffic(8192, 4096), "add"),
    ],
)
def test_a_probe_is_as_large_as_its_workload_and_of_its_mix(tinygrad, backend, traffic, name):
    probe = BackendProbes(backend).probe(traffic)
    assert probe.name == f"tinygrad {name}"
    assert probe.bytes_moved == traffic.bytes_moved
    _, kernels, moved = counted(tinygrad, probe.call)
    assert kernels == 1
    assert moved == pytest.approx(probe.bytes_moved, abs=4)


def test_sizes_are_kept_within_reason_and_buffers_for_the_next_probe(backend):
    probes = BackendProbes(backend)
    assert probes.probe(Traffic(1, 0)).bytes_moved == SMALLEST_BYTES
    assert probes.probe(Traffic(1 << 40, 0)).bytes_moved == LARGEST_INTERPRETED_BYTES
    first = probes.buffers(2, N)
    assert probes.buffers(1, N)[0] is first[0]
    assert probes.buffers(1, 2 * N)[0] is not first[0]
    second = probes.buffers(1, 2 * N)
    probes.release()
    assert probes.buffers(1, 2 * N)[0] is not second[0]
