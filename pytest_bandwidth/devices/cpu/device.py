"""Measure the host's memory: NumPy arrays, Numba kernels, timed with the processor's clock.

Without Numba everything but the shipped kernels works; the probe is then NumPy's, on one thread, with a finding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import (
    Budget,
    Call,
    KernelSource,
    Launch,
    Progress,
    Sample,
    Workload,
)
from pytest_bandwidth.devices.code.callables import function_digest, numba_compiler
from pytest_bandwidth.devices.code.launch import with_launch
from pytest_bandwidth.devices.cpu.kernels import HostKernel, host_kernels
from pytest_bandwidth.devices.cpu.probes import (
    ELEMENT,
    HostProbes,
    buffer_reader,
    numba_operations,
    numba_threads,
    numpy_operations,
)
from pytest_bandwidth.devices.host import identify, last_cache_bytes
from pytest_bandwidth.devices.host_timing import CacheEviction, HostTimedDevice, from_a_drawn_place
from pytest_bandwidth.devices.numpy_arrays import Allocate, RandomSource, empty_array, host_nbytes
from pytest_bandwidth.devices.red_zones import RedZones
from pytest_bandwidth.devices.sampling import measure_timed
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.interpreter import clock
from pytest_bandwidth.domain.measured.measurement import Finding, Measurement
from pytest_bandwidth.domain.measured.roofline import DISPATCH_SECONDS
from pytest_bandwidth.domain.measured.validity import CALL_SECONDS, PROBE_CALL_SECONDS

# Calls of an empty function, each with cold caches: 3 ms for 8 MiB of cache, a twentieth of a second at most.
COLD_CALLS = 16
# A matrix product of 0.27 GFLOP that fits in the caches: a few milliseconds, long enough for all threads to take part.
PRODUCT_SIDE = 512
TRIES = 7
EMPTY_CALLS = 64
# The host computes halves in single precision.
_DTYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float32", "bf16": "float32"}
NO_TWIN = "CUDA kernels need a CUDA or traffic device; on the host only those with a Numba twin run"
EXTRA_MISSING = "kernels on the host need Numba: pip install 'pytest-bandwidth[cpu]'"
PROBE_NUMPY = Finding(
    "probe-numpy",
    "without Numba the probe is a NumPy operation on one thread, so `relative` compares with one thread, not with the "
    "memory: pip install 'pytest-bandwidth[cpu]'",
)


class CpuDevice(HostTimedDevice):
    """Measure the host's memory, on as many threads as Numba may use. Not for several threads at once."""

    def __init__(self) -> None:
        self._threads = numba_threads()
        name = "NumPy" if self._threads is None else "Numba"
        operations = numpy_operations() if self._threads is None else numba_operations(self._threads)
        eviction = CacheEviction(partial(buffer_reader, operations), last_cache_bytes())
        super().__init__(identify(self._threads), HostProbes(name, operations), eviction)
        self.zones = RedZones()
        self._random = RandomSource(allocate=self.zones.allocate)
        self._empty = partial(empty_array, allocate=self.zones.allocate)
        nothing = np.empty(0, ELEMENT)
        self._operate: Call = partial(operations["copy"], nothing, nothing)
        self._call_seconds: float | None = None

    xp = np
    method = "clock"

    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return values in [1, 2) with random mantissas (integers: all bits random), on a 64-byte boundary.

        Raises UsageError, OutOfMemory.
        """
        return self._random.array(shape, dtype)

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return an array on a 64-byte boundary whose content is undefined. Raises UsageError, OutOfMemory."""
        return self._empty(shape, dtype)

    def share(self, allocate: Allocate, seed: int | None) -> bool:
        self._random, self._empty = RandomSource(seed, allocate), partial(empty_array, allocate=allocate)
        return True

    def begin_test(self) -> None:
        self._random.begin_test()

    def nbytes(self, array: Any) -> int:
        """Return bytes of an array in host memory, NumPy's or any other's. Raises UsageError for other memory."""
        return host_nbytes(array)

    def kernel(self, source: KernelSource) -> Any:
        """Return the Numba twin of a kernel, from the package or from the hook `pytest_bandwidth_host_kernels`.

        Raises NotOnThisDevice for a file without twins and without Numba, KernelError for a name without one.
        """
        file = "" if source.shipped or source.file is None else source.file.name
        if not source.shipped and not file:
            raise NotOnThisDevice(NO_TWIN)
        if self._threads is None:
            raise NotOnThisDevice(EXTRA_MISSING)
        twins = {kernel.name: kernel for kernel in host_kernels() if kernel.file == file}
        if not twins:
            raise NotOnThisDevice(NO_TWIN)
        if source.name not in twins:
            others = [name for name in twins if f" {name}(" in source.text]
            raise KernelError(
                f"{source.name!r} has no Numba twin, which the host needs; kernels of its file with one: "
                f"{', '.join(others)}"
            )
        return twins[source.name]

    def launcher(self, launch: Launch, stream: Any) -> Call:
        """Return a call that runs the kernel on all threads. The grid only sets a reduction's number of partial sums.

        Raises UsageError for arguments that the kernel would misread, and arrays too small for the sizes given.
        """
        del stream  # the host has none: everything is in order
        if not isinstance(launch.kernel, HostKernel) or self._threads is None:
            found = type(launch.kernel).__name__
            raise UsageError(f"launch: found an object of type {found}, expected a kernel from bandwidth.kernel(...)")
        x, y, z = launch.grid
        return launch.kernel.bound(launch.args, x * y * z, self._threads)

    def code(self, launch: Launch) -> MeasuredCode:
        """Identify a twin by its Numba function, its parameters and its launch. The package's own is known by files."""
        kernel, found = launch.kernel, None
        if isinstance(kernel, HostKernel) and kernel.file:
            found = function_digest(kernel.function)
        elif isinstance(kernel, HostKernel) and (compiler := numba_compiler()) is not None:
            found = digest(kernel.name, _shipped_twins(), *compiler)
        if found is None:
            return MeasuredCode()
        function = digest(found, repr((kernel.parameters, kernel.takes_blocks, kernel.bits)))
        return with_launch(MeasuredCode(CodeIdentity(function=function)), launch)

    def peak_flops(self, precision: str) -> float | None:
        """Measure the FLOP/s of a matrix product here, once: no datasheet covers this machine."""
        dtype = _DTYPES.get(precision)
        return None if dtype is None else _product_flops(dtype)

    def measure(self, workload: Workload, budget: Budget, progress: Progress) -> Measurement:
        """Sample the workload and its probe. Raises OutOfMemory, and what the workload raises."""
        self._eviction.prepare(
            workload.data_bytes(host_nbytes), cold=workload.cold, others_have_them=budget.turns is not None
        )
        self._watch.restart()
        with self.zones.pause():
            measurement = measure_timed(self, workload, budget, progress)
        of_probe = PROBE_NUMPY if self._threads is None else None
        measurement = measurement.with_finding(self._eviction.finding(), of_probe)
        if budget.turns is not None:  # where two processes alternate, a call's own time is not compared
            return measurement
        return replace(measurement, detail=self._calls(workload, measurement))

    def time(self, call: Call, stream: Any) -> Sample:
        """Time one call by the clock, with cold caches and no garbage collection, from a random place of the stack."""
        del stream  # the host has none: everything is in order
        self._run_delay.look_for_threads()
        self._eviction.evict()
        return from_a_drawn_place(partial(self._run_delay.time, call))

    def make_ready(self) -> None:
        """Let Numba load its registries and the shipped kernels, and start its threads."""
        self._operate()
        if self._threads is not None:
            host_kernels()

    def _calls(self, workload: Workload, measurement: Measurement) -> dict[str, float]:
        """Return a call's own time: a kernel's; or that of an empty function, where the workload hardly takes longer.

        Overhead inside the user's function is part of its work.
        """
        if workload.launch is not None:
            return {DISPATCH_SECONDS: self._dispatch_seconds}
        rounds = measurement.rounds
        fastest = [min(seconds) for seconds in (rounds.kernel_seconds, *rounds.interleaved) if seconds]
        is_short = min(fastest, default=math.inf) < PROBE_CALL_SECONDS
        # Declared data much larger than the caches is always compared with the probe, however short the workload is.
        if workload.nothing is None or not is_short or not self._eviction.is_needed:
            return {}
        if self._call_seconds is None:
            workload.nothing()
            self._call_seconds = min(self.time(workload.nothing, None).seconds for _ in range(COLD_CALLS))
        return {CALL_SECONDS: self._call_seconds}

    @cached_property
    def _dispatch_seconds(self) -> float:
        self._operate()  # compiles
        return min(_seconds(self._operate) for _ in range(EMPTY_CALLS))  # busy processors only add to it


@cache
def _shipped_twins() -> str:
    """Hash the files that the package's twins are in: they compile with code that Numba functions generate."""
    folder = Path(__file__).parents[2] / "suite" / "host_kernels"
    return digest(*(file.read_bytes() for file in (Path(__file__).with_name("simd.py"), *sorted(folder.glob("*.py")))))


@cache
def _product_flops(dtype: str) -> float:
    """Return FLOP/s of NumPy's matrix product, the best of a few."""
    generator = np.random.default_rng(1)
    a, b = (generator.random((PRODUCT_SIDE, PRODUCT_SIDE)).astype(dtype) for _ in range(2))
    c = np.empty_like(a)
    best = min(_seconds(lambda: np.matmul(a, b, out=c)) for _ in range(TRIES))
    return 2 * PRODUCT_SIDE**3 / best


def _seconds(call: Call) -> float:
    started = clock.perf_counter_ns()
    call()
    return (clock.perf_counter_ns() - started) * 1e-9
