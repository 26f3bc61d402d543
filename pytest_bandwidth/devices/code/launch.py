"""Identify a launch, or a call, by its arguments: never by an address, which differs in each process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from pytest_bandwidth.devices.arguments import is_by_value
from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.domain.code.identity import MeasuredCode, digest

# A GPU serves memory by lines of 128 bytes: the place in a line where an array begins changes the lines to read.
LINE_BYTES = 128
POINTER_BYTES = 8
# A kernel's parameters are no larger, all together (CUDA C++ Programming Guide, since 12.1).
LARGEST_STRUCT_BYTES = 1 << 15
SCALARS = (bool, int, float, complex, str, bytes, np.generic, type(None))
# The text for an argument, or a field, that the test declares as identifying nothing.
OPAQUE = "opaque"

# Returns whether an address lies in memory of the device that is allocated now.
IsMemory = Callable[[int], bool]


def nowhere(_: int) -> bool:
    """Return False: no number is an address, as on a host, whose kernels take arrays."""
    return False


@dataclass(frozen=True, slots=True)
class Addresses:
    """Decide which numbers among arguments are addresses on the device, and which arguments identify nothing.

    is_memory: asks the driver. opaque: places, keywords and names of fields. numbers: places whose parameters the
    kernel's source declares as numbers: a number that happens to be an address stays a number.
    """

    is_memory: IsMemory = nowhere
    opaque: Collection[int | str] = ()
    numbers: Collection[int] = ()


NO_ADDRESSES = Addresses()


def launch_digest(launch: Launch, *settings: str, addresses: Addresses = NO_ADDRESSES) -> str:
    """Hash a launch: grid, block, shared memory, each argument's type and size, scalars' values.

    settings: other settings for the kernel's launches, such as its share of the cache.
    """
    shape = repr((launch.grid, launch.block, launch.shared_bytes))
    return digest(shape, *_texts(launch.args, {}, replace(addresses, opaque=launch.opaque)), *settings)


def with_launch(
    code: MeasuredCode, launch: Launch, *settings: str, addresses: Addresses = NO_ADDRESSES
) -> MeasuredCode:
    """Return a kernel's code with the launch's identity; settings: as in `launch_digest`."""
    arguments = arguments_digest(launch.args, {}, replace(addresses, opaque=launch.opaque))
    whole = launch_digest(launch, *settings, addresses=addresses)
    return replace(code, identity=replace(code.identity, launch=whole, arguments=arguments))


def arguments_digest(args: Sequence[Any], keywords: Mapping[str, Any], addresses: Addresses = NO_ADDRESSES) -> str:
    """Hash a call's arguments: types and sizes of arrays, scalars' values, the type alone of anything else."""
    return digest(*_texts(args, keywords, addresses))


def _texts(args: Sequence[Any], keywords: Mapping[str, Any], addresses: Addresses) -> Iterator[str]:
    given: list[tuple[int | str, Any]] = [*enumerate(args), *((name, keywords[name]) for name in sorted(keywords))]
    spans: list[tuple[int, int] | None] = []
    for name, argument in given:
        if name in addresses.opaque:
            text = OPAQUE
        else:
            found: list[int] = []
            text = argument_text(argument, _noting(addresses, name, found))
            spans += [(address, 1) for address in found] or [_span(argument)]
        yield f"{name}={text}" if isinstance(name, str) else text
    # Which arrays and addresses overlap, and how: in place, fewer bytes move.
    known = [(number, span) for number, span in enumerate(spans) if span is not None]
    for at, (number, (start, size)) in enumerate(known):
        for other, (other_start, other_size) in known[:at]:
            if start < other_start + other_size and other_start < start + size:
                yield f"{number} begins {start - other_start} bytes into {other}"


def _noting(addresses: Addresses, name: int | str, found: list[int]) -> Addresses:
    """Return `addresses` with a check that adds each one to `found`; a parameter declared as a number holds none."""

    def is_memory(address: int) -> bool:
        if not addresses.is_memory(address):
            return False
        found.append(address)
        return True

    return replace(addresses, is_memory=nowhere if name in addresses.numbers else is_memory)


def identifying_arguments(launch: Launch) -> Iterator[object]:
    """Yield the arguments of a launch that identify it."""
    return (argument for place, argument in enumerate(launch.args) if place not in launch.opaque)


def are_plain(args: Iterable[Any]) -> bool:
    """Return whether arguments are arrays, scalars, texts, or tuples of such: then their texts identify them."""
    return all(are_plain(a) if isinstance(a, tuple) else isinstance(a, SCALARS) or _is_array(a) for a in args)


def argument_text(argument: Any, addresses: Addresses = NO_ADDRESSES) -> str:
    """Return a text for an argument of a launch, the same in every process: never an address."""
    number = 0
    if isinstance(argument, int) and not isinstance(argument, bool):
        number = argument
    elif is_by_value(argument) and argument.dtype.kind in "iu" and argument.dtype.itemsize == POINTER_BYTES:
        number = int(argument)
    if 0 < number < 2**64 and addresses.is_memory(number):
        return f"pointer {number % LINE_BYTES}"
    if is_by_value(argument):
        return f"scalar {argument.dtype.str} {' '.join(_parts(argument.dtype, argument.tobytes(), 0, addresses))}"
    if _is_array(argument):
        # Its layout in memory, where it has strides as NumPy arrays do.
        strides = getattr(argument, "strides", None)
        lies = "" if strides is None or callable(strides) else str(tuple(strides))
        # The place in a line where a device's array begins; on a host that is chance.
        interface = getattr(argument, "__cuda_array_interface__", None)
        begins = "" if interface is None else str(interface["data"][0] % LINE_BYTES)
        return f"array {argument.dtype} {tuple(argument.shape)} {lies} {begins}"
    if isinstance(argument, tuple):
        return f"({', '.join(argument_text(one, addresses) for one in argument)})"
    if isinstance(argument, bytes) and len(argument) <= LARGEST_STRUCT_BYTES:
        return f"bytes {' '.join(_words(argument, 0, addresses))}"
    if isinstance(argument, SCALARS):
        return f"{type(argument).__name__} {argument!r}"
    return f"{type(argument).__module__}.{type(argument).__qualname__}"


def _parts(dtype: np.dtype[Any], data: bytes, at: int, addresses: Addresses) -> Iterator[str]:
    """Yield texts for a value's parts, each with its place in bytes, without the padding between fields."""
    if dtype.subdtype is not None:
        item, shape = dtype.subdtype
        for number in range(prod(shape)):
            yield from _parts(item, data, at + number * item.itemsize, addresses)
    elif dtype.names is not None and dtype.fields is not None:
        for name in dtype.names:
            field, offset = dtype.fields[name][:2]
            if name in addresses.opaque:
                yield f"{at + offset}:{OPAQUE}"
            else:
                yield from _parts(field, data, at + offset, addresses)
    elif dtype.kind == "V":
        yield from _words(data[at : at + dtype.itemsize], at, addresses)
    else:
        part = data[at : at + dtype.itemsize]
        if dtype.kind in "iu" and dtype.itemsize == POINTER_BYTES:
            yield _word(part, at, int(np.frombuffer(part, dtype).astype(np.uint64)[0]), addresses)
        else:
            yield f"{at}:{dtype.str} {part.hex()}"


def _words(data: bytes, at: int, addresses: Addresses) -> Iterator[str]:
    """Yield texts for undeclared bytes, such as a tensor map's: each word of 64 bits may be an address."""
    for start in range(0, len(data), POINTER_BYTES):
        word = data[start : start + POINTER_BYTES]
        yield _word(word, at + start, int.from_bytes(word, sys.byteorder), addresses)


def _word(data: bytes, at: int, value: int, addresses: Addresses) -> str:
    is_address = len(data) == POINTER_BYTES and value > 0 and addresses.is_memory(value)
    return f"{at}:pointer {value % LINE_BYTES}" if is_address else f"{at}:{data.hex()}"


def _is_array(argument: Any) -> bool:
    try:
        shape = getattr(argument, "shape", None)
    except RuntimeError:  # PyTorch's nested tensors have no shape
        return False
    # NumPy itself has a `dtype` and a `shape`, which are functions.
    return isinstance(shape, tuple) and hasattr(argument, "dtype") and not isinstance(argument, np.generic)


def _span(argument: Any) -> tuple[int, int] | None:
    """Return an array's address and bytes; None where unknown."""
    if is_by_value(argument) or not _is_array(argument):
        return None
    for name in ("__array_interface__", "__cuda_array_interface__"):
        interface = getattr(argument, name, None)
        if interface is not None and interface["data"] is not None:
            return int(interface["data"][0]), int(getattr(argument, "nbytes", 0))
    return None
