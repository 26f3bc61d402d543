"""List what a traffic device counted, out of a result's `detail`: by kind of access, and by source line."""

from __future__ import annotations

from pytest_bandwidth.reports.values import Plain, mapping, sequence, text

KINDS = (("load", "loads"), ("store", "stores"), ("atomic", "atomics"))


def accesses_of(detail: Plain) -> list[tuple[str, Plain]]:
    """Return kind and counts of every kind that occurs."""
    return [(kind, access) for kind, name in KINDS if (access := mapping(detail, name)) and access.get("requests") != 0]


def line_accesses_of(detail: Plain) -> list[tuple[str, Plain]]:
    """Return the same for each source line; every mapping begins with `place`, ``FILE:LINE``."""
    return [
        (kind, {"place": f"{text(line, 'file')}:{line.get('line')}", **access})
        for line in sequence(detail, "lines")
        for kind, name in KINDS
        if (access := mapping(line, name)).get("requests")
    ]
