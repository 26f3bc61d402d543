"""Check launch arguments against the kernel's parameters, lay them into its buffer and give arrays an address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.features.traffic.ptx import memory
from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES
from pytest_bandwidth.features.traffic.ptx.program import Parameter, Symbol


def place_arguments(
    kernel: str, parameters: Sequence[Parameter], names: Sequence[str], arguments: Sequence[Any]
) -> tuple[memory.Region, ...]:
    """Lay arguments into the parameter buffer. Raises UsageError for arguments that the kernel would misread.

    Return that buffer and one region per allocation that an argument points into.
    """
    if len(arguments) != len(parameters):
        raise UsageError(
            f"kernel {kernel} takes {len(parameters)} arguments ({', '.join(names)}), found {len(arguments)}"
        )
    size = max((p.offset + p.size for p in parameters), default=0)
    buffer = np.zeros(-(-max(size, 1) // 16) * 16, np.uint8)
    regions: dict[int, memory.Region] = {}
    for number, (parameter, name, argument) in enumerate(zip(parameters, names, arguments, strict=True)):
        label = f"argument {number + 1} ({name}) of kernel {kernel}"
        if not isinstance(argument, np.ndarray):
            value = _scalar(argument, label, parameter)
        elif not _is_pointer(parameter) and (argument.ndim == 0 or (argument.size == 1 and argument.dtype.names)):
            # One scalar or struct, which CuPy passes by value.
            value = _scalar(argument.reshape(())[()], label, parameter)
        else:
            value = _pointer(argument, number, name, label, parameter, regions)
        buffer[parameter.offset : parameter.offset + parameter.size] = value
    return memory.Region(
        "the parameters", "param", memory.PARAM_REGION, buffer[None, :], writable=False
    ), *regions.values()


def _is_pointer(parameter: Parameter) -> bool:
    return parameter.size == 8 and parameter.type in ("u64", "b64", "s64")


def _pointer(
    array: Array, number: int, name: str, label: str, parameter: Parameter, regions: dict[int, memory.Region]
) -> Array:
    if not _is_pointer(parameter):
        raise UsageError(
            f"{label} is an array, but the parameter is no pointer (.{parameter.type}, {parameter.size} bytes)"
        )
    if array.dtype.hasobject:
        raise UsageError(f"{label} is an array of Python objects, expected numbers; give it a numeric dtype")
    if array.size and (not array.flags.aligned or not array.dtype.isnative):
        raise UsageError(f"{label} is an unaligned or byte-swapped array, which no GPU holds; copy it first")
    data, start = memory.flat_bytes(array)
    key = int(data.__array_interface__["data"][0])
    low, high = map(int, getattr(np.lib, "array_utils", np).byte_bounds(array))  # it moved in NumPy 2
    view = Symbol(name, low - key, high - low, (number,))
    known = regions.get(key)
    if known is None:
        place = memory.FIRST_ARRAY_REGION + len(regions)
        regions[key] = memory.Region(
            name, "global", place, data[None, :], writable=array.flags.writeable, views=(view,)
        )
    else:
        regions[key] = replace(known, views=_with(known.views, view), writable=known.writable or array.flags.writeable)
    return np.array([memory.region_base(regions[key].number) + start], np.uint64).view(np.uint8)


def _with(views: tuple[Symbol, ...], view: Symbol) -> tuple[Symbol, ...]:
    """Add a view; an array that is passed twice stays one view with two arguments."""
    for place, known in enumerate(views):
        if (known.address, known.size) == (view.address, view.size):
            both = replace(known, arguments=(*known.arguments, *view.arguments))
            return (*views[:place], both, *views[place + 1 :])
    return (*views, view)


def _scalar(argument: Any, label: str, parameter: Parameter) -> Array:
    integer = DTYPES[parameter.type].kind in "iu" and parameter.type != "b8"
    if argument is None:
        if not integer or parameter.size != 8:
            raise UsageError(
                f"{label} is None, but the parameter is no pointer (.{parameter.type}, {parameter.size} bytes)"
            )
        return np.zeros(8, np.uint8)
    if isinstance(argument, np.generic):
        fits = argument.nbytes == parameter.size
        if parameter.type != "b8":
            fits = fits and (argument.dtype.kind in "iub") == integer and argument.dtype.kind in "iubf"
        if not fits:
            raise UsageError(
                f"{label} is a numpy.{argument.dtype.name} ({argument.nbytes} bytes), "
                f"but the parameter is .{parameter.type} ({parameter.size} bytes)"
            )
        return np.frombuffer(argument.tobytes(), np.uint8)
    if isinstance(argument, int) and integer:
        bits = parameter.size * 8
        if not -(1 << (bits - 1)) <= argument < 1 << bits:
            raise UsageError(f"{label} is {argument}, which does not fit the parameter's {bits} bits")
        return np.frombuffer((int(argument) & ((1 << bits) - 1)).to_bytes(parameter.size, "little"), np.uint8)
    found = shown(argument) if isinstance(argument, int | float) else f"a {type(argument).__name__}"
    raise UsageError(f"{label} is {found}, but the parameter is {_expected(argument, parameter)}")


def _expected(argument: Any, parameter: Parameter) -> str:
    """Say what the kernel expects, and the remedy: ``a 32-bit integer (.u32); give a whole number``."""
    kind = {"i": "integer", "u": "integer", "f": "floating-point number"}.get(DTYPES[parameter.type].kind)
    bits, remedy = parameter.size * 8, "give a whole number"
    if kind is None or parameter.type == "b8":
        described, remedy = f"{parameter.size} bytes (.{parameter.type})", "give a NumPy scalar of that size"
    else:
        or_pointer = " or pointer" if (kind, bits) == ("integer", 64) else ""
        described = f"a {bits}-bit {kind}{or_pointer} (.{parameter.type})"
        if kind != "integer":
            remedy = f"give a NumPy scalar, such as numpy.float{bits}({argument!r})"
    return f"{described}; {remedy if isinstance(argument, int | float) else 'give a NumPy array or scalar'}"
