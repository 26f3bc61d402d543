"""Compare the results of the work with those that its test expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.features.honest.arrays import View, view_of
from pytest_bandwidth.fixture.watched import Reference
from pytest_bandwidth.frameworks.arrays import arrays_in, framework_of

# Relative and absolute tolerance by the type of the result: those of torch.testing.assert_close.
TOLERANCES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "float16": (1e-3, 1e-5),
        "bfloat16": (1.6e-2, 1e-5),
        "float32": (1.3e-6, 1e-5),
        "complex64": (1.3e-6, 1e-5),
        "float64": (1e-7, 1e-7),
        "complex128": (1e-7, 1e-7),
    }
)
# The largest relative error of one rounding to each type; a few such errors may add up.
_ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
_SOME_ERRORS = 4.0
# At most, and at least, so many elements are examined to find whether all were rounded to a narrower type.
_LOOKED_AT, _ENOUGH = 1 << 16, 16
# So many elements at a time are compared in double precision.
_AT_A_TIME = 1 << 22


def copied(value: Any, memo: dict[int, Any] | None = None, only: int | None = None) -> Any:
    """Return a value with copies of the arrays in it, at other addresses; immutable arrays stay.

    memo: gets each copy, by the `id` of its array. only: the `id` of the one array to copy; None = all.
    """
    if framework_of(value) is not None:
        if only not in (None, id(value)):
            return value
        copy = getattr(value, "clone", None) or getattr(value, "copy", None)
        found = value.copy(order="K") if isinstance(value, np.ndarray) else value if copy is None else copy()
        return found if memo is None else memo.setdefault(id(value), found)
    if isinstance(value, Mapping):
        return {key: copied(one, memo, only) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(one, memo, only) for one in value)
    return value


def reference_of(check: Any) -> Reference | None:
    """Return the Reference for a test's ``check=``. Raises UsageError."""
    if check is None:
        return None
    found = check if isinstance(check, Reference) else Reference(check)
    for name in ("rtol", "atol"):
        value = getattr(found, name)
        if value is not None and not (isinstance(value, (int, float)) and 0 <= value < float("inf")):
            raise UsageError(f"check: {name}={value!r}, expected a number that is not negative")
    if not callable(found.expected) and not list(arrays_in(found.expected, "check")):
        kind = type(found.expected).__name__
        raise UsageError(f"check: found a {kind}, expected a callable that returns arrays, or the arrays")
    return found


def expected_arrays(
    reference: Reference, args: Sequence[Any], keywords: Mapping[str, Any], written: Sequence[Any]
) -> list[Any]:
    """Return the arrays that the work has to compute, in order. written: the test's arrays that the work writes.

    The reference gets copies of the work's arguments. If it returns no array, its results are in those copies.
    """
    if not callable(reference.expected):
        return [array for _, array in arrays_in(reference.expected, "check")]
    given, named = [copied(one) for one in args], {name: copied(one) for name, one in keywords.items()}
    value = reference.expected(*given, **named)
    found = [array for _, array in arrays_in(value, "check", passing_over=True)]
    if not found and value is not None:
        found = [np.asarray(value)]
        if found[0].dtype.kind not in "biufc":
            raise UsageError(f"check: the reference returned a {type(value).__name__}, expected arrays or a number")
    if found:
        return found
    pairs = [*zip(args, given, strict=True), *((keywords[name], one) for name, one in named.items())]
    return [copy for one in written for own, copy in pairs if own is one]


def compared(
    reference: Reference, results: Sequence[View], expected: Sequence[Any], device: Any, input_bytes: int = 0
) -> str | None:
    """Return how results differ from the expected ones; None where all are within the tolerance.

    input_bytes: the element size of the inputs, if the work chooses the type of its results. A result type narrower
    than the inputs' and the reference's gets the tolerance of the reference's type.
    Raises UsageError for another number of results.
    """
    if len(results) != len(expected):
        raise UsageError(
            f"check: the reference gave {counted(len(expected), 'array')}, and the work has {len(results)}: expected "
            "one for each array that it returns, or else for each of writes="
        )
    for view, array in zip(results, expected, strict=True):
        other = view_of(device, "check", array)
        wanted = array if other is None else other.array
        if other is not None and isinstance(view.array, np.ndarray) and not isinstance(wanted, np.ndarray):
            wanted = wanted.get()  # to the host, as the result
        wanted = view.xp.asarray(wanted)
        if tuple(wanted.shape) != tuple(view.array.shape):
            return f"{view.name} has the shape {tuple(view.array.shape)}, and the reference's {tuple(wanted.shape)}"
        if wanted.dtype.kind not in "biufcV":
            raise UsageError(f"check: the reference gave elements of the type {wanted.dtype}, expected numbers")
        size, wanted_size = view.array.dtype.itemsize, wanted.dtype.itemsize
        # A reference of lower precision sets the tolerance: Python's numbers are double precision in any case.
        is_coarser = wanted.dtype.kind == view.array.dtype.kind == "f" and wanted_size < size
        exact = wanted.dtype if is_coarser or size < min(wanted_size, input_bytes) else view.array.dtype
        if reference.rtol is None and reference.atol is None:
            wrong = _compared(view, wanted, *TOLERANCES.get(exact.name, (0.0, 0.0))) or _rounded(view, wanted)
        else:
            wrong = _compared(view, wanted, reference.rtol or 0.0, reference.atol or 0.0)
        if wrong is not None:
            return wrong
    return None


def _rounded(view: View, wanted: Any) -> str | None:
    """Return a message if all numbers are rounded to a narrower type and the reference's are not; else None."""
    got, expected = (array.reshape(-1)[:_LOOKED_AT] for array in (view.array, wanted))
    for name in ("float16", "float32"):
        if got.dtype.kind == "f" and got.dtype.itemsize > np.dtype(name).itemsize and got.size >= _ENOUGH:
            with np.errstate(all="ignore"):
                fit, would = (one == one.astype(name).astype(one.dtype) for one in (got, expected))
            if bool(fit.all()) and float(would.mean()) < 1 / 2:
                return f"all numbers of {view.name} are rounded to {name}, and the reference's are not"
    return None


def _compared(view: View, wanted: Any, rtol: float, atol: float) -> str | None:
    xp = view.xp
    got, expected = view.array.reshape(-1), wanted.reshape(-1)
    wrong, first, largest = 0, -1, 0.0
    for at in range(0, got.size, _AT_A_TIME):
        one, other = got[at : at + _AT_A_TIME], expected[at : at + _AT_A_TIME]
        with np.errstate(all="ignore"):  # unwritten elements may be signalling NaNs
            if bool((one == other).all()):
                continue
        if one.dtype.kind in "fcV" or other.dtype.kind in "fc":
            wide = "c16" if "c" in (one.dtype.kind, other.dtype.kind) else "f8"
            with np.errstate(all="ignore"):  # unwritten elements may be signalling NaNs
                one, other = one.astype(wide), other.astype(wide)
                error = xp.abs(one - other)
                near = xp.isfinite(other) & (error <= atol + rtol * xp.abs(other))
                fits = near | (one == other) | ((one != one) & (other != other))
                # Where terms cancel, relative errors are large and do not show the precision.
                is_typical = xp.abs(other) > xp.abs(other).mean() / 2
                relative = xp.where(is_typical, error / xp.abs(other), 0.0)
            bad = xp.flatnonzero(~fits)
            known = relative[xp.isfinite(relative)]
            largest = max(largest, float(known.max())) if known.size else largest
        else:
            bad = xp.flatnonzero(one != other)
        if bad.size and first < 0:
            first = at + int(bad[0])
        wrong += int(bad.size)
    if not wrong:
        return None
    place = [int(one) for one in np.unravel_index(first, view.array.shape or (1,))]
    message = f"{wrong:,} of {got.size:,} elements of {view.name} differ from the reference, first {place}"
    if got.dtype.kind in "fc" or expected.dtype.kind in "fc":
        message += f": {got[first].item():.9g} in place of {expected[first].item():.9g}"
        message += f" (rtol {rtol:.3g}, atol {atol:.3g})"
        for name, unit in _ROUNDED.items():
            if wanted.dtype.itemsize > 2 and unit / 2 <= largest <= unit * _SOME_ERRORS:
                message += f"; the largest relative error, {largest:.2g}, is of the size of {name}'s rounding"
                break
    else:
        message += f": {got[first].item()} in place of {expected[first].item()}"
    return message
