"""Identify a launch, or a call, by what it hands to the code: never by an address, which is another in each process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.domain.code.identity import MeasuredCode, digest

# A GPU serves memory by lines of 128 bytes: where in one an array begins changes what is asked of it.
LINE_BYTES = 128
SCALARS = (bool, int, float, complex, str, bytes, np.generic, type(None))


def launch_digest(launch: Launch, *settings: str) -> str:
    """Hash a launch: grid, block, shared memory, each argument's type and size, scalars' values.

    settings: what else was set for the kernel's launches, such as its share of the cache.
    """
    shape = repr((launch.grid, launch.block, launch.shared_bytes))
    return digest(shape, *(argument_text(a) for a in launch.args), *_overlaps(launch.args), *settings)


def with_launch(code: MeasuredCode, launch: Launch, *settings: str) -> MeasuredCode:
    """Return a kernel's code as the launch runs it; settings: as in `launch_digest`."""
    arguments = arguments_digest(launch.args, {})
    return replace(code, identity=replace(code.identity, launch=launch_digest(launch, *settings), arguments=arguments))


def arguments_digest(args: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """Hash a call's arguments: types and sizes of arrays, scalars' values, the type alone of anything else."""
    named = [keywords[name] for name in sorted(keywords)]
    told = (f"{name}={argument_text(keywords[name])}" for name in sorted(keywords))
    return digest(*map(argument_text, args), *told, *_overlaps((*args, *named)))


def are_plain(args: Iterable[Any]) -> bool:
    """Return whether arguments are arrays, scalars, texts, or tuples of such: all that decides what is done is told."""
    return all(are_plain(a) if isinstance(a, tuple) else isinstance(a, SCALARS) or _is_array(a) for a in args)


def argument_text(argument: Any) -> str:
    """Tell an argument of a launch, as far as another process would see it: never an address."""
    if isinstance(argument, np.generic) or (isinstance(argument, np.ndarray) and argument.ndim == 0):
        return f"scalar {argument.dtype.str} {argument.tobytes().hex()}"
    if _is_array(argument):
        return f"array {argument.dtype} {tuple(argument.shape)} {_strides(argument)} {_offset(argument)}"
    if isinstance(argument, tuple):
        return f"({', '.join(map(argument_text, argument))})"
    if isinstance(argument, SCALARS):
        return f"{type(argument).__name__} {argument!r}"
    return f"{type(argument).__module__}.{type(argument).__qualname__}"


def _is_array(argument: Any) -> bool:
    try:
        shape = getattr(argument, "shape", None)
    except RuntimeError:  # PyTorch's nested tensors have none, and say so
        return False
    # NumPy itself has a `dtype` and a `shape`, which are functions.
    return isinstance(shape, tuple) and hasattr(argument, "dtype") and not isinstance(argument, np.generic)


def _overlaps(args: Iterable[Any]) -> Iterator[str]:
    """Tell which arrays lie in one another's memory, and how: what works in place moves fewer bytes."""
    spans = [(number, span) for number, argument in enumerate(args) if (span := _span(argument)) is not None]
    for at, (number, (start, size)) in enumerate(spans):
        for other, (other_start, other_size) in spans[:at]:
            if start < other_start + other_size and other_start < start + size:
                yield f"{number} begins {start - other_start} bytes into {other}"


def _span(argument: Any) -> tuple[int, int] | None:
    """Return an array's address and bytes; None where it tells none of both."""
    if not _is_array(argument):
        return None
    for name in ("__array_interface__", "__cuda_array_interface__"):
        interface = getattr(argument, name, None)
        if interface is not None and interface["data"] is not None:
            return int(interface["data"][0]), int(getattr(argument, "nbytes", 0))
    return None


def _strides(array: Any) -> str:
    """Tell how an array lies in memory: as a NumPy array has it, or else as it says."""
    strides = getattr(array, "strides", None)
    return "" if strides is None or callable(strides) else str(tuple(strides))


def _offset(array: Any) -> str:
    """Tell where in a line a device's array begins; on a host that is chance."""
    interface = getattr(array, "__cuda_array_interface__", None)
    return "" if interface is None else str(interface["data"][0] % LINE_BYTES)
