"""Notice where a framework compiles a callable anew while it is sampled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from pytest_bandwidth.domain.measured.measurement import Finding

# What JAX calls a compilation in its monitoring.
_JAX_COMPILED = "/jax/core/compile/backend_compile_duration"
RECOMPILED = Finding(
    "recompiled",
    "JAX compiled during the sample: shapes, types, static arguments or the function itself change from call to call",
)


class _Count:
    def __init__(self) -> None:
        self.compiled = 0

    def listen(self, event: str, duration: float, **more: Any) -> None:
        del duration, more
        self.compiled += event == _JAX_COMPILED


def recompiled() -> Callable[[], Finding | None] | None:
    """Return what tells whether something was compiled since it was last asked; None where nothing can tell.

    JAX has a public account of its compilations, PyTorch none.
    """
    if "jax" not in sys.modules:
        return None
    count = _jax_count()
    last = count.compiled

    def told() -> Finding | None:
        nonlocal last
        before, last = last, count.compiled
        return RECOMPILED if last > before else None

    return told


@cache
def _jax_count() -> _Count:
    """Return the one count of the process: JAX's listeners stay."""
    count = _Count()
    import_module("jax.monitoring").register_event_duration_secs_listener(count.listen)
    return count
