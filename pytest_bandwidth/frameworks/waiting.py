"""Make a callable wait for what its framework computes later; detect unknown times and repeated compilation."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from numbers import Number
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.held_values import held_by
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.frameworks.arrays import arrays_in, framework_of, loaded_frameworks
from pytest_bandwidth.frameworks.base import Framework

# Paths of arrays, arrays, and their frameworks.
Found = list[tuple[str, Any, Framework]]
Call = Callable[[], Any]
ArrayCheck = Callable[[str, Any, Framework], None]
# JAX's compiled functions are of this module.
_OF_JAX = "jaxlib"
# Functions hold functions, and so on: the search ends after so many values.
MOST_LOOKED_AT = 200
# Takes an array's path, the array, and its framework's name.
Check = Callable[[str, Any, str], None]


def awaited(
    call: Call,
    given: Mapping[str, object],
    stream: Any,
    *,
    on_gpu: bool,
    graph: bool = False,
    any_stream: bool = False,
    own_check: Check | None = None,
) -> tuple[Call, Any]:
    """Return a callable that ends when its work is done or queued on the stream, and that stream.

    given: the call's arguments by name. stream: the user's, or None for that of the framework whose arrays are given.
    graph: whether a GPU is to capture the call. any_stream: whether a GPU's work is timed on whichever stream it runs.
    own_check: the device's, which raises UsageError for arrays that are not its own.
    Both this and the callable raise UsageError where the time of its work cannot be measured, or nothing would run.
    """

    def check(path: str, array: Any, framework: Framework) -> None:
        if own_check is None:
            _check(path, array, framework, on_gpu=on_gpu, graph=graph, any_stream=any_stream)
        else:
            own_check(path, array, framework.name)

    arguments = [one for name, value in given.items() for one in _arrays_of(value, name)]
    for path, array, framework in arguments:
        if not framework.is_made(array):
            framework.extent(array, path)  # raises, with the framework's own reason
        check(path, array, framework)
        if on_gpu and stream is None:
            stream = framework.stream(array)
    # Looked up once, since the look-up would be timed; and after the first run, which may load a framework.
    counting, may_be_later = _of_process()
    later = any(framework.computes_later for _, _, framework in arguments) or (may_be_later and uses_lazy(call))
    checked = False

    def run() -> Any:
        nonlocal checked, counting, may_be_later
        kernels = [framework.kernels_run() for framework in counting]
        try:
            value = call()
        except Exception:
            _refuse_given_away(arguments)
            raise
        if not checked or may_be_later:
            if later and isinstance(value, Iterator):
                kind = type(value).__name__
                raise UsageError(f"the callable returned a {kind}, which has not run: return the arrays themselves")
            returned = _arrays_of(value, "the result")
            first, checked = not checked, True
            if first:
                _refuse_given_away(arguments)
                _check_result(value, returned, arguments, later, stream, on_gpu, check)
            for framework in {one.name: one for _, _, one in returned}.values():
                framework.wait([array for _, array, one in returned if one.name == framework.name])
            if first:
                _refuse_left_lazy(arguments)
            only_lazy = bool(returned) and all(framework.is_lazy for _, _, framework in returned)
            if own_check is not None or only_lazy:
                for framework, before in zip(counting, kernels, strict=True):
                    if framework.kernels_run() == before:
                        raise UsageError(
                            f"no {framework.name} kernel ran: the result was computed before, so nothing would be timed"
                        )
            if first:
                counting, may_be_later = _of_process()
        return value

    return run, stream


def _refuse_given_away(arguments: Found) -> None:
    for path, array, framework in arguments:
        if not framework.is_lazy and not framework.is_made(array):
            raise UsageError(
                f"{path} is {framework.name}'s and was donated: one run gave its buffer away, and the next one needs "
                "it; expected a callable that donates no argument"
            ) from None


def _refuse_left_lazy(arguments: Found) -> None:
    """Raise UsageError where an argument has new contents that are not computed."""
    for path, array, framework in arguments:
        if framework.is_lazy and not framework.is_made(array):
            raise UsageError(
                f"{path} is assigned to and not realized, so its work never runs: expected a callable that realizes or "
                "returns it"
            )


def _arrays_of(value: object, path: str) -> Found:
    """Return the arrays in a value; generators and millions of items are passed over: declarations refuse them."""
    found = arrays_in(value, path, passing_over=True)
    return [(where, array, framework) for where, array in found if (framework := framework_of(array)) is not None]


def _of_process() -> tuple[list[Framework], bool]:
    """Return the loaded frameworks that count their kernels, and whether any computes later."""
    frameworks = loaded_frameworks().values()
    counting = [framework for framework in frameworks if framework.kernels_run() is not None]
    return counting, any(framework.computes_later for framework in frameworks)


def _check(path: str, array: Any, framework: Framework, *, on_gpu: bool, graph: bool, any_stream: bool) -> None:
    if framework.own_device is not None and (on_gpu or not framework.is_on_host(array)):
        raise UsageError(
            f"{path} is {framework.name}'s on {array.device}, where work goes on after the call, on other streams; "
            f"expected {framework.own_device}, or a tensor in host memory and --bandwidth-device=cpu"
        )
    if not on_gpu and not framework.is_on_host(array):
        raise UsageError(
            f"{path} is {framework.name}'s and not in host memory, where this run measures: its work would go on after "
            "the call; expected an array in host memory, or --bandwidth-device=cuda"
        )
    if on_gpu and framework.computes_later and (graph or not any_stream):
        raise UsageError(
            f"{path} is {framework.name}'s, which runs on streams where no event and no graph can be recorded; "
            "expected --bandwidth-timer=cupti, without graph=True"
        )
    if on_gpu and graph and framework.own_graphs is not None:
        raise UsageError(
            f"graph=True: {path} is {framework.name}'s, which keeps memory only for graphs that it captures itself: "
            f"capture it with {framework.own_graphs}, and measure the graph's replay"
        )


def _check_result(
    value: object, returned: Found, arguments: Found, later: bool, stream: Any, on_gpu: bool, check: ArrayCheck
) -> None:
    for path, array, framework in returned:
        if not framework.is_lazy and not framework.is_made(array):
            framework.extent(array, path)
        check(path, array, framework)
        own = framework.stream(array) if on_gpu and stream is None else None
        if own is not None and getattr(own, "cuda_stream", 0) != 0:
            raise UsageError(f"{path} was made on {framework.name}'s current stream: pass it as stream=")
    if later and not returned and not _is_computed(value):
        what = "None" if value is None else f"a {type(value).__name__} without an array"
        raise UsageError(
            f"the callable works with arrays that are computed later and returned {what}, so there is nothing to wait "
            "for: return what it computes"
        )
    # Only given arrays came back, of a framework that computes nothing in place.
    given = {id(array) for _, array, framework in arguments if framework.name == "JAX"}
    if returned and all(id(array) in given for _, array, _ in returned):
        raise UsageError(
            "the callable returned only arrays that it was given, into which JAX computes nothing, so there is "
            "nothing to wait for: return what it computes"
        )


def _is_computed(value: object) -> bool:
    """Return whether a value holds a number or text: the work had to be done for it."""
    if isinstance(value, (tuple, list)):
        return any(map(_is_computed, value))
    return isinstance(value, (Number, np.generic, str, bytes))


def uses_lazy(call: object) -> bool:
    """Return whether a callable holds, or names, an array or function of a framework that computes later.

    Functions that it holds are searched as well; nothing is run.
    """
    modules = {name for name, framework in loaded_frameworks().items() if framework.computes_later} | {_OF_JAX}
    pending, seen = [call], set[int]()
    while pending and len(seen) < MOST_LOOKED_AT:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if callable(one) and type(one).__module__.partition(".")[0] in modules:
            return True
        found = (framework_of(array) for _, array in arrays_in(one, "it", passing_over=True))
        if any(framework is not None and framework.computes_later for framework in found):
            return True
        pending += held_by(one)
    return False


# JAX's name for a compilation in its monitoring.
_JAX_COMPILED = "/jax/core/compile/backend_compile_duration"
RECOMPILED = Finding(
    "recompiled",
    "JAX compiled during the sample: shapes, types, static arguments or the function itself change from call to call",
)


def recompiled() -> Callable[[], Finding | None] | None:
    """Return a function that reports a compilation since its last call; None where no framework reports compilations.

    JAX publishes its compilations, PyTorch does not.
    """
    if "jax" not in sys.modules:
        return None
    events = _jax_events()
    last = events[_JAX_COMPILED]

    def since_last_call() -> Finding | None:
        nonlocal last
        before, last = last, events[_JAX_COMPILED]
        return RECOMPILED if last > before else None

    return since_last_call


@cache
def _jax_events() -> Counter[str]:
    """Return the process's only counts, by event: JAX's listeners stay registered."""
    events: Counter[str] = Counter()

    def listen(event: str, duration: float, **more: Any) -> None:
        del duration, more
        events[event] += 1

    import_module("jax.monitoring").register_event_duration_secs_listener(listen)
    return events
