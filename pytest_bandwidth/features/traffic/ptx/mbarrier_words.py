"""Lay out the 64 bits of an mbarrier object, which PTX leaves open; a token of a phase is such a word.

From bit 0: arrivals pending, 20 bits; arrivals of a phase, 20; bytes expected (signed), 22; the phase's number, 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_ARRIVALS = (1 << 20) - 1
EXPECTED_AT, BYTES_AT, PHASE_AT = 20, 40, 62
BYTES_BITS = PHASE_AT - BYTES_AT


def pending(word: Any) -> Any:
    """Return the arrivals that a phase still lacks."""
    return (word & word.dtype.type(MOST_ARRIVALS)).astype(np.uint32)


def phase(word: Any) -> Any:
    return word >> word.dtype.type(PHASE_AT) & word.dtype.type(3)


def lacking(word: int) -> tuple[int, int]:
    """Return the arrivals and the bytes that a phase still lacks."""
    half = 1 << BYTES_BITS - 1
    return word & MOST_ARRIVALS, ((word >> BYTES_AT) + half) % (2 * half) - half
