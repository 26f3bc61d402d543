"""Capture work into CUDA graphs: several launches of a kernel, each on arrays of its own, or one run of a callable.

So both find the caches cold: launches that of each other, a run that of the replay before, as any sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.devices.cuda.runtime import CAPTURING, one_line, status_of
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
                "graph=True: two of the arrays overlap, so that each launch of a graph cannot have its own: "
                "measure it without"
            )
    needed = (count - 1) * sum(size for _, size in by_place)
    if needed > LARGEST_SHARE * free_bytes:
        raise UsageError(
            f"graph=True: {count} launches on arrays of their own take {format_bytes(needed)} more, of "
            f"{format_bytes(free_bytes)} that are free: measure it without, so much work outlasts its launch"
        )
    sets = [tuple(args)]
    for _ in range(count - 1):
        copies = {place: _copy(cupy, array) for place, array in by_place.items()}
        sets.append(tuple(copies[a.data.ptr, a.nbytes] if is_array(a) and a.nbytes else a for a in args))
    return sets


def captured_launches(cupy: Any, calls: Sequence[Call]) -> Any:
    """Return a graph of the calls, one after the other. Raises UsageError, with CUDA's reason, where it takes none.

    Each call has run before: what loads or compiles at its first launch could not be captured. None may allocate: the
    memory would be another's by the time of the replay.
    """
    _refuse_hip(cupy)
    stream = cupy.cuda.Stream(non_blocking=True)
    with _refusing("the launch", "it waits, or copies to the host"):
        return _captured(cupy, stream, calls, _no_memory, None)


def captured_run(cupy: Any, call: Call, stream: Any) -> Callable[[Any], object]:
    """Return what replays a graph of one run of the call on a stream that it is given, and returns what that returned.

    stream: where it is captured, made current meanwhile. What the call allocates with CuPy comes from a pool that only
    the graph has. Raises UsageError, with CUDA's reason, where the call cannot be captured.
    """
    _refuse_hip(cupy)
    pool, returned = cupy.cuda.MemoryPool(), []
    with stream, cupy.cuda.using_allocator(pool.malloc):
        call()  # fills the pool: while it is captured nothing can be allocated
        stream.synchronize()
    reasons = (
        "it waits, copies to the host, uses the default stream, calls a library such as cuBLAS, leaves another stream "
        "at work, or allocates anew or outside of CuPy's pool"
    )
    with _refusing("the callable", reasons):
        # Not as CuPy does by itself: that lets memory be allocated which is given back before the replay.
        mode = cupy.cuda.runtime.streamCaptureModeThreadLocal
        graph = _captured(cupy, stream, [lambda: returned.append(call())], pool.malloc, mode)

    def replay(target: Any, _kept: object = pool) -> object:
        graph.launch(target)
        return returned[0]

    return replay


def _refuse_hip(cupy: Any) -> None:
    if cupy.cuda.runtime.is_hip:
        raise UsageError("graph=True: CuPy captures no graphs under HIP: measure it without")


@contextmanager
def _refusing(what: str, reasons: str) -> Iterator[None]:
    """Raise UsageError where CUDA does not allow what is done while a stream is captured."""
    try:
        yield
    except Exception as error:
        # A user's callable raises by way of an error that names it.
        culprit = next((one for one in (error, error.__cause__) if one is not None and _is_of_capture(one)), None)
        if culprit is None:
            raise
        # Which one, where several are sampled beside one another: the error that names it says.
        which = getattr(error, "what", what)
        raise UsageError(
            f"graph=True: CUDA does not capture {which} ({one_line(culprit)}): {reasons}; measure it without"
        ) from None


def _is_of_capture(error: BaseException) -> bool:
    """Return whether CUDA refuses something while a stream is captured, or CuPy, which has no number for that."""
    status = status_of(error)
    if status is not None:
        return status in CAPTURING
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


def _no_memory(size: int) -> Any:
    raise UsageError(
        f"graph=True: the launch allocates {format_bytes(size)}, which would be another's when the graph is "
        "replayed: measure it without"
    )


def _copy(cupy: Any, array: Any) -> Any:
    shift = array.data.ptr % ALIGNMENT
    place = cupy.cuda.alloc(array.nbytes + shift) + shift
    place.copy_from_device(array.data, array.nbytes)
    return cupy.ndarray(array.shape, array.dtype, memptr=place, strides=array.strides)
