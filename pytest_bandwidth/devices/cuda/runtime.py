"""Provide CUDA's operations for timing, through CuPy: streams, events, a full cache, a blocked stream, clocks, probes.

Its errors differ by the remedy: for missing memory, a lost context, or the user's own mistake.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import COUNTED_RANGE, Call, Probe
from pytest_bandwidth.devices.cuda.health import clock_from_stamps, shortest_interval_ns
from pytest_bandwidth.domain.errors import DeviceLost, OutOfMemory, UsageError
from pytest_bandwidth.domain.interpreter import clock
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.traffic import READ, WRITE, Mix, Traffic, nearest_mix

CLOCK_CHANGES = 8
FLUSH_THREADS = 256
# Data of so many caches' size replace all content of the cache, under every replacement policy.
FLUSH_CACHES = 3
NEVER = 0x5EED5EED
# The kernel that runs around a sample's work.
STAMP = "stamp_clocks"
MAPPED = 2  # cudaHostAllocMapped, hipHostMallocMapped
# Errors after which every call in the process fails until it ends: "the process must be terminated and relaunched"
# (CUDA Runtime API, cudaError). HIP uses the same numbers for those it has.
STICKY: dict[int, str] = {
    214: "an uncorrectable ECC error",
    220: "an uncorrectable NVLink error",
    700: "a kernel read or wrote outside its arrays",
    702: "a kernel ran longer than the display watchdog allows",
    709: "the context was destroyed",
    710: "an assert in a kernel failed",
    714: "a kernel overran its stack",
    715: "a kernel ran an illegal instruction",
    716: "a kernel used a misaligned address",
    717: "a kernel used an address of the wrong space",
    718: "a kernel's program counter left its code",
    719: "a kernel failed",
}
# cudaErrorStreamCaptureUnsupported to cudaErrorStreamCaptureWrongThread: a call that a stream's capture does not allow.
CAPTURING = range(900, 909)
LONGEST_TEXT = 300


def status_of(error: BaseException) -> int | None:
    """Return CUDA's number of an error that CuPy raised (runtime or driver); None for any other."""
    status = getattr(error, "status", None)
    return status if isinstance(status, int) and not isinstance(status, bool) else None


def one_line(error: BaseException) -> str:
    """Join an error's text into one line, cut where it grows long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} …"


def mute_lost_context() -> None:
    """Silence errors of a lost context, in which CuPy's kernels cannot be destroyed. Call it when Python ends."""
    unraisable, uncaught = sys.unraisablehook, sys.excepthook

    def is_sticky(error: BaseException | None) -> bool:
        return error is not None and status_of(error) in STICKY

    sys.unraisablehook = lambda raised: None if is_sticky(raised.exc_value) else unraisable(raised)
    sys.excepthook = lambda kind, error, trace: None if is_sticky(error) else uncaught(kind, error, trace)


class ContextGuard:
    """Watch everything that touches the GPU, and remember when the context is lost.

    synchronize: waits for the device; raises CUDA's error.
    out_of_memory: the exceptions that mean that an allocation failed.
    """

    def __init__(self, synchronize: Callable[[], Any], out_of_memory: tuple[type[BaseException], ...]) -> None:
        self._synchronize = synchronize
        self._out_of_memory = out_of_memory
        self.lost: str | None = None

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Run a block of work. Raises DeviceLost where it poisons the context, or an earlier one did.

        Any other error of the block passes through: it is the user's own. A framework may report a sticky error in its
        own words, so the guard asks CUDA itself.
        """
        if self.lost is not None:
            raise DeviceLost(self.lost)
        try:
            yield
        except DeviceLost:
            raise
        except Exception as error:
            self._note_if_sticky(error)
            if status_of(error) in CAPTURING:
                raise UsageError(
                    f"a stream is capturing a graph, and CUDA cannot synchronize meanwhile ({one_line(error)}): end "
                    "the capture first (an earlier test may have begun it), then measure the graph's launch"
                ) from None
            raise

    @contextmanager
    def allocation(self, what: str) -> Iterator[None]:
        """Run an allocation of the plugin's. Raises OutOfMemory, which names its purpose."""
        try:
            yield
        except self._out_of_memory as error:
            raise OutOfMemory(
                f"{what} does not fit the GPU's memory ({one_line(error)}): use smaller arrays, or free some"
            ) from None

    def _note_if_sticky(self, error: BaseException) -> None:
        culprit = error
        if status_of(error) not in STICKY:
            try:
                self._synchronize()
            except RuntimeError as reported:  # the base class of CuPy's errors of runtime and driver
                culprit = reported
        if (status := status_of(culprit)) not in STICKY:
            return
        self.lost = self.lost or (
            f"the GPU context is lost, {STICKY[status]} ({one_line(culprit)}): nothing more can be measured in this "
            "process; run the test alone under compute-sanitizer to find the place"
        )
        raise DeviceLost(self.lost) from error


class CupyRuntime:
    """Provide the operations that `Timer` needs, through CuPy, on one device. A stream is a result of `stream`.

    module: the compiled cuda_src/probe.cu. cache_bytes: size of the last cache before memory.
    """

    def __init__(
        self, cupy: Any, module: Any, index: int, cache_bytes: int, sm_count: int, guard: ContextGuard
    ) -> None:
        self._cupy = cupy
        self._runtime = cupy.cuda.runtime
        self._index = index
        self._guard = guard
        self._cache_bytes = cache_bytes
        self._sm_count = sm_count
        self._hip = bool(self._runtime.is_hip)
        self._blocking_kernel = module.get_function("blocking_kernel")
        self._stamp = module.get_function(STAMP)
        self._fill_cache = module.get_function("fill_cache")
        # Pinned host memory has one address for host and device (CUDA C++ Programming Guide, "Unified Virtual
        # Address Space"), so the kernel may poll what Python writes. Mapped: HIP's other pinned memory is coarse-
        # grained: a running kernel may not get what the host stores there (HIP documentation, "Coherence control").
        self._flags_memory = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(64, MAPPED), 0)
        self._flags = np.frombuffer(self._flags_memory, np.int32, 2)
        self._flags[:] = 0
        self._ticket = 0
        # Numbers of multiprocessors may have gaps (MIG, fused-off units), so there are more slots than units.
        self._slots = max(256, 2 * sm_count)
        self._stamps = cupy.zeros((2, self._slots, 2), np.uint64)
        self._sink = cupy.zeros(1, np.uint32)
        self._scratch: Any = None
        self._flushes = 0
        # Resets lines of L2 that an access policy made persisting: these survive a flush, however much data it reads
        # (CUDA C++ Programming Guide, "L2 Access Property"). CuPy's runtime has no such call.
        self._reset_persisting: Call = lambda: None
        if not self._hip:
            with suppress(OSError, AttributeError):  # a driver from before CUDA 11
                self._reset_persisting = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
        self._shortest_ns = 0
        if not self._hip:
            smallest = cupy.zeros(1, np.uint64)
            module.get_function("clock_step")((1,), (1,), (smallest, np.int32(CLOCK_CHANGES)))
            self._shortest_ns = shortest_interval_ns(int(smallest.get()[0]))
        # Each kernel of a sample is launched once here. A driver that loads a kernel at its first launch waits for all
        # streams: behind a blocking kernel, it would wait for that kernel's time-out.
        stream = cupy.cuda.get_current_stream()
        self._launch_blocking(stream, ticket=0, seconds=0.0)
        self.stamp(stream, 0)
        self.launch_nothing()
        self.wait_device()

    def now(self) -> float:
        """Return monotonic seconds of the host."""
        return clock.perf_counter()

    def pause(self, seconds: float) -> None:
        """Give the device no work for so long: nothing else brings a throttled clock back."""
        clock.sleep(seconds)

    def stream(self, stream: Any) -> Any:
        """Convert a stream of any library into CuPy's; None is the current one. Raises UsageError."""
        if stream is None:
            return self._cupy.cuda.get_current_stream()
        if isinstance(stream, self._cupy.cuda.Stream):
            return stream
        return external_stream(self._cupy, stream_pointer(stream), self._index, stream)

    def using(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the current one, inside a with block."""
        if stream == self._cupy.cuda.get_current_stream():
            return nullcontext()
        current: AbstractContextManager[Any] = stream
        return current

    def event(self) -> Any:
        return self._cupy.cuda.Event()

    def seconds_between(self, start: Any, end: Any) -> float:
        return float(self._cupy.cuda.get_elapsed_time(start, end)) / 1e3

    def wait_device(self) -> None:
        """Wait until nothing runs on any stream."""
        self._runtime.deviceSynchronize()

    def flush(self, stream: Any, written_share: float) -> None:
        """Queue a kernel that fills the cache with other data; `written_share` of them are still to be written back."""
        size = FLUSH_CACHES * self._cache_bytes
        if size == 0:
            return
        if self._scratch is None:
            with self._guard.allocation(f"the cache flush ({size} bytes)"):
                self._scratch = self._cupy.empty(size, np.uint8)
        self._reset_persisting()
        self._flushes = (self._flushes + 1) % 2**32
        # A cache writes back late. A clean cache would absorb a cache's worth of the sample's writes; a dirty one would
        # write back during the sample. With the work's own mix, as many dirty lines enter as leave.
        self._launch(
            self._fill_cache,
            stream,
            (8 * self._sm_count, FLUSH_THREADS),
            (
                self._scratch,
                self._sink,
                np.uint32(NEVER),
                np.uint32(self._flushes),
                np.uint32(round(64 * written_share)),
                np.int64(size // 16),
            ),
        )

    def block(self, stream: Any, seconds: float) -> int:
        """Launch a kernel that blocks the stream until `unblock`, or for so many seconds; return its ticket."""
        self._ticket += 1
        self._launch_blocking(stream, self._ticket, seconds)
        return self._ticket

    def unblock(self, ticket: int) -> None:
        self._flags[0] = ticket

    def timed_out(self, ticket: int) -> bool:
        """Return whether the blocking kernel ended by its time-out. Call it when the stream is idle."""
        return bool(self._flags[1] == ticket)

    def stamp(self, stream: Any, which: int) -> None:
        """Record all multiprocessors' cycle counters. which: 0 before the work, 1 after it."""
        if self._hip:
            return
        if which == 0:
            self._runtime.memsetAsync(self._stamps.data.ptr, 0, self._stamps.nbytes, stream.ptr)
        self._launch(self._stamp, stream, (self._sm_count, 1), (self._stamps[which], np.uint32(self._slots)))

    def sm_clock_mhz(self) -> float | None:
        """Return the real clock rate between the last two stamps; None where they are too close, or not available."""
        if self._hip:
            return None
        before, after = self._stamps.get()
        return clock_from_stamps(before, after, self._shortest_ns)

    def launch_nothing(self) -> None:
        """Launch one block on the current stream that touches no memory."""
        nothing = (np.uint32(NEVER), np.uint32(0), np.uint32(0), np.int64(0))
        self._fill_cache((1,), (FLUSH_THREADS,), (self._sink, self._sink, *nothing))

    def release_memory(self) -> None:
        """Give back the flush's buffer."""
        self._scratch = None

    @contextmanager
    def counted_range(self, stream: Any, written_share: float) -> Iterator[None]:
        """Flush the cache, and let a profiler count the work that runs inside the block, until the work ends.

        Nsight Compute counts an NVTX range. rocprofv3 counts everything: the work's kernels are those between the flush
        before and the flush after.
        """
        self.flush(stream, written_share)
        self.wait_device()
        nvtx = None if self._hip else import_module("cupy.cuda.nvtx")
        if nvtx is not None:
            nvtx.RangePush(COUNTED_RANGE)
        try:
            yield
            self.wait_device()
        finally:
            if nvtx is not None:
                nvtx.RangePop()
        if self._hip:
            self.flush(stream, written_share)
            self.wait_device()

    def _launch(self, kernel: Any, stream: Any, shape: tuple[int, int], args: tuple[Any, ...]) -> None:
        with self.using(stream):
            kernel((shape[0],), (shape[1],), args)

    def _launch_blocking(self, stream: Any, ticket: int, seconds: float) -> None:
        address = int(self._flags_memory.ptr)
        args = (np.uint64(address), np.uint64(address + 4), np.int32(ticket), np.uint64(int(seconds * 1e9)))
        self._launch(self._blocking_kernel, stream, (1, 1), args)


def external_stream(cupy: Any, pointer: int, index: int, owner: Any = None) -> Any:
    """Wrap a foreign stream as CuPy's. `owner` is kept alive as long as the result."""
    from_external: Callable[[Any], Any] | None = getattr(cupy.cuda.Stream, "from_external", None)
    if from_external is not None:  # CuPy 14; its ExternalStream is deprecated
        return from_external(_Foreign(pointer, owner))
    return cupy.cuda.ExternalStream(pointer, index)


class _Foreign:
    """Give a bare pointer NVIDIA's stream protocol."""

    def __init__(self, pointer: int, owner: Any) -> None:
        self._pointer = pointer
        self.owner = owner

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._pointer)


ACCEPTED = (
    "a cupy.cuda.Stream, a torch.cuda.Stream, a Numba stream, an object whose __cuda_stream__ gives (0, pointer), or "
    "the cudaStream_t pointer as an int"
)


def stream_pointer(stream: Any) -> int:
    """Return the cudaStream_t of a stream, as an int (0 is the legacy default stream).

    Raises UsageError for anything else.

    Read in this order: int; `.ptr` (CuPy); `.cuda_stream` (PyTorch); `__cuda_stream__` (the protocol of NVIDIA's
    cuda.core, version 0; a method, in its first releases an attribute); `.handle` (Numba).
    """
    try:
        pointer = _pointer_of(stream)
    except (TypeError, ValueError):
        pointer = None
    if pointer is None or not 0 <= pointer < 2**64:
        raise UsageError(f"stream={shown(stream)} is not a CUDA stream, expected {ACCEPTED}")
    return pointer


def _pointer_of(stream: Any) -> int | None:
    for candidate in (stream, getattr(stream, "ptr", None), getattr(stream, "cuda_stream", None)):
        if isinstance(candidate, int) and not isinstance(candidate, bool):
            return candidate
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, pointer = protocol() if callable(protocol) else protocol
        return int(pointer) if version == 0 else None
    handle = getattr(stream, "handle", None)
    if handle is None:
        return None
    # Numba's: a ctypes.c_void_p, with None inside for the default stream, a driver object, or an int.
    value = getattr(handle, "value", handle)
    return 0 if value is None else int(value)


# A workload's probe is a plain read, write, copy or add of its size and nearly its mix of reads and writes. On one GPU
# the share of the peak that memory reaches depends on the mix by up to 26 points.
VECTOR_BYTES = 16
THREADS = 256
# Vectors of each array, in a grid in which no thread has a second turn. probe_read unrolls its loop to four loads.
VECTORS_A_THREAD = {READ: 4}
# HIP takes fewer than 2³² threads a launch; past that threads have a second turn.
MOST_BLOCKS = (2**32 - 1) // THREADS
# A probe smaller than the first size measures launching only. One that does not fit is halved, down to the second size.
SMALLEST_BYTES = 64 * 1024
SMALLEST_AFTER_SHRINKING = 16 * 2**20


@dataclass(frozen=True, slots=True)
class ProbeCall:
    """Launch a probe on the current stream. It is a class of its own, so that the device recognises its own calls.

    data_bytes: the size of its arrays, which it moves completely; written_share: the share that it writes.
    """

    launch: Callable[[], None]
    data_bytes: int
    written_share: float

    def __call__(self) -> None:
        self.launch()


class ProbeSet:
    """Make probes and keep the arrays of the last one, which the next may use as well.

    allocate: bytes → an array of them, filled with random bits; raises the allocator's own error.
    free: gives unused memory back to the device before another try.
    """

    def __init__(
        self, kernels: Callable[[str], Any], allocate: Callable[[int], Any], free: Callable[[], None],
        guard: ContextGuard, sink: Any,
    ) -> None:  # fmt: skip  # one parameter a line would hide that it only stores them
        self._kernels = kernels
        self._allocate = allocate
        self._free = free
        self._guard = guard
        self._sink = sink
        self._arrays: list[Any] = []
        self._seed = 0

    def blocks(self, vectors: int, mix: Mix) -> int:
        """Return the grid of a probe: so many blocks that no thread has a second turn, up to MOST_BLOCKS."""
        return min(-(-vectors // (THREADS * VECTORS_A_THREAD.get(mix, 1))), MOST_BLOCKS)

    def probe(self, traffic: Traffic) -> Probe:
        """Return a probe for the traffic. Raises OutOfMemory where not even a small one fits."""
        mix = nearest_mix(traffic)
        vectors = self._fit(max(traffic.bytes_moved, SMALLEST_BYTES) // (mix.arrays * VECTOR_BYTES), mix)
        kernel = self._kernels(f"probe_{mix.name}")
        arrays = self._arrays
        count = np.int64(vectors)
        grid = (self.blocks(vectors, mix),)

        def launch() -> None:
            if mix is READ:
                args: tuple[Any, ...] = (arrays[0], self._sink, np.uint32(0x5EED5EED), count)
            elif mix is WRITE:
                self._seed = (self._seed + 1) % 2**32
                args = (arrays[0], np.uint32(self._seed), count)
            else:
                args = (*arrays[: mix.arrays], count)
            kernel(grid, (THREADS,), args)

        moved = vectors * VECTOR_BYTES * mix.arrays
        return Probe(mix.name, ProbeCall(launch, moved, float(mix.written_share)), moved)

    def release(self) -> None:
        """Give back the arrays."""
        self._arrays = []

    def _fit(self, vectors: int, mix: Mix) -> int:
        """Allocate arrays of so many vectors, halved until they fit; return how many fit."""
        of_all = VECTOR_BYTES * mix.arrays
        asked = vectors * of_all
        while True:
            try:
                with self._guard.allocation(f"the probe ({asked} bytes in {mix.arrays} arrays)"):
                    size = vectors * VECTOR_BYTES
                    if sum(array.nbytes >= size for array in self._arrays[: mix.arrays]) < mix.arrays:
                        self._arrays = []
                        self._free()
                        self._arrays = [self._allocate(size) for _ in range(mix.arrays)]
                return vectors
            except OutOfMemory:
                vectors //= 2
                if vectors * of_all < SMALLEST_AFTER_SHRINKING:
                    raise
