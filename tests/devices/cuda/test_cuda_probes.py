"""Probes: the like size, and what happens when they do not fit."""

from typing import Any

import pytest
from gpu_model import ModelOutOfMemory

from pytest_bandwidth.devices.cuda.runtime import SMALLEST_BYTES, ContextGuard, ProbeCall, ProbeSet
from pytest_bandwidth.domain.errors import OutOfMemory
from pytest_bandwidth.domain.traffic import MIXES, Mix, Traffic

MIB = 1 << 20


class Memory:
    """An allocator with so many bytes, and a note of what it was asked for."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.taken: list[int] = []

    def allocate(self, size: int) -> Any:
        if size > self.free - sum(self.taken):
            raise ModelOutOfMemory(f"{size} bytes")
        self.taken.append(size)
        return memoryview(bytearray(size))

    def give_back(self) -> None:
        self.taken.clear()


class Kernels:
    def __init__(self) -> None:
        self.launched: list[tuple[str, Any]] = []

    def __call__(self, name: str) -> Any:
        return lambda grid, block, args: self.launched.append((name, (grid, block, args)))


def probes(memory: Memory, kernels: Kernels) -> ProbeSet:
    guard = ContextGuard(lambda: None, (ModelOutOfMemory,))
    return ProbeSet(kernels, memory.allocate, memory.give_back, guard, object())


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("bytes_moved", [1, SMALLEST_BYTES, 10**8 + 7])
def test_a_probe_moves_what_the_workload_moves_to_a_vector_and_never_nothing(mix: Mix, bytes_moved: int) -> None:
    reads = round(bytes_moved * (1 - mix.written_share))
    moved = probes(Memory(128 * MIB), Kernels()).probe(Traffic(reads, bytes_moved - reads)).bytes_moved
    assert 0 <= max(bytes_moved, SMALLEST_BYTES) - moved < 3 * 16


def test_a_probe_says_what_it_moves_and_launches_its_kernel() -> None:
    kernels = Kernels()
    probe = probes(Memory(64 * MIB), kernels).probe(Traffic(4 * MIB, 2 * MIB))
    probe.call()
    ((name, (grid, block, args)),) = kernels.launched
    assert name == "probe_add"
    assert (grid, block) == ((2 * MIB // 16 // 256,), (256,))  # no thread has a second turn
    assert int(args[-1]) * 16 * 3 == probe.bytes_moved == 6 * MIB
    assert isinstance(probe.call, ProbeCall)


def test_every_kernel_gets_the_arguments_it_declares_and_writes_differ_from_call_to_call() -> None:
    kernels = Kernels()
    made = probes(Memory(64 * MIB), kernels)
    for traffic in (Traffic(MIB, 0), Traffic(0, MIB), Traffic(MIB, MIB), Traffic(2 * MIB, MIB)):
        made.probe(traffic).call()
    assert [(name, len(call[2])) for name, call in kernels.launched] == [
        ("probe_read", 4),
        ("probe_write", 3),
        ("probe_copy", 3),
        ("probe_add", 4),
    ]
    writes = made.probe(Traffic(0, MIB))
    writes.call()
    writes.call()
    seeds = [int(call[2][1]) for name, call in kernels.launched if name == "probe_write"]
    assert len(set(seeds)) == 3


def test_a_probe_that_does_not_fit_is_halved_until_it_does() -> None:
    memory = Memory(300 * MIB)
    probe = probes(memory, Kernels()).probe(Traffic(512 * MIB, 512 * MIB))
    assert probe.bytes_moved == 256 * MIB  # 1024 → 512 → 256
    assert memory.taken == [128 * MIB, 128 * MIB]  # nothing of the failed tries is still held


@pytest.mark.parametrize(("free", "array"), [(4 * MIB, 128 * MIB), (MIB, 2 * MIB)])
def test_a_probe_that_does_not_fit_is_not_shrunk_to_nothing(free: int, array: int) -> None:
    with pytest.raises(OutOfMemory, match="the probe"):
        probes(Memory(free), Kernels()).probe(Traffic(array, array))
