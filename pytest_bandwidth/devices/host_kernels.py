"""Every shipped CUDA kernel that has a Numba twin on the host, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pytest_bandwidth.devices import host_stream
from pytest_bandwidth.devices.host_signature import HostKernel, parameters

# Suffix of a name, element type, type that it is computed in. Wide versions ask for 16 bytes at a time, which is what
# a vectorised host kernel does anyway.
FLOATS = (("f32", "f32", "f32"), ("f16", "f16", "f32"))
ALL = (*FLOATS, ("f64", "f64", "f64"))
WIDE = (*ALL, ("f32x4", "f32", "f32"), ("f16x8", "f16", "f32"))


def _family(
    name: str,
    function: Callable[..., Any],
    signature: str,
    extents: Callable[..., Sequence[int]],
    versions: Sequence[tuple[str, str, str]],
    **options: bool,
) -> Iterator[HostKernel]:
    """One kernel for each version; in the signature T stands for the element type and W for what it is computed in."""
    for suffix, element, arithmetic in versions:
        typed = signature.replace(":T", f":{element}").replace(":W", f":{arithmetic}")
        yield HostKernel(f"{name}_{suffix}", function, parameters(typed), extents, **options)


def _stream() -> Iterator[HostKernel]:
    yield from _family("read", host_stream.read, "sink:W* in:T* never:W n:i64", lambda n: (1, n), WIDE)
    yield from _family("write", host_stream.write, "out:T* value:W n:i64", lambda n: (n,), WIDE)
    yield from _family("copy", host_stream.copy, "out:T* in:T* n:i64", lambda n: (n, n), WIDE, bits=True)
    yield from _family("scale", host_stream.scale, "out:T* in:T* scalar:W n:i64", lambda n: (n, n), WIDE)
    yield from _family("add", host_stream.add, "out:T* a:T* b:T* n:i64", lambda n: (n, n, n), WIDE)
    yield from _family("triad", host_stream.triad, "a:T* b:T* c:T* scalar:W n:i64", lambda n: (n, n, n), WIDE)


def _reductions() -> Iterator[HostKernel]:
    partials = {"takes_blocks": True}
    yield from _family(
        "sum", host_stream.sum_all, "partials:W* in:T* n:i64", lambda n, blocks: (blocks, n), WIDE, **partials
    )
    yield from _family(
        "dot", host_stream.dot, "partials:W* a:T* b:T* n:i64", lambda n, blocks: (blocks, n, n), WIDE, **partials
    )


HOST_KERNELS: dict[str, HostKernel] = {kernel.name: kernel for family in (_stream, _reductions) for kernel in family()}
