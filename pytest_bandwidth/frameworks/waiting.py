"""Have a callable wait for what its framework computes later, and take place where that can be timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from numbers import Number
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.frameworks.arrays import arrays_in
from pytest_bandwidth.frameworks.base import Framework
from pytest_bandwidth.frameworks.held import holds_later
from pytest_bandwidth.frameworks.known import framework_of

Seen = list[tuple[str, Any, Framework]]
Call = Callable[[], Any]
Check = Callable[[str, Any, Framework], None]
_TINYGRAD = "tinygrad"


def awaited(
    call: Call,
    given: Mapping[str, object],
    stream: Any,
    *,
    on_gpu: bool,
    graph: bool = False,
    backend: str | None = None,
) -> tuple[Call, Any]:
    """Return a callable that ends when its work is done or queued on the stream, and that stream.

    given: the call's arguments by name. stream: the user's, or None for that of the framework whose arrays are given.
    graph: whether a GPU is to capture the call. backend: tinygrad's, where such a one is measured (``AMD:1``).
    The callable raises UsageError, as this does, where the time of its work could not be told, or nothing would run.
    """
    check = partial(_check, on_gpu=on_gpu, graph=graph) if backend is None else partial(_check_backend, backend=backend)
    seen = [one for name, value in given.items() for one in _seen(value, name)]
    for path, array, framework in seen:
        if not framework.is_made(array):
            framework.extent(array, path)  # raises, with the framework's own reason
        check(path, array, framework)
        if on_gpu and stream is None:
            stream = framework.stream(array)
    later = any(framework.computes_later for _, _, framework in seen) or (_may_compute_later() and holds_later(call))
    checked = False

    def run() -> Any:
        nonlocal checked
        kernels = _kernels()
        try:
            value = call()
        except Exception:
            _refuse_given_away(seen)
            raise
        if not checked or _may_compute_later():
            if later and isinstance(value, Iterator):
                kind = type(value).__name__
                raise UsageError(
                    f"the callable returned a {kind}, of which nothing has run: return the arrays themselves"
                )
            returned = _seen(value, "the result")
            first, checked = not checked, True
            if first:
                _refuse_given_away(seen)
                _check_result(value, returned, later, stream, on_gpu, check)
                _refuse_unchanged(seen, returned)
            _wait(returned)
            if first:
                _refuse_left_lazy(seen)
            if kernels is not None and kernels == _kernels() and (backend is not None or _all_tinygrad(returned)):
                raise UsageError("no tinygrad kernel ran: the result was there before, so nothing would be timed")
        return value

    return run, stream


def _refuse_given_away(seen: Seen) -> None:
    """Raise UsageError where a run gave away the buffer of an argument."""
    for path, array, framework in seen:
        if framework.name != _TINYGRAD and not framework.is_made(array):
            raise UsageError(
                f"{path} is {framework.name}'s and was donated: a run gave its buffer away, and each needs it; "
                "expected a callable that donates no argument"
            ) from None


def _refuse_left_lazy(seen: Seen) -> None:
    """Raise UsageError where tinygrad's tensor is given a new content that nothing has computed."""
    for path, array, framework in seen:
        if framework.name == _TINYGRAD and not framework.is_made(array):
            raise UsageError(
                f"{path} is assigned to and not realized, so its work never runs: expected a callable that realizes or "
                "returns it"
            )


def _refuse_unchanged(seen: Seen, returned: Seen) -> None:
    """Raise UsageError where no more came back than was given, of a framework that computes nothing in place."""
    given = {id(array) for _, array, framework in seen if framework.name == "JAX"}
    if returned and all(id(array) in given for _, array, _ in returned):
        raise UsageError(
            "the callable returned only arrays that it was given, into which JAX computes nothing, so there is "
            "nothing to wait for: return what it computes"
        )


def _seen(value: object, path: str) -> Seen:
    """Return the arrays in a value; what holds a generator, or millions of items, is refused where it is named."""
    found = arrays_in(value, path, passing_over=True)
    return [(where, array, framework) for where, array in found if (framework := framework_of(array)) is not None]


def _may_compute_later() -> bool:
    return "jax" in sys.modules or "tinygrad" in sys.modules


def _check_backend(path: str, array: Any, framework: Framework, *, backend: str) -> None:
    """Raise UsageError for anything but a tensor on the measured backend: copying it there would be timed, too."""
    if framework.name != _TINYGRAD:
        raise UsageError(
            f"{path} is {framework.name}'s and not in the memory of tinygrad's {backend}, where this run measures: "
            f"expected tensors copied there before the call, by Tensor(…, device={backend!r}).realize()"
        )
    if array.device != backend:
        raise UsageError(
            f"{path} is on tinygrad's {array.device}, this run measures {backend}: expected tensors there, or "
            f"--bandwidth-device=tinygrad:BACKEND with theirs"
        )


def _check(path: str, array: Any, framework: Framework, *, on_gpu: bool, graph: bool) -> None:
    if framework.name == _TINYGRAD and (on_gpu or not framework.is_on_host(array)):
        raise UsageError(
            f"{path} is tinygrad's on {array.device}, whose work goes on after the call and on streams of its own; "
            "expected --bandwidth-device=tinygrad:BACKEND with its backend, or a tensor in host memory and "
            "--bandwidth-device=cpu"
        )
    if not on_gpu and not framework.is_on_host(array):
        raise UsageError(
            f"{path} is {framework.name}'s and not in host memory, where this run measures: its work would go on after "
            "the call; expected an array in host memory, or --bandwidth-device=cuda"
        )
    if on_gpu and framework.computes_later:
        raise UsageError(
            f"{path} is {framework.name}'s, whose work runs on streams of its own: no event can be recorded there, so "
            "its time on a GPU cannot be told"
        )
    if on_gpu and graph and framework.own_graphs is not None:
        raise UsageError(
            f"graph=True: {path} is {framework.name}'s, which keeps memory only for graphs that it captures itself: "
            f"capture it with {framework.own_graphs}, and measure the graph's replay"
        )


def _check_result(value: object, returned: Seen, later: bool, stream: Any, on_gpu: bool, check: Check) -> None:
    for path, array, framework in returned:
        if framework.name != _TINYGRAD and not framework.is_made(array):
            framework.extent(array, path)
        check(path, array, framework)
        own = framework.stream(array) if on_gpu and stream is None else None
        if own is not None and getattr(own, "cuda_stream", 0) != 0:
            raise UsageError(f"{path} was made on {framework.name}'s current stream: pass it as stream=")
    if later and not returned and not _is_told(value):
        what = "None" if value is None else f"a {type(value).__name__} in which no array is seen"
        raise UsageError(
            f"the callable works with arrays that are computed later and returned {what}, so there is nothing to wait "
            "for: return what it computes"
        )


def _is_told(value: object) -> bool:
    """Return whether there is a number or text in a value, which had to be computed for it to be there."""
    if isinstance(value, (tuple, list)):
        return any(map(_is_told, value))
    return isinstance(value, (Number, np.generic, str, bytes))


def _wait(returned: Seen) -> None:
    by_name: dict[str, tuple[Framework, list[Any]]] = {}
    for _, array, framework in returned:
        by_name.setdefault(framework.name, (framework, []))[1].append(array)
    for framework, arrays in by_name.values():
        framework.wait(arrays)


def _kernels() -> int | None:
    """Return how many kernels tinygrad has run; None where it is not loaded."""
    counters = getattr(sys.modules.get("tinygrad"), "GlobalCounters", None)
    return None if counters is None else int(counters.kernel_count)


def _all_tinygrad(returned: Seen) -> bool:
    return bool(returned) and all(framework.name == _TINYGRAD for _, _, framework in returned)
