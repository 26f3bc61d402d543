"""Which keys each part of a baseline file has, and what a text must be to serve as their value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, get_args

from pytest_bandwidth.domain.device import DeviceKind
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import parse_count, parse_fraction, parse_gbps, parse_positive, parse_share

_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:?\d{2})?", re.ASCII)
_KINDS = get_args(DeviceKind)

Parser = Callable[[str], Any]


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """The known name that an unknown one was probably meant to be, None where it resembles none."""
    close = get_close_matches(name[:40].lower(), list(known), 1, 0.8)
    return close[0] if close else None


def text_of(text: str) -> str:
    """Words of a text value, without blanks around them. Raises ValueError where there are none."""
    if not text.strip():
        raise ValueError("found nothing, expected some text or no such key")
    return text.strip()


def _judged_on(text: str) -> str:
    if text not in ("relative", "gbps"):
        raise ValueError(f"found {shown(text)}, expected relative or gbps")
    return text


def _kind(text: str) -> str:
    if text not in _KINDS:
        raise ValueError(f"found {shown(text)}, expected one of {', '.join(_KINDS)}")
    return text


def _instant(text: str) -> str:
    if not _INSTANT.fullmatch(text):
        raise ValueError(f"found {shown(text)}, expected a time such as 2026-11-21T04:00:00Z")
    return text


RUN_SCALARS: dict[str, Parser] = {
    "gbps": parse_gbps,
    "probe_gbps": parse_gbps,
    "relative": parse_positive,
    "samples": parse_count,
    "gpu": text_of,
    "commit": text_of,
    "at": _instant,
}
ENTRY_SCALARS: dict[str, Parser] = {
    "bandwidth": parse_gbps,
    "utilization": parse_share,
    "tolerance": parse_fraction,
    "judged_on": _judged_on,
    "bytes_read": parse_count,
    "bytes_written": parse_count,
    "method": text_of,
    "xfail": text_of,
    "note": text_of,
}
ENTRY_MAPPINGS: dict[str, Parser] = {"resources": parse_count, "settings": text_of, "counts": parse_count}
ENTRY_KEYS = (*ENTRY_SCALARS, *ENTRY_MAPPINGS, "anchor", "runs")
DEVICE_SCALARS: dict[str, Parser] = {"name": text_of, "memory_gib": parse_count, "kind": _kind, "peak": parse_gbps}
HEADER_KEYS = ("schema", "device", "tolerance", "entries")
