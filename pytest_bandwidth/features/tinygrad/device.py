"""Measure callables on tensors of a tinygrad backend, by the host's clock until the backend is done.

tinygrad has no API to record events on its streams, so the time includes the dispatch by Python and the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Budget, Call, Probe, Progress, Sample, Workload, run_untimed
from pytest_bandwidth.devices.cpu.probes import LARGEST_BYTES, SMALLEST_BYTES
from pytest_bandwidth.devices.host import last_cache_bytes
from pytest_bandwidth.devices.host_timing import CacheEviction, HostTimedDevice
from pytest_bandwidth.devices.numpy_arrays import Array, RandomSource, checked_array_shape, resolve_dtype
from pytest_bandwidth.devices.sampling import measure_timed
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError
from pytest_bandwidth.domain.interpreter import clock
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.roofline import DISPATCH_SECONDS
from pytest_bandwidth.domain.text import kind_of
from pytest_bandwidth.domain.traffic import Traffic, nearest_mix
from pytest_bandwidth.domain.units import format_bytes
from pytest_bandwidth.features.tinygrad.backend import KERNELS, ON_HOST, Backend, Counts, identify

# tinygrad has no API for the cache size, so the largest that exists is assumed: 96 MB for Apple's system level cache,
# 128 MB for NVIDIA's L2, 256 MB for AMD's Infinity Cache (MI300X).
LARGEST_GPU_CACHES = {"METAL": 96 << 20, "CUDA": 128 << 20, "NV": 128 << 20}
LARGEST_GPU_CACHE_BYTES = 256 << 20
# Kernels of one number measure the dispatch alone; the fastest of so many calls counts.
SMALLEST_ELEMENTS = 1
DISPATCH_CALLS = 64
# Every backend supports integers.
ELEMENT, ELEMENT_BYTES = "int32", 4
# An interpreter has the same speed at any size: this many bytes take it a tenth of a second.
LARGEST_INTERPRETED_BYTES = 1 << 16
WRITTEN = 7
# tinygrad runs a function without capture first, captures the second run, and replays it from the third on.
RUNS_TO_CAPTURE = 2


class TinygradDevice(HostTimedDevice):
    """Measure on one of tinygrad's backends. Not thread-safe."""

    method = "clock+synchronize"

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # The module tinygrad has Tensor, TinyJit and dtypes; tinygrad has no module with NumPy's API.
        self.xp = backend.tinygrad
        self._source = RandomSource()
        self._counts = Counts(backend.tinygrad)
        # The size of the last cache level: None where unknown, 0 where it makes no difference.
        cache = last_cache_bytes() if backend.kind in ON_HOST else None
        assumed_bytes = LARGEST_GPU_CACHES.get(backend.kind, LARGEST_GPU_CACHE_BYTES)
        probes = BackendProbes(backend)
        eviction = CacheEviction(probes.reader, 0 if backend.is_interpreter else cache, assumed_bytes)
        super().__init__(identify(backend), probes, eviction)

    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return a realized tensor of values in [1, 2) with random mantissas (integers: all bits random).

        They are made on the host and copied over. Raises UsageError, OutOfMemory.
        """
        return self._copied(self._source.array(shape, dtype))

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return a realized tensor to be written, as by ``assign``. Raises UsageError, OutOfMemory."""
        # Zeros: a tensor of undefined content is not realized.
        return self._copied(np.zeros(checked_array_shape(shape), resolve_dtype(dtype)))

    def nbytes(self, array: Any) -> int:
        """Return the bytes of a realized tensor on this backend. Raises UsageError for anything else."""
        backend, remedy = self._backend.name, "a tensor there"
        if not isinstance(array, self._backend.tinygrad.Tensor):
            why = f"is not in the memory of tinygrad's {backend}, which this run measures"
        elif array.device != backend:
            why = f"is on {array.device}, this run measures tinygrad's {backend}"
        elif not array.uop.is_realized or not array.uop.has_buffer_identity():
            why, remedy = "is not realized or a view", "contiguous().realize() of it"
        else:
            return int(array.nbytes())
        raise UsageError(f"a {kind_of(array)} in reads= or writes= {why}: give {remedy}, or bytes as an int")

    def check_array(self, path: str, array: Any, framework: str) -> None:
        """Raise UsageError for anything but a tensor on this backend: else the copy to it would be timed as well."""
        backend = self._backend.name
        if framework != "tinygrad":
            raise UsageError(
                f"{path} is {framework}'s and not in the memory of tinygrad's {backend}, where this run measures: "
                f"expected tensors copied there before the call, by Tensor(…, device={backend!r}).realize()"
            )
        if array.device != backend:
            raise UsageError(
                f"{path} is on tinygrad's {array.device}, this run measures {backend}: expected tensors there, or "
                f"--bandwidth-device=tinygrad:BACKEND with theirs"
            )

    def run(self, workload: Workload) -> object:
        """Run the workload once, untimed, until the backend is done."""
        return run_untimed(workload, self._backend.synchronize)

    def measure(self, workload: Workload, budget: Budget, progress: Progress) -> Measurement:
        """Sample the workload together with its probe. Raises OutOfMemory, and the workload's own exceptions."""
        self._eviction.prepare(workload.data_bytes(self.nbytes), cold=workload.cold)
        dispatch_seconds = self._dispatch_seconds
        self._watch.restart()
        noted = replace(workload, call=self._counts.around(workload.call))
        measurement = measure_timed(self, noted, budget, progress)
        declared = workload.traffic.bytes_moved
        explained = measurement.with_finding(self._eviction.finding(), self._counts.finding(declared))
        counts = {"kernels": self._counts.kernels, "total_bytes": self._counts.total_bytes, "declared_bytes": declared}
        return replace(explained, detail={DISPATCH_SECONDS: dispatch_seconds, KERNELS: counts})

    def time(self, call: Call, stream: Any) -> Sample:
        """Time one call from an idle backend until it is idle again, with cold caches and no garbage collection."""
        del stream  # a backend has one queue
        self._run_delay.look_for_threads()
        self._eviction.evict()
        self._backend.synchronize()

        def to_the_end() -> None:
            call()
            self._backend.synchronize()

        return self._run_delay.time(to_the_end)

    def make_ready(self) -> None:
        """Run a kernel once, so that tinygrad loads all that kernels need."""
        _ = self._dispatch_seconds

    def release(self) -> None:
        super().release()
        self._backend.free()

    def _copied(self, array: Array) -> Any:
        """Return an array as a realized tensor that is no view."""
        if not array.size:
            raise UsageError(f"shape is {array.shape}, expected no size of 0: tinygrad realizes no empty tensor")
        try:
            # As one row: tinygrad would make a constant of an array without dimensions, on another backend first.
            row: Any = array.reshape(-1)
            dtype = None
            if array.dtype.name == "bfloat16":  # NumPy's bfloat16 comes from another package, tinygrad's is built in
                row, dtype = row.tobytes(), self._backend.tinygrad.dtypes.bfloat16
            return self._backend.tensor(row, dtype).reshape(array.shape)
        except MemoryError as error:
            raise OutOfMemory(f"{error}: use a smaller size") from None
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            message = (str(error).splitlines() or [""])[0]
            raise UsageError(
                f"tinygrad's {self._backend.name} made no tensor of dtype {array.dtype.name} ({message}): "
                "expected one that it has, such as 'float32'"
            ) from None

    @cached_property
    def _dispatch_seconds(self) -> float:
        """Return the least time of a captured kernel on one number, including the wait for it."""
        numbers = tuple(self.random(SMALLEST_ELEMENTS, "int32") for _ in range(2))
        call = self._probes.captured(OPERATIONS["copy"], numbers)
        taken = []
        for _ in range(DISPATCH_CALLS):
            started = clock.perf_counter_ns()
            call()
            self._backend.synchronize()
            taken.append((clock.perf_counter_ns() - started) * 1e-9)
        return min(taken)


class BackendProbes:
    """Make a backend's probes: tinygrad's simplest read, write, copy and add, as captured kernels.

    They read random bits, since GPUs compress other data. ``GlobalCounters`` has the bytes of each to within 1 %: a
    reduction may take several kernels with small partial results. The buffers of the last probe are kept for the next.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # The module tinygrad has Tensor, TinyJit and dtypes; tinygrad has no module with NumPy's API.
        self.xp = backend.tinygrad
        self._source = RandomSource()
        self._kept: list[Any] = []

    def probe(self, traffic: Traffic, inputs: Sequence[Any] = ()) -> Probe:
        """Return a probe that moves as many bytes as the traffic, within 4 KiB and 1 GiB. Raises OutOfMemory."""
        del inputs  # a probe reads buffers of its own
        mix = nearest_mix(traffic)
        most = LARGEST_INTERPRETED_BYTES if self._backend.is_interpreter else LARGEST_BYTES
        wanted = min(max(traffic.bytes_moved, SMALLEST_BYTES), most)
        elements = wanted // (mix.arrays * ELEMENT_BYTES)
        buffers = self.buffers(mix.arrays, elements)
        call = self.captured(OPERATIONS[mix.name], buffers)
        return Probe(f"tinygrad {mix.name}", call, elements * ELEMENT_BYTES * mix.arrays)

    def reader(self, size: int) -> Call:
        """Make a buffer of so many bytes and return a call that reads all of it. Raises OutOfMemory."""
        read = self.captured(OPERATIONS["read"], (self._buffer(size // ELEMENT_BYTES),))

        def run() -> None:
            read()
            self._backend.synchronize()

        return run

    def captured(self, operation: Callable[..., Any], buffers: tuple[Any, ...]) -> Call:
        """Return a call that replays an operation's kernels on the buffers; it does not wait for them."""
        jitted = self._backend.tinygrad.TinyJit(operation)
        for _ in range(RUNS_TO_CAPTURE):
            jitted(*buffers)
        return lambda: jitted(*buffers)

    def buffers(self, count: int, elements: int) -> tuple[Any, ...]:
        """Return so many buffers of random bits; kept buffers are reused where they fit. Raises OutOfMemory."""
        self._kept = [buffer for buffer in self._kept if buffer.shape == (elements,)]
        while len(self._kept) < count:
            self._kept.append(self._buffer(elements))
        return tuple(self._kept[:count])

    def release(self) -> None:
        """Free the buffers; earlier probes must not run any more."""
        self._kept = []

    def _buffer(self, elements: int) -> Any:
        try:
            return self._backend.tensor(self._source.array(elements, ELEMENT))
        except MemoryError as error:
            size = format_bytes(elements * ELEMENT_BYTES)
            raise OutOfMemory(f"a probe's buffer of {size} on tinygrad's {self._backend.name}: {error}") from None


# By the names of the mixes (`probe_mix`); the output comes first, a read has no output.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "read": lambda x: x.max().realize(),
    # A constant of the same shape and type: tinygrad would write any other to a buffer first, and copy it.
    "write": lambda out: out.assign(out.const_like(WRITTEN)).realize(),
    "copy": lambda out, x: out.assign(x).realize(),
    "add": lambda out, x, y: out.assign(x + y).realize(),
}
