"""Compute comparisons with predicates and selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes.floats import flush
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, Choice, Meaning

_COMBINE: dict[str, Meaning] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def setp(compare: Callable[[Choice], Meaning]) -> Callable[[Choice], Meaning]:
    """Compute setp p|q, a, b, c: p = (a cmp b) op c and q = !(a cmp b) op c;
    without an op they are the test and its opposite.

    The decoder adds ``pair`` to the choice where q is asked for.
    """

    def meaning(choice: Choice) -> Meaning:
        test = compare(choice)
        if "bool" not in choice:
            return (lambda a, b: _with_opposite(test(a, b))) if "pair" in choice else test
        combine = _COMBINE[choice["bool"]]
        if "pair" not in choice:
            return lambda a, b, c: combine(test(a, b), c)

        def both(a: Array, b: Array, c: Array) -> Any:
            truth = test(a, b)
            return combine(truth, c), combine(~truth, c)

        return both

    return meaning


def _with_opposite(truth: Array) -> tuple[Array, Array]:
    return truth, ~truth


def set_word(compare: Callable[[Choice], Meaning]) -> Callable[[Choice], Meaning]:
    """Compute set: all ones or 0 for integer results, 1.0 or 0.0 for f32."""

    def meaning(choice: Choice) -> Meaning:
        test = compare(choice)
        dtype = DTYPES[choice["settype"]]
        true = np.ones(1, dtype) if dtype.kind == "f" else ~np.zeros(1, dtype)
        return lambda a, b: np.where(test(a, b), true, np.zeros(1, dtype))

    return meaning


def select_by_sign(choice: Choice) -> Meaning:
    """Compute slct: a where c is not negative, which −0 is not, nor with .ftz a subnormal;
    b elsewhere, and where c is NaN.
    """
    if "ftz" in choice:
        return lambda a, b, c: np.where(flush(c) >= 0, a, b)
    return lambda a, b, c: np.where(c >= 0, a, b)


def select(a: Array, b: Array, chosen: Array) -> Array:
    return np.where(chosen, a, b)
