"""Parse and format numbers with units, and moments, as people write and read them.

The package itself uses bytes, seconds and fractions.

GB are 10⁹ bytes and GiB 2³⁰ bytes throughout.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any

GB = 10**9

_BYTE_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTE_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_BANDWIDTH_UNITS = {"": 1.0} | {f"{unit}/s": size / GB for unit, size in _BYTE_UNITS.items() if size >= 10**6}
_NUMBER = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(\S*)\s*", re.ASCII)
MAX_SHARE = 10.0
# An exabyte per second, which no memory comes near; figures computed from it stay finite.
MAX_GBPS = 1e9
_COUNT = re.compile(r"[0-9]{1,19}")
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"


def _number_and_unit(text: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text[:64])
    if match is None or len(text) > 64:
        raise ValueError(f"found {text[:40]!r}, expected a number")
    value = float(match[1])
    if not math.isfinite(value):
        raise ValueError(f"found {text[:40]!r}, expected a finite number")
    return value, match[2]


def parse_gbps(text: str) -> float:
    """Parse GB/s from text such as ``1747.1 GB/s``, ``1.6 TiB/s`` or ``1747.1`` (GB/s). At most `MAX_GBPS`.

    Raises ValueError unless positive.
    """
    value, unit = _number_and_unit(text)
    if unit not in _BANDWIDTH_UNITS:
        raise ValueError(f"found unit {unit[:20]!r}, expected one of {', '.join(u for u in _BANDWIDTH_UNITS if u)}")
    if value <= 0:
        raise ValueError(f"found {text[:40]!r}, expected a positive bandwidth")
    if value * _BANDWIDTH_UNITS[unit] > MAX_GBPS:
        raise ValueError(f"found {text[:40]!r}, expected a bandwidth of {MAX_GBPS:.0e} GB/s at most")
    return value * _BANDWIDTH_UNITS[unit]


def parse_bytes(text: str) -> int:
    """Read a number of bytes with its unit, such as ``1 MB`` or ``64 MiB``. Raises ValueError unless it is whole."""
    value, unit = _number_and_unit(text)
    if unit not in _BYTE_UNITS:
        raise ValueError(f"found {text[:40]!r}, expected bytes with one of the units {', '.join(_BYTE_UNITS)}")
    count = value * _BYTE_UNITS[unit]
    if count < 0 or count != int(count):
        raise ValueError(f"found {text[:40]!r}, expected a whole number of bytes that is not negative")
    return int(count)


def parse_fraction(text: str) -> float:
    """Parse a fraction from text such as ``5%`` or ``0.05``. Raises ValueError unless 0 ≤ fraction < 1.

    A bare number has to be below 1, so that ``5`` is an error and not 500 %.
    """
    return _fraction(text, "fraction", lambda value: 0 <= value < 1, "at least 0 % and below 100 %")


def parse_share(text: str) -> float:
    """Parse a share of a peak from text such as ``85.7%`` or ``0.857``; a share of a probe may pass 100 %.

    Raises ValueError unless 0 ≤ share ≤ `MAX_SHARE`. As in `parse_fraction`, a bare number has to be below 1.
    """
    return _fraction(text, "share", lambda value: 0 <= value <= MAX_SHARE, "between 0 % and 1000 %")


def _fraction(text: str, noun: str, fits: Callable[[float], bool], expected: str) -> float:
    value, unit = _number_and_unit(text)
    if unit not in ("", "%"):
        raise ValueError(f"found unit {unit[:20]!r}, expected % or none")
    if unit == "" and value >= 1:
        meant = f"{text.strip()[:12]}%" if 1 < value < 100 else "5%"
        raise ValueError(f"found {text[:40]!r}, expected a {noun} below 1 or a percentage such as {meant}")
    fraction = value / 100 if unit == "%" else value
    if not fits(fraction):
        raise ValueError(f"found {text[:40]!r}, expected {expected}")
    return fraction


def parse_positive(text: str) -> float:
    """Return a positive number without a unit, such as a ratio. Raises ValueError for anything else."""
    value, unit = _number_and_unit(text)
    if unit or value <= 0:
        raise ValueError(f"found {text[:40]!r}, expected a positive number without a unit")
    return value


def parse_count(text: str) -> int:
    """Return a whole number below 2⁶³, such as a count of bytes. Raises ValueError for anything else."""
    if not _COUNT.fullmatch(text) or int(text) >= 2**63:
        raise ValueError(f"found {text[:40]!r}, expected a whole number that is not negative (below 2^63)")
    return int(text)


def whole(value: Any) -> int | None:
    """Return a whole number of any integer type as an int; None for anything else, True and False included."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def whole_sizes(value: Any, least: int = 0) -> tuple[int, ...] | None:
    """Return one or several whole numbers as a tuple of int; None for anything else, or one below `least`."""
    one = whole(value)
    found = (one,) if one is not None else tuple(map(whole, value)) if isinstance(value, Iterable) else (None,)
    sizes = tuple(size for size in found if size is not None and size >= least)
    return sizes if len(sizes) == len(found) else None


def drop_of_log(log_drop: float) -> float:
    """Return the drop as a fraction, from ln(before ÷ after): 0.0513 → 0.05; gains are negative."""
    return -math.expm1(-log_drop)


def log_of_drop(drop: float) -> float:
    """Return ln(before ÷ after) of a drop as a fraction: 0.05 → 0.0513. It is the inverse of `drop_of_log`."""
    return -math.log1p(-drop)


def format_bytes(count: float) -> str:
    """Format bytes in decimal units with three digits: 805 MB, 1.61 GB, 12 B."""
    return _scaled(count, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)), "B")


def format_bytes_against(count: int, other: int) -> str:
    """Format bytes next to another count: with all digits where the counts differ and three digits do not show it."""
    rounded = format_bytes(count)
    return f"{count:,} B" if count != other and rounded == format_bytes(other) else rounded


def format_seconds(seconds: float) -> str:
    """Format seconds with three digits: 2.91 ms, 58.5 µs."""
    return _scaled(seconds, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)), "ns", 1e-9)


def format_gbps(gbps: float) -> str:
    """Format GB/s with about four digits: 277 GB/s, 41.52 GB/s, 1747 GB/s."""
    return f"{digits(gbps)} GB/s"


def format_percent(fraction: float, decimals: int = 0) -> str:
    """Return a fraction as a percentage: 0.62 → 62 %."""
    return f"{fraction * 100:.{decimals}f} %"


def format_moment(moment: datetime) -> str:
    """Format a moment of UTC in ISO 8601, to the second: 2026-11-21T04:00:00Z."""
    return moment.strftime(_MOMENT)


def parse_moment(text: str) -> datetime:
    """Parse what `format_moment` writes. Raises ValueError for anything else."""
    return datetime.strptime(text, _MOMENT).replace(tzinfo=timezone.utc)


def counted(count: int, noun: str) -> str:
    """Count things in words: 1 test, 2 tests, 2 processes, 2 entries."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun}"


def digits(value: float) -> str:
    """Format a positive figure with three to four significant digits."""
    magnitude = abs(value)
    if magnitude >= 100 or magnitude == 0:
        return f"{value:.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 0.1 else f"{value:.3g}"


def _scaled(value: float, steps: tuple[tuple[str, float], ...], small: str, small_size: float = 1.0) -> str:
    for unit, size in steps:
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}" if value / size < 1000 else f"{value / size:.0f} {unit}"
    return f"{value / small_size:.3g} {small}"
