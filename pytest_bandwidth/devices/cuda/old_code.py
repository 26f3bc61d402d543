"""Load a kernel's old code, kept as PTX or machine code, so that it can be launched in the new one's place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pytest_bandwidth.devices.cuda.errors import one_line
from pytest_bandwidth.domain.code.ptx import Version, entry_of, in_version, newest_version, version_of
from pytest_bandwidth.domain.errors import KernelError

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


@dataclass(frozen=True, slots=True)
class KeptArrays:
    """Hold copies of a launch's arrays, byte for byte."""

    pairs: tuple[tuple[Any, Any, int], ...]

    def restore(self) -> None:
        """Give the arrays back what they held."""
        for array, copy, nbytes in self.pairs:
            array.data.copy_from_device(copy, nbytes)


def keep_arrays(cupy: Any, arrays: Iterable[Any]) -> KeptArrays:
    """Copy contiguous arrays on the current device; those that are the same memory once. Raises CuPy's OutOfMemory."""
    by_place = {(array.data.ptr, array.nbytes): array for array in arrays if array.nbytes}
    pairs = []
    for (_, nbytes), array in by_place.items():
        copy = cupy.cuda.alloc(nbytes)
        copy.copy_from_device(array.data, nbytes)
        pairs.append((array, copy, nbytes))
    return KeptArrays(tuple(pairs))


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
