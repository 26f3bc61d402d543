"""Load a kernel's old code, which a baseline kept as PTX, so that it can be launched in the new one's place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pytest_bandwidth.devices.cuda.errors import one_line
from pytest_bandwidth.domain.code.ptx_entry import entry_of
from pytest_bandwidth.domain.errors import KernelError


def kernel_of_ptx(cupy: Any, ptx: str, like: Any) -> Any:
    """Return a cupy.RawKernel of a module of one kernel, compiled by the driver, to be launched as `like` is.

    Raises KernelError where the driver does not take it.
    """
    entry = entry_of(ptx)
    if entry is None:
        raise KernelError("its PTX holds no kernel, or several")
    # RawModule loads compiled code by its path alone.
    with TemporaryDirectory(prefix="pytest-bandwidth-") as folder:
        file = Path(folder, "kernel.ptx")
        file.write_text(ptx, encoding="utf-8")
        try:
            together = bool(like.__getstate__()["enable_cooperative_groups"])
            kernel = cupy.RawModule(path=str(file), enable_cooperative_groups=together).get_function(entry.name)
            _ = kernel.kernel  # loads now, while the file is there
        except cupy.cuda.driver.CUDADriverError as error:
            raise KernelError(f"the driver does not take its PTX ({one_line(error)})") from None
    if (carveout := getattr(like, "preferred_shared_memory_carveout", -1)) != -1:
        kernel.preferred_shared_memory_carveout = carveout
    return kernel


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
