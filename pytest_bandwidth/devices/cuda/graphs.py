"""Capture launches of a kernel into one CUDA graph, each on arrays of its own, so that each finds the caches cold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.devices.cuda.errors import CAPTURING, one_line, status_of
from pytest_bandwidth.devices.cuda.timing import CACHES_TO_BE_COLD
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import format_bytes

# A graph holds so many launches, fewer where their data are many caches' worth.
MOST_LAUNCHES = 32
FEWEST_LAUNCHES = 2
# Of the memory that is free, the copies of the arrays take no more than this share: the probe wants some, too.
LARGEST_SHARE = 0.5
# CUDA's allocations begin at multiples of it (CUDA C++ Programming Guide, "Device Memory Accesses": at least 256).
ALIGNMENT = 512


def launches_in_graph(data_bytes: int, cache_bytes: int) -> int:
    """Return how many launches of so much data a graph holds: enough to pass through the cache, within limits."""
    wanted = -(-CACHES_TO_BE_COLD * cache_bytes // max(data_bytes, 1))
    return min(MOST_LAUNCHES, max(FEWEST_LAUNCHES, wanted))


def rotated_arguments(
    cupy: Any, args: Sequence[Any], is_array: Callable[[Any], bool], count: int, free_bytes: int
) -> list[tuple[Any, ...]]:
    """Return a launch's arguments so many times, the arrays copied for each but the first.

    An array that is given twice stays one, and begins as far into a line as the original. Raises UsageError where
    arrays overlap otherwise, which no copies would, or the copies leave too little memory; CuPy's OutOfMemory.
    """
    by_place = {(a.data.ptr, a.nbytes): a for a in args if is_array(a) and a.nbytes}
    for (start, size), (following, _) in pairwise(sorted(by_place)):
        if following < start + size:
            raise UsageError(
                "launch: graph=True: two of the arrays overlap, so that each launch of a graph cannot have its own: "
                "measure it without"
            )
    needed = (count - 1) * sum(size for _, size in by_place)
    if needed > LARGEST_SHARE * free_bytes:
        raise UsageError(
            f"launch: graph=True: {count} launches on arrays of their own take {format_bytes(needed)} more, of "
            f"{format_bytes(free_bytes)} that are free: measure it without, so much work outlasts its launch"
        )
    sets = [tuple(args)]
    for _ in range(count - 1):
        copies = {place: _copy(cupy, array) for place, array in by_place.items()}
        sets.append(tuple(copies[a.data.ptr, a.nbytes] if is_array(a) and a.nbytes else a for a in args))
    return sets


def captured_graph(cupy: Any, calls: Sequence[Call]) -> Any:
    """Return a graph of the calls, one after the other. Raises UsageError, with CUDA's reason, where it takes none.

    Each call has run before: what loads or compiles at its first launch could not be captured. None may allocate: the
    memory would be another's by the time of the replay.
    """
    if cupy.cuda.runtime.is_hip:
        raise UsageError("launch: graph=True: CuPy captures no graphs under HIP: measure it without")
    stream = cupy.cuda.Stream(non_blocking=True)
    try:
        with stream, cupy.cuda.using_allocator(_no_memory):
            stream.begin_capture()
            try:
                for call in calls:
                    call()
            except BaseException:
                with suppress(RuntimeError):  # a capture that failed ends with an error of its own
                    stream.end_capture()
                raise
            return stream.end_capture()
    except RuntimeError as error:  # what CuPy's errors of runtime and driver are
        if status_of(error) not in CAPTURING:
            raise
        raise UsageError(
            f"launch: graph=True: CUDA does not capture the launch ({one_line(error)}): it waits, or copies to the "
            "host; measure it without"
        ) from None


def _no_memory(size: int) -> Any:
    raise UsageError(
        f"launch: graph=True: the launch allocates {format_bytes(size)}, which would be another's when the graph is "
        "replayed: measure it without"
    )


def _copy(cupy: Any, array: Any) -> Any:
    shift = array.data.ptr % ALIGNMENT
    place = cupy.cuda.alloc(array.nbytes + shift) + shift
    place.copy_from_device(array.data, array.nbytes)
    return cupy.ndarray(array.shape, array.dtype, memptr=place, strides=array.strides)
