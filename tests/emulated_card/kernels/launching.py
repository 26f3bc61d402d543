"""Launch built kernels on NumPy arrays, without a driver: for tests, and as an example of the call."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from emulated_card.kernels.build import Built

ABI = 2
DEVICE, HOST, PEER = range(3)
FIRST_ADDRESS = 0x7_0000_0000
# Arrays lie so far apart that an index past the end meets no other.
APART = 1 << 32

Poll = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint64, c.c_uint64)


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
        ("poll", Poll),
        ("context", c.c_void_p),
        ("max_warp_instructions", c.c_uint64),
    )


class Access(c.Structure):
    _fields_ = tuple((name, c.c_uint64) for name in ("requests", "sectors", "least_sectors", "lanes", "bytes"))


class Shared(c.Structure):
    _fields_ = tuple((name, c.c_uint64) for name in ("requests", "passes", "least_passes", "lanes"))


class Dram(c.Structure):
    _fields_ = (("sectors_read", c.c_uint64), ("sectors_written", c.c_uint64))


def _counters(*names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, c.c_uint64) for name in names)


class Account(c.Structure):
    _fields_ = (
        *_counters("warp_instructions", "thread_instructions"),
        *((name, Access) for name in ("loads", "stores", "atomics")),
        *((name, Shared) for name in ("shared_loads", "shared_stores", "shared_atomics")),
        *_counters("local_load_bytes", "local_store_bytes", "l2_sectors"),
        ("dram", Dram),
        *_counters("bus_bytes_read", "bus_bytes_written"),
        *_counters("flop16", "flop32", "flop64", "special", "integer"),
        *_counters("barriers", "branches", "divergent_branches"),
        *_counters("polls", "poll_address", "waited_ns", "longest_warp_cycles", "error_address"),
        ("error_line", c.c_uint32),
    )


@dataclass
class Array:
    """Place an allocation: `data` holds its bytes, aligned as a card aligns; `kind` says whose memory it is."""

    data: np.ndarray[Any, Any]
    address: int
    kind: int = DEVICE


@dataclass
class Clock:
    start_ns: int = 0
    start_cycles: int = 0
    mhz: float = 1000.0
    timer_step_ns: int = 1
    sm_count: int = 1


@dataclass
class Memory:
    """Hold allocations in the order of their addresses."""

    arrays: list[Array] = field(default_factory=list)

    def add(self, array: np.ndarray[Any, Any], kind: int = DEVICE) -> Array:
        """Take a copy of an array's bytes; its whole allocation, if it is a view, is the caller's to give."""
        raw = np.zeros(array.nbytes + 512, np.uint8)
        start = -raw.ctypes.data % 512
        data = raw[start : start + array.nbytes]
        data[:] = array.reshape(-1).view(np.uint8)
        placed = Array(data, FIRST_ADDRESS + len(self.arrays) * APART, kind)
        self.arrays.append(placed)
        return placed

    def windows(self) -> Any:
        found = (_Window * len(self.arrays))()
        for window, array in zip(found, self.arrays, strict=True):
            window.first, window.end = array.address, array.address + array.data.nbytes
            window.shift, window.kind = array.data.ctypes.data - array.address, array.kind
        return found


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
    memory: Memory,
    values: Sequence[Any],
    *,
    shared_bytes: int = 0,
    variables: Sequence[int] = (),
    l2: int | None = None,
    clock: Clock | None = None,
    poll: Callable[[int, int], int] | None = None,
    most_instructions: int = 0,
) -> tuple[int, Account]:
    """Run a kernel; returns its status and its account."""
    clock = clock or Clock()
    windows, parameters = memory.windows(), pack(built, values)
    asked = _Launch(
        abi=ABI,
        grid=(c.c_uint32 * 3)(*(*grid, 1, 1)[:3]),
        block=(c.c_uint32 * 3)(*(*block, 1, 1)[:3]),
        dynamic_shared_bytes=shared_bytes,
        parameters=c.cast(c.c_char_p(parameters), c.c_void_p),
        variables=(c.c_uint64 * max(len(variables), 1))(*variables),
        windows=windows,
        window_count=len(windows),
        l2=l2,
        start_ns=clock.start_ns,
        start_cycles=clock.start_cycles,
        clock_mhz=clock.mhz,
        timer_step_ns=clock.timer_step_ns,
        sm_count=clock.sm_count,
        poll=Poll(lambda _, address, now: poll(address, now)) if poll else Poll(),
        max_warp_instructions=most_instructions,
    )
    account = Account()
    return _function(built.path)(c.byref(asked), c.byref(account)), account


def counters(account: Account) -> Mapping[str, Any]:
    """Return an account's counters by name, those of parts as ``loads.sectors``."""
    found: dict[str, Any] = {}
    for name, kind in Account._fields_:
        part = getattr(account, name)
        if isinstance(part, c.Structure):
            found |= {f"{name}.{inner}": getattr(part, inner) for inner, _ in kind._fields_}
        else:
            found[name] = part
    return found
