"""Launch built kernels on NumPy arrays, without a driver: for tests, and as an example of the call."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from emulated_card.kernels.build import Built

ABI = 2
FIRST_ADDRESS = 0x7_0000_0000
# Arrays lie so far apart that an index past the end meets no other.
APART = 1 << 32


class _Window(c.Structure):
    _fields_ = (
        ("first", c.c_uint64),
        ("end", c.c_uint64),
        ("shift", c.c_int64),
        ("kind", c.c_uint32),
        ("read_only", c.c_uint32),
    )


class _Launch(c.Structure):
    _fields_ = (
        ("abi", c.c_uint32),
        ("grid", c.c_uint32 * 3),
        ("block", c.c_uint32 * 3),
        ("dynamic_shared_bytes", c.c_uint32),
        ("parameters", c.c_void_p),
        ("variables", c.POINTER(c.c_uint64)),
        ("windows", c.POINTER(_Window)),
        ("window_count", c.c_uint32),
        ("l2", c.c_void_p),
        ("start_ns", c.c_uint64),
        ("start_cycles", c.c_uint64),
        ("clock_mhz", c.c_double),
        ("timer_step_ns", c.c_uint32),
        ("sm_count", c.c_uint32),
        ("poll", c.c_void_p),
        ("context", c.c_void_p),
        ("max_warp_instructions", c.c_uint64),
    )


def _counters(*names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, c.c_uint64) for name in names)


class Access(c.Structure):
    _fields_ = _counters("requests", "sectors", "least_sectors", "lanes", "bytes")


class Shared(c.Structure):
    _fields_ = _counters("requests", "passes", "least_passes", "lanes")


class Account(c.Structure):
    _fields_ = (
        *_counters("warp_instructions", "thread_instructions"),
        *((name, Access) for name in ("loads", "stores", "atomics")),
        *((name, Shared) for name in ("shared_loads", "shared_stores", "shared_atomics")),
        *_counters("local_load_bytes", "local_store_bytes", "l2_sectors"),
        *_counters("dram_sectors_read", "dram_sectors_written"),
        *_counters("bus_bytes_read", "bus_bytes_written"),
        *_counters("flop16", "flop32", "flop64", "special", "integer"),
        *_counters("barriers", "branches", "divergent_branches"),
        *_counters("polls", "poll_address", "waited_ns", "longest_warp_cycles", "error_address"),
        ("error_line", c.c_uint32),
    )


@dataclass
class Array:
    """Place an allocation: `data` holds its bytes, aligned as a card aligns."""

    data: np.ndarray[Any, Any]
    address: int


def placed(arrays: list[Array], array: np.ndarray[Any, Any]) -> Array:
    """Take a copy of an array's bytes behind the others; its whole allocation, if it is a view, is the caller's."""
    raw = np.zeros(array.nbytes + 512, np.uint8)
    start = -raw.ctypes.data % 512
    data = raw[start : start + array.nbytes]
    data[:] = array.reshape(-1).view(np.uint8)
    arrays.append(Array(data, FIRST_ADDRESS + len(arrays) * APART))
    return arrays[-1]


def pack(built: Built, values: Sequence[Any]) -> bytes:
    """Lay arguments into the parameter buffer: addresses of arrays, and bytes of NumPy scalars."""
    buffer = bytearray(max(built.parameter_bytes, 1))
    for (offset, size), value in zip(built.parameters, values, strict=True):
        raw = value.address.to_bytes(8, "little") if isinstance(value, Array) else np.asarray(value).tobytes()
        if len(raw) != size:
            raise ValueError(f"an argument of {len(raw)} bytes was given for a parameter of {size}")
        buffer[offset : offset + size] = raw
    return bytes(buffer)


@cache
def _function(path: str) -> Any:
    function = c.CDLL(path).card_kernel
    function.argtypes = (c.POINTER(_Launch), c.POINTER(Account))
    function.restype = c.c_int
    return function


def launch(
    built: Built,
    grid: Sequence[int],
    block: Sequence[int],
    arrays: Sequence[Array],
    values: Sequence[Any],
    variables: Sequence[int],
) -> tuple[int, Account]:
    """Run a kernel; returns its status and its account. arrays: in the order of their addresses."""
    windows, parameters = (_Window * len(arrays))(), pack(built, values)
    for window, array in zip(windows, arrays, strict=True):
        window.first, window.end = array.address, array.address + array.data.nbytes
        window.shift = array.data.ctypes.data - array.address
    asked = _Launch(
        abi=ABI,
        grid=(c.c_uint32 * 3)(*(*grid, 1, 1)[:3]),
        block=(c.c_uint32 * 3)(*(*block, 1, 1)[:3]),
        parameters=c.cast(c.c_char_p(parameters), c.c_void_p),
        variables=(c.c_uint64 * max(len(variables), 1))(*variables),
        windows=windows,
        window_count=len(windows),
        clock_mhz=1000.0,
        timer_step_ns=1,
        sm_count=1,
    )
    account = Account()
    return _function(built.path)(c.byref(asked), c.byref(account)), account
