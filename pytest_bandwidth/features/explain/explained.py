"""Explain a call of PyTorch, JAX or tinygrad: what its operators move, beside the least that a fused one would."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.explain.explanation import Explanation
from pytest_bandwidth.features.explain.jax_equations import explained_jax
from pytest_bandwidth.features.explain.torch_operators import explained_torch
from pytest_bandwidth.features.tinygrad.kernels_explained import explained_tinygrad
from pytest_bandwidth.frameworks.arrays import FoundArray, arrays_in, located, refuse_mixed

_EXPLAINED = frozenset({"PyTorch", "JAX", "tinygrad"})


def explained(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Explanation:
    """Return what the operators of ``function(*args, **keywords)`` move, by the framework of its arguments.

    Without an array among them PyTorch's are looked for. Raises UsageError where none runs, and for arrays that could
    not be measured.
    """
    found = _found(args, keywords)
    refuse_mixed(found)
    framework = found[0].framework if found else None
    if framework == "JAX":
        return explained_jax(function, args, keywords)
    if framework == "tinygrad":
        return explained_tinygrad(lambda: function(*args, **keywords), [one.array for one in found])
    if "torch" not in sys.modules:
        raise UsageError(
            "explain: found no array of PyTorch, JAX or tinygrad among the arguments, expected a call of their "
            "operators"
        )
    return explained_torch(function, args, keywords)


def _found(args: Sequence[Any], keywords: Mapping[str, Any]) -> list[FoundArray]:
    """Return the arguments' arrays of a framework that is explained."""
    named = {**{f"args[{place}]": value for place, value in enumerate(args)}, **keywords}
    found = [located(path, array) for name, value in named.items() for path, array in arrays_in(value, name)]
    return [one for one in found if one.framework in _EXPLAINED]
