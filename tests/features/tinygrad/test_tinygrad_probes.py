"""Probes of a backend: they compute what they are called, and move what they say."""

import numpy as np
import pytest

from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.features.tinygrad.probes import (
    LARGEST_INTERPRETED_BYTES,
    OPERATIONS,
    SMALLEST_BYTES,
    WRITTEN,
    BackendProbes,
)

N = 512
ARRAYS = {"read": 1, "write": 1, "copy": 2, "add": 3}


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


@pytest.mark.parametrize("name", ARRAYS)
def test_large_operations_move_what_they_say(tinygrad, null, name):
    """Counted where nothing runs: half a gigabyte in each array."""
    n = 1 << 27
    tensors = tuple(tinygrad.Tensor.empty(n, dtype="int32", device="NULL") for _ in range(ARRAYS[name]))
    call = BackendProbes(null).captured(OPERATIONS[name], tensors)
    _, kernels, moved = counted(tinygrad, call)
    assert kernels >= 1
    assert moved == pytest.approx(4 * n * ARRAYS[name], rel=0.01)


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


def test_sizes_are_kept_within_reason_for_an_interpreter(backend):
    probes = BackendProbes(backend)
    assert probes.probe(Traffic(1, 0)).bytes_moved == SMALLEST_BYTES
    assert probes.largest_bytes == LARGEST_INTERPRETED_BYTES


def test_buffers_are_kept_for_the_next_probe_and_given_back(backend):
    probes = BackendProbes(backend)
    first = probes.buffers(2, N)
    assert probes.buffers(1, N)[0] is first[0]
    assert probes.buffers(1, 2 * N)[0] is not first[0]
    second = probes.buffers(1, 2 * N)
    probes.release()
    assert probes.buffers(1, 2 * N)[0] is not second[0]
