"""What a traffic device counted, out of a result's `detail`: by kind of access, and by source line."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_bandwidth.reports.values import Plain, mapping, mappings, text

KINDS = (("load", "loads"), ("store", "stores"), ("atomic", "atomics"))


def accesses_of(detail: Plain) -> list[tuple[str, Plain]]:
    """Kind and counts of every kind that occurs: one mapping for the kernel, or a list of them.

    Raises UsageError for values of the wrong type.
    """
    found: list[tuple[str, Plain]] = []
    for kind, name in KINDS:
        value = detail.get(name)
        counted = [value] if isinstance(value, Mapping) else mappings(detail, name, "detail")
        found += [(kind, access) for access in counted if access.get("requests") != 0]
    return found


def line_accesses_of(detail: Plain) -> list[tuple[str, Plain]]:
    """The same for each source line; every mapping begins with `place`, ``FILE:LINE``. Raises UsageError likewise."""
    return [
        (kind, {"place": f"{text(line, 'file', 'detail.lines')}:{line.get('line')}", **access})
        for line in mappings(detail, "lines", "detail")
        for kind, name in KINDS
        if (access := mapping(line, name, "detail.lines")).get("requests")
    ]
