"""Compile a kernel's text or load its old code, make it ready to launch, and tell what the compiler made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pytest_bandwidth.devices.arguments import SHARED_BYTES_FOR_ALL, ArrayWorld, checked_arguments, checked_shape
from pytest_bandwidth.devices.base import Call, KernelSource, Launch
from pytest_bandwidth.devices.cuda.runtime import one_line, status_of
from pytest_bandwidth.devices.kernel_source import headers_digest, include_folders, kernel_names, options_of
from pytest_bandwidth.domain.code.kernel_signature import held_by_value
from pytest_bandwidth.domain.code.stored_kernel import Version, entry_of, in_version, newest_version, version_of
from pytest_bandwidth.domain.errors import KernelError, UsageError
from pytest_bandwidth.domain.measured.measurement import KernelResources

NOT_FOUND = 500  # CUDA_ERROR_NOT_FOUND, hipErrorNotFound: the module has no such function
LONGEST_LOG = 6000
# Defined as a hash of the files that a source includes. CuPy's cache knows a kernel by its source and options, and goes
# on with the old one where only an included file changed.
HEADERS_MACRO = "PYTEST_BANDWIDTH_HEADERS"


def compile_options(source: KernelSource) -> tuple[str, ...]:
    """Return the user's options, the file's own folder for its includes, and the hash of what is included."""
    options = options_of(source)
    folders = include_folders(options)
    return (*options, f"-D{HEADERS_MACRO}={headers_digest(source.text, folders)}") if folders else options


def expressions_for(source: KernelSource) -> tuple[str, ...]:
    """Return the names that the C++ compiler has to spell out: the given ones, or a template kernel's own."""
    if source.name_expressions:
        return source.name_expressions
    return (source.name,) if "<" in source.name else ()


def compile_kernel(cupy: Any, source: KernelSource) -> Any:
    """Return a cupy.RawKernel, compiled.

    Raises KernelError with the compiler's log, or with the kernels that do exist.
    """
    expressions = expressions_for(source)
    try:
        return _function(cupy, source, expressions)
    except cupy.cuda.driver.CUDADriverError as error:
        if status_of(error) != NOT_FOUND:
            raise
    # A kernel that is not extern "C" has a C++ name: the compiler can tell it.
    if not expressions and source.name in kernel_names(source.text):
        try:
            return _function(cupy, source, (source.name,))
        except cupy.cuda.driver.CUDADriverError as error:
            if status_of(error) != NOT_FOUND:
                raise
        except KernelError:  # the text compiles: its name alone does not say which instance, or which namespace's
            raise missing_kernel(source) from None
    raise missing_kernel(source)


def _function(cupy: Any, source: KernelSource, expressions: tuple[str, ...]) -> Any:
    module = cupy.RawModule(
        code=source.text, options=compile_options(source), name_expressions=list(expressions) or None
    )
    try:
        return module.get_function(source.name)
    except cupy.cuda.compiler.CompileException as error:
        raise compile_error(source, error.get_message()) from None


def compile_error(source: KernelSource, log: str) -> KernelError:
    """Write one line that says which, then the compiler's log, cut where it is endless."""
    log = log.strip()
    shown = log if len(log) <= LONGEST_LOG else f"{log[:LONGEST_LOG]}\n… {len(log) - LONGEST_LOG} more characters"
    return KernelError(f"{_place(source)} does not compile (kernel {source.name}):\n{shown}")


def missing_kernel(source: KernelSource) -> KernelError:
    """Tell that the compiled text lacks the name, and list the kernels written there."""
    names = kernel_names(source.text)
    listed = ", ".join(names) if names else "none"
    if source.name in names:
        listed += "; a template needs its arguments (name<float>), a namespace its name (space::name)"
    return KernelError(f"{_place(source)} has no kernel {source.name!r}, it has {listed}")


def _place(source: KernelSource) -> str:
    return str(source.file) if source.file is not None else "the source text"


def ready_kernel(cupy: Any, kernel: Any) -> Any:
    """Return a kernel that can be launched now: ours, or a RawKernel that the user made.

    Raises KernelError, UsageError.
    """
    if isinstance(kernel, cupy.RawKernel):
        try:
            _ = kernel.kernel  # compiles on first use; better here than inside a sample
        except cupy.cuda.compiler.CompileException as error:
            raise compile_error(KernelSource(kernel.code or "", kernel.name), error.get_message()) from None
        return kernel
    if callable(kernel):
        return kernel  # such as cupyx.jit.rawkernel: it takes (grid, block, args) as well
    raise UsageError(
        f"{type(kernel).__name__} is no kernel: expected what bandwidth.kernel() gives, or a cupy.RawKernel"
    )


def prepared_call(
    cupy: Any, launch: Launch, world: ArrayWorld, source: KernelSource | None = None
) -> tuple[Any, tuple[Any, ...]]:
    """Return the kernel and its arguments, everything checked. Raises UsageError or KernelError.

    source: the kernel's, where it is known.
    """
    kernel = ready_kernel(cupy, launch.kernel)
    types = () if source is None else held_by_value(source.text, source.name, len(launch.args))
    args = checked_arguments(launch.args, world, types)
    on_hip = bool(cupy.cuda.runtime.is_hip)
    if isinstance(kernel, cupy.RawKernel):
        checked_shape(launch.grid, launch.block, kernel.max_threads_per_block, on_hip=on_hip)
        if on_hip:
            _check_shared_memory(cupy, kernel, launch.shared_bytes, world.index)
        else:
            _allow_shared_memory(kernel, launch.shared_bytes)
    else:
        checked_shape(launch.grid, launch.block, on_hip=on_hip)
    return kernel, args


def _allow_shared_memory(kernel: Any, shared_bytes: int) -> None:
    """Ask for more than 48 KiB of dynamic shared memory, which users of RawKernel tend to forget."""
    _refuse_negative(shared_bytes)
    if shared_bytes + kernel.shared_size_bytes <= SHARED_BYTES_FOR_ALL:
        return
    try:
        kernel.max_dynamic_shared_size_bytes = shared_bytes
    except RuntimeError as error:  # CUDADriverError
        raise UsageError(
            f"the launch asks for {shared_bytes} bytes of dynamic shared memory a block, which this GPU refuses "
            f"({one_line(error)}): ask for less"
        ) from None


def _check_shared_memory(cupy: Any, kernel: Any, shared_bytes: int, index: int) -> None:
    """Raise UsageError for more shared memory than an AMD GPU has for a block.

    There all of it is a kernel's for the asking: HIP has no attribute to set, and CuPy's setter always fails.
    """
    _refuse_negative(shared_bytes)
    wanted = shared_bytes + kernel.shared_size_bytes
    most = int(cupy.cuda.runtime.getDeviceProperties(index)["sharedMemPerBlock"])
    if wanted > most:
        raise UsageError(
            f"the launch asks for {wanted} bytes of shared memory a block, this GPU has {most}: ask for less"
        )


def _refuse_negative(shared_bytes: int) -> None:
    if shared_bytes < 0:
        raise UsageError(f"shared memory is {shared_bytes} bytes, expected 0 or more")


def blocks_per_sm(cupy: Any, kernel: Any, threads: int, shared_bytes: int = 0) -> int | None:
    """Return how many blocks of a kernel one multiprocessor holds at once, by registers, shared memory and threads.

    None under HIP, for which CuPy has a function that always fails (cupy_backends/hip/cupy_hip.h).
    """
    if cupy.cuda.runtime.is_hip:
        return None
    ask = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
    return int(ask(kernel.kernel.ptr, threads, shared_bytes))


def kernel_resources(cupy: Any, launch: Launch, threads_per_sm: int) -> KernelResources | None:
    """Return what the compiler gave the kernel, and the shape and occupancy of this launch.

    None where the kernel does not tell.
    """
    kernel = launch.kernel
    if not isinstance(kernel, cupy.RawKernel):
        return None
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    blocks = blocks_per_sm(cupy, kernel, threads, launch.shared_bytes)
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


# Where an array begins inside so many bytes decides which sectors and lines its elements lie in.
_ALIGNED_BYTES = 256


def newest_ptx(cupy: Any) -> Version | None:
    """Return the newest version of PTX that the driver takes; None of AMD's, which takes none."""
    runtime = cupy.cuda.runtime
    if runtime.is_hip:
        return None
    version = runtime.driverGetVersion()
    return newest_version((version // 1000, version % 1000 // 10))


def kernel_of_ptx(cupy: Any, ptx: str, like: Any = None) -> Any:
    """Return a cupy.RawKernel of a module of one kernel, compiled by the driver, to be launched as `like` is.

    A module that says to be in a newer version of PTX than the driver takes is handed over in the driver's version:
    most modules use nothing that is new. Raises KernelError where the driver does not take it.
    """
    name, version, newest = _name_in(ptx), version_of(ptx), newest_ptx(cupy)
    lowered = ""
    if version is not None and newest is not None and version > newest:
        lowered = " {}.{} as {}.{}".format(*version, *newest)
        ptx = in_version(ptx, newest)
    try:
        return _loaded(cupy, ptx.encode(), name, like)
    except cupy.cuda.driver.CUDADriverError as error:
        raise KernelError(f"the driver does not take its PTX{lowered} ({one_line(error)})") from None


def kernel_of_cubin(cupy: Any, cubin: bytes, ptx: str, like: Any = None) -> Any:
    """Return the same kernel from the machine code that it was compiled to. Raises KernelError as `kernel_of_ptx`."""
    try:
        return _loaded(cupy, cubin, _name_in(ptx), like)
    except cupy.cuda.driver.CUDADriverError as error:
        raise KernelError(f"the driver does not take its machine code ({one_line(error)})") from None


def _name_in(ptx: str) -> str:
    entry = entry_of(ptx)
    if entry is None:
        raise KernelError("its PTX holds no kernel, or several")
    return entry.name


def _loaded(cupy: Any, code: bytes, name: str, like: Any) -> Any:
    """Load compiled code, whatever it is. Raises CUDADriverError."""
    # RawModule loads compiled code by its path alone.
    with TemporaryDirectory(prefix="pytest-bandwidth-") as folder:
        file = Path(folder, "kernel")
        file.write_bytes(code)
        together = like is not None and bool(like.__getstate__()["enable_cooperative_groups"])
        kernel = cupy.RawModule(path=str(file), enable_cooperative_groups=together).get_function(name)
        _ = kernel.kernel  # loads now, while the file is there
    if (carveout := getattr(like, "preferred_shared_memory_carveout", -1)) != -1:
        kernel.preferred_shared_memory_carveout = carveout
    return kernel


def why_not_loaded(cupy: Any, ptx: str, cubin: bytes | None) -> str | None:
    """Return why the driver takes a kernel neither as machine code nor as PTX; None where it does."""
    if cubin is not None:
        try:
            kernel_of_cubin(cupy, cubin, ptx)
        except KernelError:
            pass  # then it has to be PTX
        else:
            return None
    try:
        kernel_of_ptx(cupy, ptx)
    except KernelError as error:
        return str(error)
    return None


def keep_arrays(cupy: Any, arrays: Iterable[Any]) -> Call:
    """Copy contiguous arrays on the current device; return what gives them back what they held.

    Those that are the same memory are copied once. Raises CuPy's OutOfMemory.
    """
    by_place = {(array.data.ptr, array.nbytes): array for array in arrays if array.nbytes}
    copies = [(array, cupy.cuda.alloc(array.nbytes)) for array in by_place.values()]
    for array, copy in copies:
        copy.copy_from_device(array.data, array.nbytes)

    def restore() -> None:
        for array, copy in copies:
            array.data.copy_from_device(copy, array.nbytes)

    return restore


def host_copies(cupy: Any, args: Sequence[Any], is_array: Callable[[Any], bool]) -> tuple[Any, ...]:
    """Return a launch's arguments with NumPy copies of contiguous arrays, of arrays that are the same memory one copy.

    They begin at the same place of `_ALIGNED_BYTES` as those on the device.
    """
    copies: dict[tuple[int, int], Any] = {}

    def copied(array: Any) -> Any:
        place = array.data.ptr, array.nbytes
        if place not in copies:
            start = array.data.ptr % _ALIGNED_BYTES
            raw = np.empty(start + array.nbytes, np.uint8)
            raw[start:] = cupy.asnumpy(array).reshape(-1).view(np.uint8)
            copies[place] = raw[start:]
        return copies[place].view(array.dtype).reshape(array.shape)

    return tuple(copied(arg) if is_array(arg) else arg for arg in args)
