"""Parse the values of options and of the marker's arguments.

A ValueError names the value found and the value expected. Every pytest run loads this module: heavy modules are
imported only where a value is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from os.path import isfile  # Path.is_file raises for a name that no file system accepts
from pathlib import Path
from typing import Any

from pytest_bandwidth.registry import later

Parser = Callable[[str], Any]


def argument(parse: Parser, meaning: str) -> Any:
    """Declare an argument of the marker as a field of a frozen dataclass: None if it is not given."""
    return field(default=None, metadata={"parse": parse, "meaning": meaning})


def fitting(read: Parser, fits: Callable[[Any], bool], expected: str) -> Parser:
    """Return a parser that accepts a text if `read` can read it and its value `fits`. `expected` is for the error."""

    def parse(text: str) -> Any:
        with suppress(ValueError):
            if fits(value := read(text)):
                return value
        raise ValueError(f"found {text[:40]!r}, expected {expected}")

    return parse


def count(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least `least`."""
    return fitting(int, lambda value: least <= value <= 10**6, f"a whole number from {least} to 1000000")


def positive(most: float, expected: str) -> Callable[[str], float]:
    """Return a parser of numbers over 0 and up to `most`."""
    return fitting(float, lambda value: 0 < value <= most, expected)


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that accepts only these words."""
    return fitting(str, lambda text: text in words, f"{', '.join(words[:-1])} or {words[-1]}")


def switch(text: str) -> bool:
    """Parse True or False."""
    return one_of("True", "False")(text) == "True"


figure = one_of("relative", "gbps")
seconds = positive(86_400, "seconds, more than 0 and at most 86400")
processors = positive(10**6, "a number of processors, more than 0")
# A bandwidth, in GB/s or with a unit; a fraction below 1, such as 0.05 or 5%.
gbps, fraction = later("domain.units:parse_gbps"), later("domain.units:parse_fraction")


def positive_fraction(text: str) -> float:
    """Parse a fraction over 0."""
    value: float = fraction(text)
    if value == 0:
        raise ValueError(f"found {text[:40]!r}, expected more than 0 %")
    return value


def ratio(text: str) -> float:
    """Parse a ratio over 0 that may pass 1."""
    from pytest_bandwidth.domain.units import parse_positive

    value = parse_positive(text)
    if value > 1000:
        raise ValueError(f"found {text[:40]!r}, expected a ratio of at most 1000, such as 1.1")
    return value


def share(text: str) -> float:
    """Parse a share of the probe: it may pass 1, since a kernel may beat a plain copy."""
    from pytest_bandwidth.domain.measured.measurement import LARGEST_SHARE

    def read(text: str) -> float:
        percent = text.strip().endswith("%")
        return float(text.strip().rstrip("%")) / (100 if percent else 1)

    most = f"of {LARGEST_SHARE:.0%} at most"
    expected = f"a share of the probe, such as 0.9 or 90%, {most}"
    found: float = fitting(read, lambda value: 0 < value <= LARGEST_SHARE, expected)(text)
    return found


# Parses the shares above which a utilization is excellent, good and fair.
classes = fitting(
    lambda text: tuple(map(fraction, text.replace(",", " ").replace(" %", "%").split())),
    lambda found: len(found) == 3 and 1 > found[0] > found[1] > found[2] > 0,
    "three falling shares such as '80% 60% 35%'",
)


def commit(text: str) -> str:
    """Parse a commit's full hash."""
    if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text, re.ASCII) is None:
        raise ValueError(f"found {text[:80]!r}, expected a commit's full hash")
    return text


def path(text: str) -> Path:
    """Parse a path. An address is an error."""
    from pytest_bandwidth.domain.text import is_address, masked

    if not text.strip():
        raise ValueError("found nothing, expected a path")
    if is_address(text):
        raise ValueError(
            f"found the address {masked(text)!r}, expected a path: mount it, or copy what was written there"
        )
    if text.endswith("/") and isfile(text.rstrip("/")):
        raise ValueError(f"found {text[:40]!r}, which is a file, expected a folder")
    return Path(text)


def parsed(option: str, text: str | None, parse: Parser) -> Any:
    """Parse the value of a command's option; None where it was not given. Raises UsageError that names the option."""
    from pytest_bandwidth.domain.errors import UsageError

    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
