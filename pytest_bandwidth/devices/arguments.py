"""Check a launch's arguments before a kernel misreads them.

CuPy passes every argument as bytes and does not check the kernel's parameters. A Python float becomes a double, an
array becomes its first address without strides. This module refuses such mistakes. It also checks the parameters' types
where the kernel's source names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Dim
from pytest_bandwidth.domain.code.kernel_signature import source_parameters
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import FORTRAN_ORDER, Finding
from pytest_bandwidth.domain.text import kind_of

# DLPack's device types (dlpack.h, DLDeviceType) that a CUDA or HIP kernel reaches at device speed.
DLPACK_ON_DEVICE = frozenset({2, 10, 13})  # kDLCUDA, kDLROCM, kDLCUDAManaged
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the same from 3.0 to 12.x.
LARGEST_GRID: Dim = (2**31 - 1, 65535, 65535)
LARGEST_BLOCK: Dim = (1024, 1024, 64)
MOST_THREADS_PER_BLOCK = 1024
# HIP counts the threads of a grid along each axis in 32 bits (hsa_kernel_dispatch_packet_t, grid_size_x).
MOST_THREADS_ALONG_ON_HIP = 2**32 - 1
# Dynamic shared memory that every kernel may use without a request for more.
SHARED_BYTES_FOR_ALL = 48 * 1024


@dataclass(frozen=True, slots=True)
class GpuArrays:
    """Recognize arrays on one GPU. cupy: the module, which is not imported here; index: the GPU's."""

    cupy: Any
    index: int

    def is_array(self, value: Any) -> bool:
        """Return whether the value is a CuPy array."""
        return isinstance(value, self.cupy.ndarray)

    def adopted(self, array: Any) -> Any:
        """View another library's array on a GPU as CuPy's, over the same memory."""
        if hasattr(type(array), "__cuda_array_interface__"):
            return self.cupy.asarray(array)
        return self.cupy.from_dlpack(array)


def checked_arguments(args: tuple[Any, ...], gpu: GpuArrays, types: Sequence[str] = ()) -> tuple[Any, ...]:
    """Return the arguments as CuPy accepts them; arrays of other libraries on the same device become CuPy's, uncopied.

    types: those of the kernel's parameters by value, from its source; "" or left out where unknown.
    Raises UsageError, which counts arguments from 1.
    """
    typed = zip_longest(args, types[: len(args)], fillvalue="")
    return tuple(_checked(argument, f"argument {n}", kind, gpu) for n, (argument, kind) in enumerate(typed, start=1))


def _checked(argument: Any, where: str, kind: str, gpu: GpuArrays) -> Any:
    # np.float64 is a float, too, and is allowed: only a bare float does not show its width.
    if type(argument) is float:
        number, size = _NUMBERS.get(kind, ("", 0))
        if number == "i" or kind in _OTHER_WHOLE:
            remedy = f"the kernel's parameter is {kind}, write a whole number"
        elif number == "f" and not kind[-1].isdigit():  # no float4
            remedy = f"write np.float{8 * size}({argument!r})"
        else:
            remedy = f"write np.float32({argument!r}), or np.float64({argument!r}) if the parameter is a double"
        raise UsageError(f"{where} is the bare Python float {argument!r}, which CuPy passes as a double: {remedy}")
    if type(argument) is complex:
        raise UsageError(f"{where} is the bare Python complex {argument!r}: write np.complex64 or np.complex128 of it")
    if isinstance(argument, np.ndarray):
        if is_by_value(argument):
            return argument
        raise UsageError(
            f"{where} is a NumPy array in host memory, expected one on the GPU: make it with bandwidth.xp or "
            "bandwidth.random, or copy it with bandwidth.xp.asarray"
        )
    if isinstance(argument, (str, bytes, bytearray, list, tuple, dict, set)):
        raise UsageError(f"{where} is a {type(argument).__name__}, expected arrays on the GPU and NumPy scalars")
    if not gpu.is_array(argument):
        if not is_foreign_array(argument):
            return argument
        if on_host(argument):
            raise UsageError(f"{where} is an array in host memory ({kind_of(argument)}), expected one on the GPU")
        argument = gpu.adopted(argument)
    found = int(argument.device.id)
    if found != gpu.index:
        raise UsageError(f"{where} lies on cuda:{found}, the measurement runs on cuda:{gpu.index}: copy it over")
    refuse_gaps(argument, where)
    return argument


def is_by_value(argument: Any) -> bool:
    """Return whether the argument is a NumPy scalar or struct, which a launch passes by value."""
    if isinstance(argument, np.ndarray):
        return argument.ndim == 0 or (argument.size == 1 and argument.dtype.names is not None)
    return isinstance(argument, np.generic)


def refuse_gaps(array: Any, where: str) -> None:
    """Raise UsageError for an array with gaps between its elements: a kernel gets its first address alone."""
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise UsageError(
            f"{where} is not contiguous (shape {array.shape}, strides {array.strides}), and a raw kernel ignores "
            "strides: pass bandwidth.xp.ascontiguousarray of it, or hand the strides to the kernel yourself"
        )


def is_foreign_array(value: Any) -> bool:
    """Return whether the value is another library's array, with DLPack or the CUDA array interface."""
    return hasattr(type(value), "__dlpack_device__") or hasattr(type(value), "__cuda_array_interface__")


def on_host(array: Any) -> bool:
    """Return whether an array reports by DLPack that it is in host memory."""
    if not hasattr(type(array), "__dlpack_device__"):
        return False
    return int(array.__dlpack_device__()[0]) not in DLPACK_ON_DEVICE


def checked_shape(grid: Dim, block: Dim, most_threads: int = MOST_THREADS_PER_BLOCK, *, on_hip: bool = False) -> None:
    """Raise UsageError for a grid or block that no GPU can launch. most_threads: the kernel's own limit for a block."""
    for name, found, largest in (("grid", grid, LARGEST_GRID), ("block", block, LARGEST_BLOCK)):
        if any(f < 1 or f > most for f, most in zip(found, largest, strict=True)):
            raise UsageError(f"{name} is {found}, expected 1 to {largest[0]}, {largest[1]} and {largest[2]}")
    threads = block[0] * block[1] * block[2]
    if threads > most_threads:
        raise UsageError(f"block {block} has {threads} threads, this kernel allows {most_threads}")
    along = max(g * b for g, b in zip(grid, block, strict=True))
    if on_hip and along > MOST_THREADS_ALONG_ON_HIP:
        raise UsageError(
            f"grid {grid} of blocks {block} has {along} threads along an axis, HIP allows {MOST_THREADS_ALONG_ON_HIP}: "
            "launch fewer and let each stride over the data"
        )


def bytes_in_memory(array: Any) -> int:
    """Return the bytes of a NumPy or CuPy array; elements that `broadcast_to` repeats by a stride of 0 count once."""
    extents = zip(array.shape, array.strides, strict=True)
    return int(array.itemsize * prod(size for size, stride in extents if stride or not size))


def device_nbytes(array: Any, gpu: GpuArrays) -> int:
    """Return the bytes of an array that the GPU can reach (CuPy, PyTorch, Numba, JAX). Raises UsageError for others."""
    found, size, why = gpu.index, 0, ""
    if gpu.is_array(array):
        found, size = int(array.device.id), bytes_in_memory(array)
    elif hasattr(type(array), "__dlpack_device__") and hasattr(array, "nbytes"):
        if on_host(array):
            why = "is in host memory"
        else:
            found, size = int(array.__dlpack_device__()[1]), int(array.nbytes)
    elif hasattr(type(array), "__cuda_array_interface__"):
        interface = array.__cuda_array_interface__
        size = int(np.prod(interface["shape"], dtype=np.int64)) * np.dtype(interface["typestr"]).itemsize
        address = interface["data"][0]
        if size and address:
            found = int(gpu.cupy.cuda.runtime.pointerGetAttributes(address).device)
    else:
        why = "is not an array on the GPU"
    if found != gpu.index:
        why = f"lies on cuda:{found}, not on cuda:{gpu.index}"
    if why:
        raise UsageError(
            f"a {kind_of(array)} in reads= or writes= {why}: give an array of this device, or the bytes as an int"
        )
    return size


# Types of numbers in kernels: kind (f: IEEE 754, b: bfloat16, i: integer) and bytes. `long` differs between platforms,
# and a byte may hold any data.
_NUMBERS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("float", "float2", "float3", "float4"), ("f", 4)),
    **dict.fromkeys(("double", "double2"), ("f", 8)),
    **dict.fromkeys(("half", "__half", "half2", "__half2"), ("f", 2)),
    **dict.fromkeys(("__nv_bfloat16", "__nv_bfloat162", "nv_bfloat16"), ("b", 2)),
    **dict.fromkeys(("short", "unsigned short", "int16_t", "uint16_t"), ("i", 2)),
    **dict.fromkeys(
        ("int", "unsigned", "unsigned int", "int32_t", "uint32_t", "int2", "int4", "uint2", "uint4"), ("i", 4)
    ),
    **dict.fromkeys(("long long", "unsigned long long", "int64_t", "uint64_t"), ("i", 8)),
}
# Whole numbers that `_NUMBERS` leaves out.
_OTHER_WHOLE = frozenset(
    ("bool", "char", "signed char", "unsigned char", "int8_t", "uint8_t", "long", "unsigned long", "size_t")
)


def misread_arrays(source: str, kernel: str, args: Sequence[Any]) -> tuple[str, ...]:
    """Name arrays whose dtype the kernel misreads; unsigned integers pass as any type of their size.

    kernel: its name, plain or as in PTX. args: a launch's; an array is any argument with a NumPy dtype but a scalar.
    Types under other names in the source, such as a template's, are not checked.
    """
    found = []
    for one, array in zip(source_parameters(source, kernel, len(args)), args, strict=True):
        dtype = getattr(array, "dtype", None)
        if isinstance(dtype, np.dtype) and not isinstance(array, np.generic) and misread(dtype, one.pointee):
            found.append(f"`{one.name}` is {dtype}, the kernel's parameter is {one.pointee}")
    return tuple(found)


def in_fortran_order(args: Sequence[Any]) -> tuple[Finding, ...]:
    """Report arrays that are transposed in memory: this may be intended, or explain a wrong result."""
    flags = [getattr(argument, "flags", None) for argument in args]
    return tuple(
        Finding(FORTRAN_ORDER, f"argument {place} lies in Fortran order, as `x.T` does: rows are not contiguous")
        for place, one in enumerate(flags, 1)
        if getattr(one, "f_contiguous", False) and not getattr(one, "c_contiguous", True)
    )


def misread(dtype: np.dtype[Any], kind: str) -> bool:
    """Return whether a kernel misreads numbers of a dtype as a type named in its source; False for an unknown type."""
    if kind not in _NUMBERS or dtype.itemsize == 1 or dtype.kind not in "fiuc":  # raw bytes, or the user's own type
        return False
    number, itemsize = _NUMBERS[kind]
    size = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    given = "f" if dtype.kind in "fc" else "i"
    holds_bits = dtype.kind == "u" or (number == "b" and given == "i")
    return size != itemsize or (given != number and not holds_bits)
