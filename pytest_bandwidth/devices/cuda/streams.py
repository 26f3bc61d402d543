"""Turn streams as other libraries name them into the pointer that CUDA knows them by."""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.domain.errors import UsageError

ACCEPTED = (
    "a cupy.cuda.Stream, a torch.cuda.Stream, a Numba stream, an object with __cuda_stream__, or the cudaStream_t "
    "pointer as an int"
)


def stream_pointer(stream: Any) -> int:
    """Return the cudaStream_t of a stream, as an int (0 is the legacy default stream).

    Raises UsageError for anything else.

    Asked for in this order: int; `.ptr` (CuPy); `.cuda_stream` (PyTorch); `__cuda_stream__` (the protocol of NVIDIA's
    cuda.core, version 0; a method, in its first releases an attribute); `.handle` (Numba).
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        return _checked(stream, stream)
    for attribute in ("ptr", "cuda_stream"):
        pointer = getattr(stream, attribute, None)
        if isinstance(pointer, int) and not isinstance(pointer, bool):
            return _checked(pointer, stream)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return _checked(_from_protocol(protocol() if callable(protocol) else protocol, stream), stream)
    handle = getattr(stream, "handle", None)
    if handle is not None:
        return _checked(_from_handle(handle, stream), stream)
    raise UsageError(f"stream={_shown(stream)} is no CUDA stream, expected {ACCEPTED}")


def _from_protocol(answer: Any, stream: Any) -> int:
    try:
        version, pointer = answer
        if version == 0:
            return int(pointer)
    except (TypeError, ValueError):
        pass
    raise UsageError(f"stream={_shown(stream)}: __cuda_stream__ gave {answer!r}, expected (0, pointer)")


def _from_handle(handle: Any, stream: Any) -> int:
    """Read Numba's handle: a ctypes.c_void_p (None inside for the default stream), a driver object, or an int."""
    if hasattr(handle, "value"):
        handle = handle.value
    try:
        return 0 if handle is None else int(handle)
    except (TypeError, ValueError):
        raise UsageError(f"stream={_shown(stream)}: its handle {handle!r} is no pointer, expected {ACCEPTED}") from None


def _checked(pointer: int, stream: Any) -> int:
    if 0 <= pointer < 2**64:
        return pointer
    raise UsageError(f"stream={_shown(stream)} is no CUDA stream pointer, expected {ACCEPTED}")


def _shown(stream: Any) -> str:
    text = " ".join(repr(stream).split())
    return text if len(text) <= 60 else f"{text[:60]}…"
