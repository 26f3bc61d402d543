"""Callables that launch on a GPU by CuPy: cheats by streams, events, graphs and kept arrays, and right ones."""

import itertools

import cupy
import kernels
import numpy as np
from kernels import BLOCK, N, source
from table import REFUSED, WITH, Task, cheat, right

LATER, STALE, MOVED, TAMPERED, UNWRITTEN = "deferred-work", "stale-result", "moved-inputs", "tampered", "unwritten"
_KERNEL = cupy.RawKernel(source("if (i < n) y[i] = 3 * x[i];"), "work")


def _threefold(x, y=None):
    return x * np.float32(3)


THREEFOLD = Task(lambda b: (b.random(N), b.empty(N)), _threefold, writes=(1,))
RETURNED = Task(lambda b: (b.random(N),), _threefold)


def launch(x, y):
    """Launch the kernel on CuPy's current stream."""
    _KERNEL((N // BLOCK,), (BLOCK,), (x, y, np.int32(N)))


def launched(x):
    """Return what the kernel makes."""
    y = cupy.empty_like(x)
    launch(x, y)
    return y


def changing(first, then, calls=20):
    """Return work that after some calls is another."""
    counted = itertools.count()
    return lambda x, y: first(x, y) if next(counted) < calls else then(x, y)


def on_a_side_stream():
    side = cupy.cuda.Stream(non_blocking=True)

    def run(x, y):
        with side:
            launch(x, y)

    return run


cheat("stream", THREEFOLD, LATER, REFUSED)(
    side_stream=lambda given: on_a_side_stream(),
    side_stream_after_some_calls=lambda given: changing(launch, on_a_side_stream()),
)
cheat("stale", THREEFOLD, UNWRITTEN, STALE, REFUSED, "wrong-result")(
    nothing_after_some_calls=lambda given: changing(launch, lambda x, y: None)
)


@cheat("stale", RETURNED, STALE, REFUSED)
def by_address(given):
    kept = {}

    def run(x):
        if x.data.ptr not in kept:
            kept[x.data.ptr] = launched(x)
        return kept[x.data.ptr]

    return run


def captured(x, y):
    """Return a graph of one launch on these arrays."""
    stream = cupy.cuda.Stream(non_blocking=True)
    launch(x, y)
    with stream:
        stream.begin_capture()
        launch(x, y)
        return stream.end_capture()


@cheat("graph", THREEFOLD, MOVED)
def graph_of_the_first_arrays(given):
    graph = captured(*given.args)
    return lambda x, y: graph.launch(cupy.cuda.get_current_stream())


@cheat("graph", RETURNED, MOVED)
def graph_into_one_result(given):
    y = cupy.empty_like(given.args[0])
    graph = captured(given.args[0], y)

    def run(x):
        graph.launch(cupy.cuda.get_current_stream())
        return y

    return run


cheat("device-memory", kernels.THREEFOLD, MOVED, UNWRITTEN)(
    first_pointers=source(
        "if (!from[i]) { from[i] = x; to[i] = y; } to[i][i] = 3 * from[i][i];",
        before=f"__device__ const float* from[{N}]; __device__ float* to[{N}];",
    )
)


@cheat("events", THREEFOLD, TAMPERED)
def elapsed_time_in_its_module(given):
    real = cupy.cuda.stream.get_elapsed_time
    given.patch.setattr(cupy.cuda.stream, "get_elapsed_time", lambda a, b: real(a, b) / 8)
    given.patch.setattr(cupy.cuda, "get_elapsed_time", lambda a, b: real(a, b) / 8)
    return launch


@cheat("events", THREEFOLD, TAMPERED)
def recorded_elsewhere(given):
    real, side = cupy.cuda.Event.record, cupy.cuda.Stream(non_blocking=True)
    given.patch.setattr(cupy.cuda.Event, "record", lambda self, stream=None: real(self, side))
    return launch


@cheat("overwritten", THREEFOLD, "input-modified")
def input_overwritten(x, y):
    x *= 3
    y[...] = x


cheat("aliased", Task(lambda b: (b.random(N),), lambda x: x.copy()), "aliased-result", REFUSED)(
    input_returned=lambda x: x[...]
)


@cheat("reference", THREEFOLD, "reference-called", ways=[WITH])
def reference_called(given):
    def run(x, y):
        y[...] = given.reference(x, y)

    return run


right("callables", THREEFOLD)(
    raw_kernel=lambda x, y: launch(x, y),
    cupys_own=lambda x, y: cupy.multiply(x, np.float32(3), out=y),
)
right("callables", RETURNED)(
    raw_kernel_returning=lambda x: launched(x),
)
right("callables", THREEFOLD, graph=True)(in_a_graph=lambda x, y: launch(x, y))


@right("callables", THREEFOLD)
def in_two_steps(given):
    between = cupy.empty_like(given.args[0])

    def run(x, y):
        cupy.add(x, x, out=between)
        cupy.add(between, x, out=y)

    return run


@right("callables", Task(lambda b: (b.random(N),), lambda x: x + 1, writes=(0,), reads=(0,)))
def in_place(x):
    x += 1


@right("callables", THREEFOLD)
def joined_side_stream(given):
    """Run on another stream, for which the timed one waits."""
    side, before, after = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event(), cupy.cuda.Event()

    def run(x, y):
        current = cupy.cuda.get_current_stream()
        before.record(current)
        side.wait_event(before)
        with side:
            launch(x, y)
            after.record(side)
        current.wait_event(after)

    return run
