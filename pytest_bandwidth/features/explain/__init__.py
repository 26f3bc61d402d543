"""Explain a call of PyTorch or JAX: the bytes that its operators move, and the least that a fused kernel would."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.hooks import hookimpl

if TYPE_CHECKING:
    from pytest_bandwidth.hooks import Column, Explanation


@hookimpl
def pytest_bandwidth_columns() -> list[Column]:
    """Add the column for operators."""
    from pytest_bandwidth.features.explain.columns import COLUMNS

    return list(COLUMNS)


@hookimpl
def pytest_bandwidth_explain(
    framework: str | None, function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> Explanation | None:
    """Explain calls of JAX; if PyTorch is loaded, also its calls and calls without array arguments."""
    if framework == "JAX":
        from pytest_bandwidth.features.explain.operators import explained_jax

        return explained_jax(function, args, keywords)
    if framework in (None, "PyTorch") and "torch" in sys.modules:
        from pytest_bandwidth.features.explain.operators import explained_torch

        return explained_torch(function, args, keywords)
    return None
