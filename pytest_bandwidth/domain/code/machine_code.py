"""Carry the machine code of old kernels: the file that NVRTC made (a cubin), which only a GPU's driver opens."""

from __future__ import annotations

import functools
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping

# In an entry's `code`, the hash of the file that the kernel was loaded from. It says nothing of sameness.
CUBIN = "cubin"
# Kept PTX and machine code are no larger.
LARGEST_BYTES = 8 * 2**20
FILES_KEPT = 16
# Returns the file that an entry's `code` stands for, None where none was kept; or raises BandwidthError.
CubinSource = Callable[[Mapping[str, str]], bytes | None]


def text_of_cubin(cubin: bytes) -> str:
    """Return machine code as text, which JSON can carry."""
    return b64encode(cubin).decode()


def cubin_of_text(text: object) -> bytes | None:
    """Return machine code back; None for what is no such text, or too large."""
    if not isinstance(text, str) or len(text) > 4 * LARGEST_BYTES // 3 + 4:
        return None
    try:
        return _decoded(text)
    except ValueError:
        return None


@functools.lru_cache(FILES_KEPT)
def _decoded(text: str) -> bytes:
    """Decode it. Cached, since the kernels of a file share theirs."""
    return b64decode(text, validate=True)
