"""Compare a launch's arguments with the types of the kernel's parameters, as far as its source names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_bandwidth.domain.code.kernel_signature import parameter_names, pointed_at

# What kernels call numbers: kind (f: IEEE 754, b: bfloat16, i: integer) and bytes. `long` differs between platforms,
# and a byte may be anything.
_NUMBERS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("float", "float2", "float3", "float4"), ("f", 4)),
    **dict.fromkeys(("double", "double2"), ("f", 8)),
    **dict.fromkeys(("half", "__half", "half2", "__half2"), ("f", 2)),
    **dict.fromkeys(("__nv_bfloat16", "__nv_bfloat162", "nv_bfloat16"), ("b", 2)),
    **dict.fromkeys(("short", "unsigned short", "int16_t", "uint16_t"), ("i", 2)),
    **dict.fromkeys(
        ("int", "unsigned", "unsigned int", "int32_t", "uint32_t", "int2", "int4", "uint2", "uint4"), ("i", 4)
    ),
    **dict.fromkeys(("long long", "unsigned long long", "int64_t", "uint64_t"), ("i", 8)),
}
# Whole numbers that `_NUMBERS` leaves out.
_OTHER_WHOLE = frozenset(
    ("bool", "char", "signed char", "unsigned char", "int8_t", "uint8_t", "long", "unsigned long", "size_t")
)


def instead_of_float(value: float, kind: str) -> str:
    """Say what to write instead of a Python float for a parameter of type `kind`, "" where the source does not tell."""
    number, size = _NUMBERS.get(kind, ("", 0))
    if number == "i" or kind in _OTHER_WHOLE:
        return f"the kernel's parameter is {kind}, write a whole number"
    if number == "f" and not kind[-1].isdigit():  # no float4
        return f"write np.float{8 * size}({value!r})"
    return f"write np.float32({value!r}), or np.float64({value!r}) if the parameter is a double"


def misread_arrays(source: str, kernel: str, args: Sequence[Any]) -> tuple[str, ...]:
    """Name arrays whose numbers are not those that the kernel's source reads; all bits of one size are let pass.

    kernel: its name, plain or as in PTX. args: a launch's; arrays are told by a `dtype` and a `shape` of their own.
    Types that the source names otherwise, such as a template's, are not looked at.
    """
    names, kinds = parameter_names(source, kernel, len(args)), pointed_at(source, kernel, len(args))
    return tuple(
        f"`{name}` is {array.dtype}, the kernel's parameter is {kind}"
        for name, kind, array in zip(names, kinds, args, strict=True)
        if kind in _NUMBERS and _is_array(array) and _misread(np.dtype(array.dtype), *_NUMBERS[kind])
    )


def _is_array(argument: Any) -> bool:
    return not isinstance(argument, np.generic) and isinstance(getattr(argument, "dtype", None), np.dtype)


def _misread(dtype: np.dtype[Any], kind: str, itemsize: int) -> bool:
    if dtype.itemsize == 1 or dtype.kind not in "fiuc":  # raw bytes, or a type of the user's own
        return False
    size = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    given = "f" if dtype.kind in "fc" else "i"
    holds_bits = dtype.kind == "u" or (kind == "b" and given == "i")
    return size != itemsize or (given != kind and not holds_bits)
