"""Compile a kernel's text or load its old code, make it ready to launch, and read its registers and memory.

Also set a module's variables, and capture launches, or a callable's run, into a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pytest_bandwidth.devices.arguments import (
    MOST_THREADS_PER_BLOCK,
    SHARED_BYTES_FOR_ALL,
    GpuArrays,
    checked_arguments,
    checked_shape,
)
from pytest_bandwidth.devices.base import Call, KernelSource, Launch
from pytest_bandwidth.devices.code.compiled import for_architecture
from pytest_bandwidth.devices.code.variables import checked_contents, variable_settings
from pytest_bandwidth.devices.cuda.runtime import CAPTURING, one_line, status_of
from pytest_bandwidth.devices.cuda.timing import CACHES_TO_BE_COLD
from pytest_bandwidth.devices.kernel_source import STAND_INS, headers_digest, include_folders, kernel_names, options_of
from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.code.kernel_signature import source_parameters
from pytest_bandwidth.domain.code.stored_kernel import Version, entry_of, in_version, newest_version, version_of
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.domain.units import format_bytes

NOT_FOUND = 500  # CUDA_ERROR_NOT_FOUND, hipErrorNotFound: the module has no such function
LONGEST_LOG = 6000
# A macro with a hash of the files that a source includes. CuPy's cache finds a kernel by source and options only, and
# would return the old kernel where only an included file changed.
HEADERS_MACRO = "PYTEST_BANDWIDTH_HEADERS"


def kernel_of_compiled(cupy: Any, source: KernelSource) -> tuple[Any, bytes]:
    """Return a cupy.RawKernel of the source's first compiled code that the driver takes, and that code.

    Raises KernelError where the driver refuses all, NotOnThisDevice where the source has no code for this GPU.
    """
    if cupy.cuda.runtime.is_hip:
        raise NotOnThisDevice(f"{_place(source)} holds {source.name} for NVIDIA's GPUs, and this is AMD's")
    arch = int(cupy.cuda.Device().compute_capability)
    refused = None
    for code in for_architecture(source.compiled, arch):
        try:
            return _loaded(cupy, code.data, source.name, None), code.data
        except cupy.cuda.driver.CUDADriverError as error:
            refused = error
    if refused is not None:
        reason = one_line(refused)
        raise KernelError(f"{_place(source)}: the driver cannot load its code of {source.name} ({reason})")
    flags = f"-gencode arch=compute_{arch},code=sm_{arch}"
    raise NotOnThisDevice(
        f"{_place(source)} holds no code of {source.name} for this GPU (sm_{arch}): build it with {flags}"
    )


def compile_kernel(cupy: Any, source: KernelSource) -> Any:
    """Return a cupy.RawKernel, compiled.

    Raises KernelError with the compiler's log, or with the kernels that do exist.
    """
    # The names that the C++ compiler has to spell out: the given ones, or a template kernel's own.
    expressions = source.name_expressions or ((source.name,) if "<" in source.name else ())
    try:
        return _function(cupy, source, expressions)
    except cupy.cuda.driver.CUDADriverError as error:
        if status_of(error) != NOT_FOUND:
            raise
    # A kernel that is not extern "C" has a C++ name, which the compiler can report.
    if not expressions and source.name in kernel_names(source.text):
        try:
            return _function(cupy, source, (source.name,))
        except cupy.cuda.driver.CUDADriverError as error:
            if status_of(error) != NOT_FOUND:
                raise
        except KernelError:  # the text compiles, but the name lacks template arguments or a namespace
            raise missing_kernel(source) from None
    raise missing_kernel(source)


def _function(cupy: Any, source: KernelSource, expressions: tuple[str, ...]) -> Any:
    options = options_of(source)
    if not cupy.cuda.runtime.is_hip:  # hiprtc has its own headers
        options = (*options, f"-I{STAND_INS}")
    if folders := include_folders(options):
        options = (*options, f"-D{HEADERS_MACRO}={headers_digest(source.text, folders)}")
    module = cupy.RawModule(code=source.text, options=options, name_expressions=list(expressions) or None)
    try:
        return module.get_function(source.name)
    except cupy.cuda.compiler.CompileException as error:
        raise compile_error(source, error.get_message()) from None


def compile_error(source: KernelSource, log: str) -> KernelError:
    """Return the error: one line that names the kernel, then the compiler's log, cut where it is very long."""
    log = log.strip()
    shown = log if len(log) <= LONGEST_LOG else f"{log[:LONGEST_LOG]}\n… {len(log) - LONGEST_LOG} more characters"
    return KernelError(f"{_place(source)} does not compile (kernel {source.name}):\n{shown}")


def missing_kernel(source: KernelSource) -> KernelError:
    """Return the error for a name that the compiled text lacks; it lists the kernels of the text."""
    names = kernel_names(source.text)
    listed = ", ".join(names) if names else "none"
    if source.name in names:
        listed += "; a template needs its arguments (name<float>), a namespace its name (space::name)"
    return KernelError(f"{_place(source)} has no kernel {source.name!r}, it has {listed}")


def _place(source: KernelSource) -> str:
    return str(source.file) if source.file is not None else "the source text"


def prepared_call(gpu: GpuArrays, launch: Launch, source: KernelSource | None = None) -> tuple[Any, ...]:
    """Check a launch and return its arguments, ready for the kernel. Raises UsageError or KernelError.

    source: the kernel's, where it is known.
    """
    cupy, kernel = gpu.cupy, launch.kernel
    is_raw = isinstance(kernel, cupy.RawKernel)
    if is_raw:  # ours, or one that the user made
        try:
            _ = kernel.kernel  # compiles on first use; better here than inside a sample
        except cupy.cuda.compiler.CompileException as error:
            raise compile_error(KernelSource(kernel.code or "", kernel.name), error.get_message()) from None
    elif not callable(kernel):  # cupyx.jit.rawkernel, for example, also takes (grid, block, args)
        raise UsageError(
            f"{type(kernel).__name__} is not a kernel: expected what bandwidth.kernel() gives, or a cupy.RawKernel"
        )
    found = () if source is None else source_parameters(source.text, source.name, len(launch.args))
    args = checked_arguments(launch.args, gpu, [one.held for one in found])
    most_threads = kernel.max_threads_per_block if is_raw else MOST_THREADS_PER_BLOCK
    checked_shape(launch.grid, launch.block, most_threads, on_hip=bool(cupy.cuda.runtime.is_hip))
    if is_raw:
        if launch.shared_bytes < 0:
            raise UsageError(f"shared memory is {launch.shared_bytes} bytes, expected 0 or more")
        _allow_shared_memory(gpu, kernel, launch.shared_bytes)
    return args


def _allow_shared_memory(gpu: GpuArrays, kernel: Any, shared_bytes: int) -> None:
    """Ask for more than 48 KiB of dynamic shared memory, which users of RawKernel tend to forget. Raises UsageError."""
    wanted, runtime = shared_bytes + kernel.shared_size_bytes, gpu.cupy.cuda.runtime
    if runtime.is_hip:
        # HIP gives a kernel all of it on request: it has no attribute to set, and CuPy's setter always fails.
        most = int(runtime.getDeviceProperties(gpu.index)["sharedMemPerBlock"])
        if wanted > most:
            raise UsageError(
                f"the launch asks for {wanted} bytes of shared memory a block, this GPU has {most}: ask for less"
            )
    elif wanted > SHARED_BYTES_FOR_ALL:
        try:
            kernel.max_dynamic_shared_size_bytes = shared_bytes
        except RuntimeError as error:  # CUDADriverError
            raise UsageError(
                f"the launch asks for {shared_bytes} bytes of dynamic shared memory a block, which this GPU refuses "
                f"({one_line(error)}): ask for less"
            ) from None


def kernel_resources(cupy: Any, launch: Launch, threads_per_sm: int) -> KernelResources | None:
    """Return a raw kernel's registers and memory, with this launch's shape and occupancy; None for other kernels."""
    kernel = launch.kernel
    if not isinstance(kernel, cupy.RawKernel):
        return None
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    blocks = None
    if not cupy.cuda.runtime.is_hip:  # for HIP CuPy has a function that always fails (cupy_backends/hip/cupy_hip.h)
        ask = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        blocks = int(ask(kernel.kernel.ptr, threads, launch.shared_bytes))
    return KernelResources(
        registers=kernel.num_regs,
        local_bytes=kernel.local_size_bytes,
        shared_bytes=kernel.shared_size_bytes,
        max_threads_per_block=kernel.max_threads_per_block,
        occupancy=blocks * threads / threads_per_sm if blocks is not None and threads_per_sm else None,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared_bytes=launch.shared_bytes,
    )


# An array's address modulo so many bytes decides which sectors and lines hold its elements.
_ALIGNED_BYTES = 256


def newest_ptx(cupy: Any) -> Version | None:
    """Return the newest version of PTX that the driver takes; None for AMD's driver, which takes no PTX."""
    runtime = cupy.cuda.runtime
    if runtime.is_hip:
        return None
    version = runtime.driverGetVersion()
    return newest_version((version // 1000, version % 1000 // 10))


def old_kernel(cupy: Any, ptx: str, cubin: bytes | None, like: Any = None) -> Any:
    """Return the kernel of a module of one kernel as a cupy.RawKernel, with the launch settings of `like`.

    cubin: the machine code that it was compiled to; without it the driver compiles the PTX. If the PTX declares a newer
    version than the driver takes, the driver's version replaces it: most modules use no new feature. Raises KernelError
    where the driver does not take the code.
    """
    entry, version, newest = entry_of(ptx), version_of(ptx), newest_ptx(cupy)
    if entry is None:
        raise KernelError("its PTX holds no kernel, or several")
    code, what = (ptx.encode(), "its PTX") if cubin is None else (cubin, "its machine code")
    if cubin is None and version is not None and newest is not None and version > newest:
        code, what = in_version(ptx, newest).encode(), "its PTX {}.{} as {}.{}".format(*version, *newest)
    try:
        return _loaded(cupy, code, entry.name, like)
    except cupy.cuda.driver.CUDADriverError as error:
        raise KernelError(f"the driver cannot load {what} ({one_line(error)})") from None


def _loaded(cupy: Any, code: bytes, name: str, like: Any) -> Any:
    """Load compiled code: PTX, or a cubin. Raises CUDADriverError."""
    # RawModule loads compiled code only from a file.
    with TemporaryDirectory(prefix="pytest-bandwidth-") as folder:
        file = Path(folder, "kernel")
        file.write_bytes(code)
        together = like is not None and bool(like.__getstate__()["enable_cooperative_groups"])
        kernel = cupy.RawModule(path=str(file), enable_cooperative_groups=together).get_function(name)
        _ = kernel.kernel  # loads now, while the file is there
    if (carveout := getattr(like, "preferred_shared_memory_carveout", -1)) != -1:
        kernel.preferred_shared_memory_carveout = carveout
    return kernel


def keep_arrays(gpu: GpuArrays, args: Iterable[Any]) -> Call:
    """Copy the contiguous arrays among arguments, on the current device; return a function that restores them.

    The same memory is copied once. Raises CuPy's OutOfMemory.
    """
    copies = [(array, gpu.cupy.cuda.alloc(array.nbytes)) for array in _by_place(filter(gpu.is_array, args)).values()]
    for array, copy in copies:
        copy.copy_from_device(array.data, array.nbytes)

    def restore() -> None:
        for array, copy in copies:
            array.data.copy_from_device(copy, array.nbytes)

    return restore


def _by_place(arrays: Iterable[Any]) -> dict[tuple[int, int], Any]:
    """Return arrays by address and bytes: arrays of the same memory once."""
    return {(array.data.ptr, array.nbytes): array for array in arrays if array.nbytes}


def host_copies(gpu: GpuArrays, args: Sequence[Any]) -> tuple[Any, ...]:
    """Return a launch's arguments with NumPy copies of contiguous arrays; arrays of the same memory share a copy.

    A copy begins in its buffer at the array's address modulo `_ALIGNED_BYTES`.
    """
    copies: dict[tuple[int, int], Any] = {}

    def copied(array: Any) -> Any:
        place = array.data.ptr, array.nbytes
        if place not in copies:
            start = array.data.ptr % _ALIGNED_BYTES
            raw = np.empty(start + array.nbytes, np.uint8)
            raw[start:] = gpu.cupy.asnumpy(array).reshape(-1).view(np.uint8)
            copies[place] = raw[start:]
        return copies[place].view(array.dtype).reshape(array.shape)

    return tuple(copied(arg) if gpu.is_array(arg) else arg for arg in args)


def with_attributes(cupy: Any, kernel: Any) -> Any:
    """Return a RawKernel as an instance of a subclass, which accepts new attributes."""
    kind: Any = type("RawKernel", (cupy.RawKernel,), {})
    made = kind.__new__(kind)
    made.__setstate__(kernel.__getstate__())
    _ = made.kernel  # of the same module, which is loaded
    return made


class Variables:
    """Hold the variables that a test set in one module, which all kernels of a source share.

    module: CuPy's. sizes: the bytes of each variable. No work on the device may use the module during a write.
    """

    def __init__(self, cupy: Any, module: Any, sizes: Mapping[str, int]) -> None:
        self._cupy, self._module, self._sizes = cupy, module, sizes
        self._before: dict[str, Any] = {}
        self._digests: dict[str, str] = {}

    @property
    def settings(self) -> tuple[str, ...]:
        """Return the settings that identify launches, together with code and arguments."""
        return variable_settings(self._digests)

    def set(self, name: str, value: Any, source: KernelSource) -> None:
        """Write a whole variable. source: the kernel's. Raises UsageError."""
        if isinstance(value, self._cupy.ndarray):
            value = self._cupy.asnumpy(value)
        data = checked_contents(name, value, self._sizes, source)
        if name not in self._before:
            before = np.empty(len(data), np.uint8)
            self._place(name).copy_to_host(before.ctypes.data, before.nbytes)
            self._before[name] = before
        self._write(name, np.frombuffer(data, np.uint8))
        self._digests[name] = digest(data)

    def restore(self) -> None:
        """Restore the variables' earlier values."""
        for name, before in self._before.items():
            self._write(name, before)
        self._before.clear()
        self._digests.clear()

    def _write(self, name: str, data: Any) -> None:
        self._place(name).copy_from_host(data.ctypes.data, data.nbytes)

    def _place(self, name: str) -> Any:
        memory = self._cupy.cuda.UnownedMemory(self._module.get_global_var(name), self._sizes[name], self._module)
        return self._cupy.cuda.MemoryPointer(memory, 0)


# A graph holds several launches of a kernel, each on its own arrays, or one run of a callable. Both find cold caches:
# launches replace each other's data, and the cache is flushed before a replayed run, as before any sample.
# A graph holds so many launches, fewer where their data are many caches' worth.
MOST_LAUNCHES = 32
FEWEST_LAUNCHES = 2
# The copies of the arrays take at most this share of the free memory: the probe needs some, too.
LARGEST_SHARE = 0.5
# CUDA's allocations begin at multiples of it (CUDA C++ Programming Guide, "Device Memory Accesses": at least 256).
ALIGNMENT = 512


def launches_in_graph(data_bytes: int, cache_bytes: int) -> int:
    """Return how many launches of so much data a graph holds: enough to replace the cache's content, within limits."""
    wanted = -(-CACHES_TO_BE_COLD * cache_bytes // max(data_bytes, 1))
    return min(MOST_LAUNCHES, max(FEWEST_LAUNCHES, wanted))


def rotated_arguments(gpu: GpuArrays, args: Sequence[Any], count: int, free_bytes: int) -> list[tuple[Any, ...]]:
    """Return `count` sets of a launch's arguments; each but the first has copies of the arrays.

    An array that is given twice has one copy in a set. A copy is aligned as its original. Raises UsageError where two
    arrays overlap in part, unlike copies, or the copies leave too little memory; CuPy's OutOfMemory.
    """
    by_place = _by_place(filter(gpu.is_array, args))
    for (start, size), (following, _) in pairwise(sorted(by_place)):
        if following < start + size:
            raise UsageError(
                "graph=True: two of the arrays overlap, so launches cannot have arrays of their own: measure without "
                "graph=True"
            )
    needed = (count - 1) * sum(size for _, size in by_place)
    if needed > LARGEST_SHARE * free_bytes:
        raise UsageError(
            f"graph=True: {count} launches on arrays of their own need {format_bytes(needed)} more, "
            f"{format_bytes(free_bytes)} are free: measure without graph=True, so much work hides its launch"
        )
    sets = [tuple(args)]
    for _ in range(count - 1):
        copies = {}
        for place, array in by_place.items():
            shift = array.data.ptr % ALIGNMENT
            memory = gpu.cupy.cuda.alloc(array.nbytes + shift) + shift
            memory.copy_from_device(array.data, array.nbytes)
            copies[place] = gpu.cupy.ndarray(array.shape, array.dtype, memptr=memory, strides=array.strides)
        sets.append(tuple(copies[a.data.ptr, a.nbytes] if gpu.is_array(a) and a.nbytes else a for a in args))
    return sets


def captured_launches(cupy: Any, calls: Sequence[Call]) -> Any:
    """Return a graph of the calls, one after the other. Raises UsageError with CUDA's reason where that fails.

    Each call must have run before: a first launch may load or compile, which cannot be captured. A call must not
    allocate: the memory would have another owner at the replay.
    """

    def no_memory(size: int) -> Any:
        raise UsageError(
            f"graph=True: the launch allocates {format_bytes(size)}, which other code may use when the graph is "
            "replayed: measure without graph=True"
        )

    stream = cupy.cuda.Stream(non_blocking=True)
    with _refusing("the launch", "it waits, or copies to the host"):
        return _captured(cupy, stream, calls, no_memory, None)


def captured_run(cupy: Any, call: Call, stream: Any) -> Callable[[Any], object]:
    """Capture one run of the call in a graph; return a function that replays it on a stream, with the run's result.

    stream: captures the run, as the current stream. CuPy allocates the call's memory from a pool that only the graph
    uses. Raises UsageError, with CUDA's reason, where the call cannot be captured.
    """
    pool, returned = cupy.cuda.MemoryPool(), []
    with stream, cupy.cuda.using_allocator(pool.malloc):
        call()  # fills the pool: a captured run cannot allocate
        stream.synchronize()
    reasons = (
        "it waits, copies to the host, uses the default stream, calls a library such as cuBLAS, leaves another stream "
        "busy, or allocates new memory"
    )
    with _refusing("the callable", reasons):
        # Not CuPy's default mode: it permits allocations, and their memory is freed before the replay.
        mode = cupy.cuda.runtime.streamCaptureModeThreadLocal
        graph = _captured(cupy, stream, [lambda: returned.append(call())], pool.malloc, mode)

    def replay(target: Any, _kept: object = pool) -> object:
        graph.launch(target)
        return returned[0]

    return replay


@contextmanager
def _refusing(what: str, reasons: str) -> Iterator[None]:
    """Raise UsageError where CUDA does not allow an operation while a stream is captured."""
    try:
        yield
    except Exception as error:
        # The error of a user's callable is the cause of an error that names the callable.
        culprit = next((one for one in (error, error.__cause__) if one is not None and _is_of_capture(one)), None)
        if culprit is None:
            raise
        # With several callables, the error names the callable that raised it.
        which = getattr(error, "what", what)
        raise UsageError(
            f"graph=True: CUDA does not capture {which} ({one_line(culprit)}): {reasons}; measure without graph=True"
        ) from None


def _is_of_capture(error: BaseException) -> bool:
    """Return whether CUDA, or CuPy without an error number, refused an operation while a stream is captured."""
    status = status_of(error)
    if status is not None:
        return status in CAPTURING
    # CuPy raises these two types for a refused capture, but for other errors, too: only the text distinguishes them.
    is_cupys = isinstance(error, (RuntimeError, NotImplementedError))
    return is_cupys and any(words in str(error) for words in ("is capturing", "stream capture"))


def _captured(cupy: Any, stream: Any, calls: Sequence[Call], allocate: Callable[[int], Any], mode: int | None) -> Any:
    with stream, cupy.cuda.using_allocator(allocate):
        stream.begin_capture(mode)
        try:
            for call in calls:
                call()
        except BaseException:
            with suppress(RuntimeError):  # a capture that failed ends with an error of its own
                stream.end_capture()
            raise
        return stream.end_capture()
