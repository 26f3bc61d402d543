"""Measure a GPU: CuPy arrays and raw kernels, timed with events, watched through NVML. ROCm through CuPy's HIP build.

docs/gpu.md lists the hardware on which it has run, and tests/gpu/ tests it there. This module joins the parts; the
docstring of each describes how it works (timing, calibration, probes, …).
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from statistics import median
from typing import Any

import numpy as np

from pytest_bandwidth.devices.arguments import GpuArrays, device_nbytes, is_foreign_array, misread_arrays, on_host
from pytest_bandwidth.devices.base import (
    BoundLaunch,
    Budget,
    Call,
    KernelSource,
    Launch,
    OldCode,
    Probe,
    Progress,
    Sample,
    TimedDevice,
    Workload,
    run_untimed,
)
from pytest_bandwidth.devices.code.launch import Addresses, with_launch
from pytest_bandwidth.devices.contents import host_contents
from pytest_bandwidth.devices.cuda import kernels, timing
from pytest_bandwidth.devices.cuda.code import RawKernelCodes, device_sums, library_versions, numbers_of, settings_of
from pytest_bandwidth.devices.cuda.context import Opened, open_context
from pytest_bandwidth.devices.cuda.health import Health
from pytest_bandwidth.devices.cuda.identity import arithmetic_peak, choose_peak, datasheet_flops, join_identity
from pytest_bandwidth.devices.cuda.kernels import Variables
from pytest_bandwidth.devices.cuda.management import GpuIdentity
from pytest_bandwidth.devices.cuda.runtime import ProbeCall, ProbeSet, mute_lost_context
from pytest_bandwidth.devices.cuda.timing import Timer, open_records
from pytest_bandwidth.devices.numpy_arrays import (
    WHOLE_KINDS,
    WORD_BYTES,
    checked_array_shape,
    masks_for,
    resolve_dtype,
    words_needed,
)
from pytest_bandwidth.devices.red_zones import ZONE_BYTES, RedZones
from pytest_bandwidth.devices.sampling import measure_timed
from pytest_bandwidth.domain.code.identity import MeasuredCode
from pytest_bandwidth.domain.code.stored_kernel import LaunchShape
from pytest_bandwidth.domain.device import Conditions, Fact
from pytest_bandwidth.domain.errors import DeviceLost, KernelError, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.measured.measurement import FLOOR_SECONDS, KernelResources, Measurement
from pytest_bandwidth.domain.measured.roofline import SM_CLOCK_MHZ
from pytest_bandwidth.domain.traffic import Traffic

RANDOM_THREADS = 256
# cudaMemoryType and hipMemoryType: device, managed; not host memory.
MEMORY_TYPES = (2, 3)
LEGACY_STREAMS = (0, 1)  # two names of the default stream
# Devices whose context is lost, kept alive: CuPy's events would raise when they are destroyed before Python ends.
_UNDESTROYABLE: list[object] = []


def open_cuda(index: int = 0) -> CudaDevice:
    """Open the GPU at CUDA's index, to which CUDA_VISIBLE_DEVICES applies, and make it current in this thread.

    Raises DeviceUnavailable, one line: no CuPy, no driver or too old a one, no GPU, no such index, no compiler.
    """
    return CudaDevice(open_context(index))


class CudaDevice(TimedDevice):
    """Measure on one GPU; `open_cuda` makes it. Not for several threads at once."""

    launches_old_code = True

    def __init__(self, opened: Opened) -> None:
        facts, managed, ownership = opened.facts, opened.managed, opened.ownership
        known = managed.identity() if managed else GpuIdentity()
        extra: dict[str, Fact] = {
            "index": opened.index,
            **opened.management,
            "other_processes": ownership.how if ownership.known else f"not watched: {ownership.how}",
        }
        self.xp = self._cupy = opened.cupy
        self._index, self._facts = opened.index, facts
        self._guard, self._runtime = opened.guard, opened.runtime
        self.identity = join_identity(facts, known, extra)
        self.peak = choose_peak(self.identity, arithmetic_peak(facts, known))
        self._max_memory_clock_mhz = known.max_memory_clock_mhz
        self._blocking = timing.launch_blocking(os.environ)
        # Cards that cannot hold their maximum under load (a T4: 1590 MHz, 585 by default) have a default clock.
        self._nominal_clock_mhz = known.default_sm_clock_mhz or known.max_sm_clock_mhz
        self._timer = Timer(self._runtime, may_block=self._blocking is None, blocked=self._blocking is None)
        self._health = Health(managed, ownership, lambda: self._timer.clock_mhz)
        self._arrays = GpuArrays(self._cupy, self._index)
        self._fill_kernel = opened.module.get_function("random_words")
        self._probes = ProbeSet(
            opened.module.get_function,
            self._random_bytes,
            self._cupy.get_default_memory_pool().free_all_blocks,
            self._guard,
            self._cupy.zeros(1, np.uint32),
        )
        self.zones = RedZones(self._zone, self._set_zone, lambda array: array.data.ptr)
        self._kernels: dict[KernelSource, Any] = {}
        self._variables: dict[int, Variables] = {}  # by their module's address
        self._codes = RawKernelCodes(self._cupy, known.driver_version)
        self._driver = known.driver_version
        self._measured: Workload | None = None
        self._in_graph: int | None = None  # launches in the graph that each sample replays; None = no graph
        self._sums = partial(device_sums, self._cupy, opened.module.get_function("sum_words"), facts.sm_count)
        self._seed, self._whole_seed = int.from_bytes(os.urandom(8), "little"), 0

    @property
    def method(self) -> str:
        """Return ``events`` or ``cupti``; ``+block`` if the stream could be blocked; ``+graph`` if a graph ran."""
        return self._timer.method + ("" if self._in_graph is None else "+graph")

    def time_by(self, timer: str) -> None:
        """Time by events, or by CUPTI's records. Raises UsageError where these are not available."""
        if timer == "events":
            return
        if self._cupy.cuda.runtime.is_hip:
            raise UsageError("--bandwidth-timer=cupti: CUPTI is for NVIDIA's GPUs alone, use events")
        self._timer.records, self.times_any_stream = open_records(), True

    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return values in [1, 2) with random mantissas (integers: all bits random). Raises UsageError, OutOfMemory."""
        sizes, kind = checked_array_shape(shape), resolve_dtype(dtype)
        (keep, fixed), words = masks_for(kind), words_needed(sizes, kind)
        with self._current(), self._guard.allocation(f"random data of {sizes} {kind.name}"):
            out = self._cupy.ndarray(words, np.uint64, self._memory(words * WORD_BYTES))
            if words:
                self._fill(out, words, keep, fixed, repeats=kind.kind in WHOLE_KINDS)
            size = int(np.prod(sizes, dtype=np.int64)) * kind.itemsize
            return out.view(np.uint8)[:size].view(kind).reshape(sizes)

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return an array whose content is undefined; whole numbers are 0. Raises UsageError, OutOfMemory."""
        sizes, kind = checked_array_shape(shape), resolve_dtype(dtype)
        with self._current(), self._guard.allocation(f"an array of {sizes} {kind.name}"):
            array = self._cupy.ndarray(sizes, kind, self._memory(int(np.prod(sizes, dtype=np.int64)) * kind.itemsize))
            # The values of integers identify a launch, unless the test declares that it only writes them.
            if kind.kind in WHOLE_KINDS and array.nbytes:
                array.data.memset_async(0, array.nbytes)
            return array

    def _memory(self, size: int) -> Any:
        """Return memory for an array of so many bytes, with zones around it; None to let CuPy allocate it."""
        if self.zones.is_paused:
            return None
        raw, cuda = self._cupy.empty(size + 2 * ZONE_BYTES, np.uint8), self._cupy.cuda
        block = self.zones.block(raw, raw.data.ptr, ZONE_BYTES, size)
        return cuda.MemoryPointer(cuda.UnownedMemory(raw.data.ptr, raw.nbytes, block, self._index), ZONE_BYTES)

    def _zone(self, zone: Any) -> Any:
        """Return the content of a zone of the GPU's memory, once all work is done."""
        with self._current():
            self._runtime.wait_device()
            return zone.get()

    def _set_zone(self, zone: Any, pattern: Any) -> None:
        with self._current():
            zone.set(pattern)

    def written_out_of_bounds(self) -> str | None:
        if not self.zones.count:  # no zones: a context that was lost before the test is no error here
            return None
        with self._current():
            return super().written_out_of_bounds()

    def nbytes(self, array: Any) -> int:
        """Return the bytes of an array on this GPU, of CuPy, PyTorch, Numba or JAX. Raises UsageError for any other."""
        return device_nbytes(array, self._arrays)

    def kernel(self, source: KernelSource) -> Any:
        """Return a compiled cupy.RawKernel, the same one for the same source; its `set` writes variables.

        Raises KernelError with the compiler's log.
        """
        if source not in self._kernels:
            with self._current():
                loaded = None
                if source.compiled:
                    kernel, loaded = kernels.kernel_of_compiled(self._cupy, source)
                else:
                    kernel = kernels.compile_kernel(self._cupy, source)
                kernel = kernels.with_attributes(self._cupy, kernel)
                kernel.loaded, kernel.set = loaded, partial(self._set, kernel, source)
                self._kernels[source] = kernel
        return self._kernels[source]

    def _set(self, kernel: Any, source: KernelSource, variable: str, value: Any) -> None:
        """Write a __constant__ or __device__ variable of the kernel's module, until the test ends.

        Raises UsageError, NotOnThisDevice.
        """
        if self._cupy.cuda.runtime.is_hip:
            raise NotOnThisDevice("kernel.set: the sizes of variables are known for NVIDIA's GPUs alone")
        with self._current():
            self._runtime.wait_device()
            module = kernel.kernel.module
            if module.ptr not in self._variables:
                self._variables[module.ptr] = Variables(self._cupy, module, self._codes.variable_sizes(kernel))
            self._variables[module.ptr].set(variable, value, source)

    def _variables_set(self, kernel: Any) -> tuple[str, ...]:
        if not self._variables or not isinstance(kernel, self._cupy.RawKernel):
            return ()
        found = self._variables.get(kernel.kernel.module.ptr)
        return () if found is None else found.settings

    def launcher(self, launch: Launch, stream: Any) -> Call:
        """Launch on the stream, or CuPy's current one where it is None. Raises UsageError for arguments that the
        kernel would misread: bare floats, host arrays, arrays of another GPU, arrays with gaps."""
        with self._current():
            source = next((source for source, kernel in self._kernels.items() if kernel is launch.kernel), None)
            kernel, args = launch.kernel, kernels.prepared_call(self._arrays, launch, source)
            # The user's own RawKernel is not checked.
            if source is not None and (misread := misread_arrays(source.text, source.name, launch.args)):
                raise UsageError(
                    f"launch: {'; '.join(misread)}: the kernel would read garbage, give arrays of its types"
                )
            target = None if stream is None else self._runtime.stream(stream)

        def run() -> None:
            if target is None:
                kernel(launch.grid, launch.block, args, shared_mem=launch.shared_bytes)
                return
            with self._runtime.using(target):
                kernel(launch.grid, launch.block, args, shared_mem=launch.shared_bytes)

        return run

    def resources(self, launch: Launch) -> KernelResources | None:
        with self._current():
            return kernels.kernel_resources(self._cupy, launch, self._facts.threads_per_sm)

    def begin_test(self) -> None:
        self._whole_seed = 0
        if self._variables:
            with self._current():
                self._runtime.wait_device()
                for variables in self._variables.values():
                    variables.restore()

    def code(self, launch: Launch) -> MeasuredCode:
        """Identify the launch's kernel, where it is a raw kernel, with its arguments and settings."""
        with self._current():
            addresses = Addresses(self._lies_here, numbers=numbers_of(self._cupy, launch))
            settings = (*settings_of(self._cupy, launch.kernel), *self._variables_set(launch.kernel))
            return with_launch(self._codes.code(launch.kernel), launch, *settings, addresses=addresses)

    @cached_property
    def libraries(self) -> Mapping[str, str]:
        return library_versions(self._cupy, self._driver)

    def is_memory(self, address: int) -> bool:
        """Return whether an address is in GPU memory, or in memory that GPU and host share, according to the driver."""
        with self._current():
            return self._lies_here(address)

    def _lies_here(self, address: int) -> bool:
        try:
            return int(self._cupy.cuda.runtime.pointerGetAttributes(address).type) in MEMORY_TYPES
        except RuntimeError:  # HIP raises for an unknown address
            return False

    def contents(self, array: Any) -> str:
        """Return a text that identifies an array's content; the GPU adds up its own. Raises UsageError, OutOfMemory."""
        with self._current():
            is_own = self._arrays.is_array(array)
            if not (is_own or (is_foreign_array(array) and not on_host(array))):
                return host_contents(array)
            self._runtime.wait_device()
            with self._guard.allocation("a copy of an index array, to hash it,"):
                first, second = self._sums(array if is_own else self._arrays.adopted(array))
                return f"{array.dtype} {tuple(array.shape)} {first:x} {second:x}"

    def peak_flops(self, precision: str) -> float | None:
        return datasheet_flops(self.identity, precision)

    def run(self, workload: Workload) -> object:
        """Run the workload once, untimed, to completion. Raises DeviceLost where that poisons the context."""
        with self._current(), self._runtime.using(self._runtime.stream(workload.stream)):
            return run_untimed(workload, self._runtime.wait_device)

    def run_counted(self, workload: Workload) -> object:
        """Run the workload twice, the second time with cold caches in the range that a profiler counts.

        The first run compiles, tunes and touches pages. Raises DeviceLost.
        """
        runtime, stream = self._runtime, self._runtime.stream(workload.stream)
        with self._current(), runtime.using(stream):
            run_untimed(workload, runtime.wait_device)
            if workload.setup is not None:
                workload.setup()
                runtime.wait_device()
            with runtime.counted_range(stream, workload.written_share(self.nbytes)):
                return workload.call()

    def old_code(
        self, workload: Workload, old: str, new: str, shape: LaunchShape | None = None, cubin: bytes | None = None
    ) -> OldCode:
        """Load the old code of a raw kernel's launch and run it once; restore the arrays afterwards.

        shape: the old launch's, where it differs from the workload's. cubin: the old machine code, loaded as CuPy loads
        the new code. Without it the driver compiles the PTX, and also the new PTX if CuPy loads cubins.
        Raises KernelError, UsageError if the launch is impossible, OutOfMemory, DeviceLost if the code faults.
        """
        launch = workload.launch
        if launch is None:
            raise KernelError("the call is not a kernel launch")
        if self._variables_set(launch.kernel):
            raise KernelError("the test sets variables of the new kernel")
        with self._current():
            if cubin is not None and not self._codes.loads_machine_code:
                raise KernelError("the old kernel is NVRTC's machine code, but here the driver compiles CuPy's PTX")
            before = replace(launch, kernel=kernels.old_kernel(self._cupy, old, cubin, launch.kernel))
            if shape is not None:
                before = replace(before, **shape._asdict())
            launches = [before]
            if cubin is None and self._codes.loads_machine_code:
                launches.append(replace(launch, kernel=kernels.old_kernel(self._cupy, new, None, launch.kernel)))
            calls = [BoundLaunch(one, workload.stream, self.launcher(one, workload.stream)) for one in launches]
            args = kernels.prepared_call(self._arrays, launch)
            self._runtime.wait_device()
            with self._guard.allocation("a copy of the arrays, kept from the old code,"):
                restore = kernels.keep_arrays(self._arrays, args)
            for call in calls:
                self.run(replace(workload, call=call))
            self._restore(restore)
            resources = self.resources(before)
            return OldCode(tuple(calls), resources, lambda: self._restore(restore))

    def host_args(self, launch: Launch) -> tuple[Any, ...]:
        if self._variables_set(launch.kernel):
            raise KernelError("the test sets variables of the kernel")
        with self._current():
            args = kernels.prepared_call(self._arrays, launch)
            self._runtime.wait_device()
            return kernels.host_copies(self._arrays, args)

    def _restore(self, restore: Call) -> None:
        with self._current():
            self._runtime.wait_device()
            restore()
            self._runtime.wait_device()

    def measure(self, workload: Workload, budget: Budget, progress: Progress) -> Measurement:
        """Calibrate, then sample. Raises UsageError where the work runs on another stream, DeviceLost, OutOfMemory.

        With `graph`, a sample is one replay of a graph, of one run of a callable or of several launches. The time of
        several launches is divided by their number.
        """
        with self._current(), self.zones.pause():
            if workload.graph:
                workload = self._replayed(workload)
            cold = workload.cold and self._is_small((self._in_graph or 1) * workload.data_bytes(self.nbytes))
            self._timer.begin(cold, workload.written_share(self.nbytes))
            if self._blocking is not None:
                self._timer.findings.append(self._blocking)
            before = self._health.begin()
            self._measured = workload
            try:
                timing.calibrate(self._timer, workload)
                measurement = measure_timed(self, workload, budget, progress)
                empty = self._timer.known_empty_seconds
                if self._timer.blocked and self._in_graph is None and empty is not None and measurement.samples:
                    timing.refuse_empty(median(measurement.samples), empty)  # work may have left the stream by now
                around = (measurement.conditions_before, measurement.conditions_after)
                reasons = (reason for conditions in around for reason in conditions.event_reasons)
                found = self._health.findings(before, reasons, self._nominal_clock_mhz, self._max_memory_clock_mhz)
                explained = measurement.with_finding(*self._timer.findings, *found)
                return replace(explained, detail={**measurement.detail, **self._detail(workload.stream)})
            finally:
                self._measured, self._in_graph = None, None
                self._timer.begin(cold=True)  # what was learned holds for this workload only

    def _replayed(self, workload: Workload) -> Workload:
        """Return the workload and its interleaved calls as replays of graphs, of several launches or of one run.

        Raises UsageError where CUDA cannot capture them, OutOfMemory.
        """
        if self._cupy.cuda.runtime.is_hip:
            raise UsageError("graph=True: CuPy captures no graphs under HIP: measure without graph=True")
        if workload.launch is not None:
            interleaved = [other.launch for other in workload.interleaved if isinstance(other, BoundLaunch)]
            if len(interleaved) < len(workload.interleaved):
                raise UsageError("graph=True: expected one kernel launch, and no doubled=")
            return self._launches_replayed(workload, (workload.launch, *interleaved))
        timing.settle(self._timer, workload)
        stream = self._runtime.stream(workload.stream)
        # CUDA does not capture its default stream. A stream that waits for it takes its place: then CUDA refuses work
        # that a callable still queues there, which the graph would lack.
        capturing = stream if stream.ptr not in LEGACY_STREAMS else self._cupy.cuda.Stream()

        def replayed(call: Call) -> Call:
            replay = kernels.captured_run(self._cupy, call, capturing)
            return lambda: replay(stream)

        call, *others = map(replayed, (workload.call, *workload.interleaved))
        self._in_graph = 1
        return replace(workload, call=call, interleaved=tuple(others))

    def _launches_replayed(self, workload: Workload, launches: Sequence[Launch]) -> Workload:
        """Return the workload as a replay of several launches, each on its own arrays if the workload is cold.

        launches: the workload's, then the interleaved ones, such as old code. Each has a graph, on the same arrays.
        """
        count = kernels.launches_in_graph(workload.data_bytes(self.nbytes), self._facts.cache_bytes)
        args = kernels.prepared_call(self._arrays, launches[0])
        self._runtime.wait_device()
        free = self._cupy.cuda.runtime.memGetInfo()[0] + self._cupy.get_default_memory_pool().free_bytes()
        with self._guard.allocation("copies of the arrays, for graph=True,"):
            sets = kernels.rotated_arguments(self._arrays, args, count, free) if workload.cold else [args] * count
        workload.call()  # loads the kernel
        self._runtime.wait_device()
        stream = self._runtime.stream(workload.stream)

        def replayed(launch: Launch) -> Call:
            calls = [self.launcher(replace(launch, args=one), None) for one in sets]
            graph = kernels.captured_launches(self._cupy, calls)

            def replay(_kept: object = sets) -> None:
                graph.launch(stream)

            return replay

        call, *others = map(replayed, launches)
        self._in_graph = count
        return replace(workload, call=call, interleaved=tuple(others))

    def now(self) -> float:
        return self._runtime.now()

    def time(self, call: Call, stream: Any) -> Sample:
        """Take one sample. A measurement's workload decides whether it is cold; outside of one, a probe's size does."""
        probe = call if isinstance(call, ProbeCall) else None
        if self._measured is None:
            self._timer.cold = probe is None or self._is_small(probe.data_bytes)
        with self._current():
            if probe is None:
                sample = self._timer.time(call, stream)
                launches = self._in_graph or 1
                each, host = sample.seconds / launches, sample.host_seconds / launches
                return replace(sample, seconds=each, host_seconds=host)
            return self._timer.time(call, stream, own=True, written_share=probe.written_share)

    def probe(self, traffic: Traffic, inputs: Sequence[Any] = ()) -> Probe:
        """Return a read, write, copy or 2:1 add of similar size and mix, on its own buffers. Raises OutOfMemory."""
        del inputs
        with self._current():
            probe = self._probes.probe(traffic)
            timing.load(self._timer, self._measured or Workload(probe.call, traffic), probe.call)
            return probe

    def conditions(self) -> Conditions:
        return self._health.conditions()

    def release(self) -> None:
        """Give back the probe's arrays, the flush's buffer, and unused memory of CuPy's pool.

        Waits for all work first. Raises DeviceLost where work poisons the context: freeing would only warn about it.
        """
        if self._guard.lost is not None:
            self._keep()
            return
        with self._current():
            self._runtime.wait_device()
            self._probes.release()
            self._runtime.release_memory()
            self._cupy.get_default_memory_pool().free_all_blocks()

    def _keep(self) -> None:
        """Keep all objects of a lost context alive, and silence CuPy's errors about them when Python ends."""
        if not _UNDESTROYABLE:
            atexit.register(mute_lost_context)
        if self not in _UNDESTROYABLE:
            _UNDESTROYABLE.append(self)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make this device the current one, and notice errors that poison its context."""
        # The guard is outside: on a lost context the device's own exit raises, which would hide the guard's error.
        try:
            with self._guard.watch(), self._cupy.cuda.Device(self._index):
                yield
        except DeviceLost:
            self._keep()
            raise

    def _is_small(self, data_bytes: int) -> bool:
        """Return whether the cache could serve a run with data that the run before left in it."""
        return data_bytes < timing.CACHES_TO_BE_COLD * self._facts.cache_bytes

    def _random_bytes(self, size: int) -> Any:
        words = self._cupy.empty(-(-size // 8), np.uint64)
        self._fill(words, words.size, 2**64 - 1, 0)
        return words

    def _fill(self, words: Any, count: int, keep: int, fixed: int, *, repeats: bool = False) -> None:
        """Fill words with random bits. repeats: with the same bits in every run of a test."""
        if repeats:
            seed = self._whole_seed = self._whole_seed + count
        else:
            seed = self._seed = (self._seed + count) % 2**64
        grid = min(-(-count // RANDOM_THREADS), 32 * self._facts.sm_count)
        args = (words, np.uint64(seed), np.uint64(keep), np.uint64(fixed), np.int64(count))
        self._fill_kernel((grid,), (RANDOM_THREADS,), args)

    def _detail(self, stream: Any) -> dict[str, Any]:
        def nothing_launched() -> Call:  # launched as the measurement's samples are
            nothing, target = self._runtime.launch_nothing, self._runtime.stream(stream)
            if self._in_graph is None:
                return nothing
            graph = kernels.captured_launches(self._cupy, [nothing] * self._in_graph)
            return lambda: graph.launch(target)

        floor = self._timer.floor_seconds(self._in_graph, nothing_launched, stream)
        return {
            "cache_flushed": self._timer.cold,
            **({} if self._in_graph is None else {"graph_launches": self._in_graph}),
            "empty_seconds": self._timer.known_empty_seconds,
            FLOOR_SECONDS: floor,
            "event_step_seconds": self._timer.event_step_seconds,
            SM_CLOCK_MHZ: self._timer.clock_mhz,
            "sm_clock_nominal_mhz": self._nominal_clock_mhz,
            "sm_clock_reported_mhz": self._health.reading.conditions.sm_clock_mhz,
            "uncorrected_ecc_errors": self._health.reading.uncorrected_ecc_errors,
        }
