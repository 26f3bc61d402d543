"""Compare one baseline file with another: entries, their figures, and what they are held to."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_bandwidth.cli.tables import aligned, print_json, terminal_width
from pytest_bandwidth.domain.baseline import Baseline, Entry
from pytest_bandwidth.domain.units import digits
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.storage import baseline as baseline_files
from pytest_bandwidth.storage.baseline.writer import entry_fields

# Told by the columns of GB/s and runs, or by no field of the file.
_APART = ("bandwidth",)


@dataclass(frozen=True, slots=True)
class Difference:
    """Hold one entry's difference; fields: name → old and new text as files hold it, None where a side has none."""

    key: str
    before: Entry | None
    after: Entry | None
    fields: Mapping[str, tuple[str | None, str | None]]

    @property
    def change(self) -> float | None:
        """Return the change of GB/s as a fraction; None where a side has none."""
        old, new = self.before and self.before.gbps, self.after and self.after.gbps
        return new / old - 1 if old and new else None


def run(options: argparse.Namespace) -> int:
    old, new = baseline_files.load(options.old), baseline_files.load(options.new)
    header = _header(old, new)
    differences = [
        one
        for key in dict.fromkeys((*old.entries, *new.entries))
        if (one := _difference(key, old.entries.get(key), new.entries.get(key))) is not None
    ]
    if options.json:
        print_json({"old": old.path, "new": new.path, "header": header, "entries": [_plain(d) for d in differences]})
    else:
        print("\n".join(_lines(old, new, header, differences)))
    return 1 if header or differences else 0


def _header(old: Baseline, new: Baseline) -> dict[str, tuple[object, object]]:
    """Return the differing facts of the files themselves by name."""
    facts: dict[str, tuple[object, object]] = {"tolerance": (old.tolerance, new.tolerance)}
    for name in ("name", "memory_gib", "kind", "peak_gbps"):
        facts[f"device.{name}"] = (getattr(old.device, name, None), getattr(new.device, name, None))
    return {name: pair for name, pair in facts.items() if pair[0] != pair[1]}


def _difference(key: str, before: Entry | None, after: Entry | None) -> Difference | None:
    if before is None or after is None:
        return Difference(key, before, after, {})
    if before == after:
        return None
    old, new = entry_fields(before), entry_fields(after)
    changed = {
        name: (old.get(name), new.get(name))
        for name in dict.fromkeys((*old, *new))
        if name not in _APART and old.get(name) != new.get(name)
    }
    return Difference(key, before, after, changed)


def _lines(
    old: Baseline, new: Baseline, header: Mapping[str, tuple[object, object]], differences: list[Difference]
) -> list[str]:
    if not header and not differences:
        return [f"{printable(old.path or '')} and {printable(new.path or '')} say the same"]
    lines = [f"{name}: {_told(a)} → {_told(b)}" for name, (a, b) in header.items()]
    if differences:
        headings = ("entry", "GB/s before", "GB/s after", "change", "runs", "what else")
        lines += aligned(headings, [_cells(one) for one in differences], left=("what else",), width=terminal_width())
    added = sum(one.before is None for one in differences)
    removed = sum(one.after is None for one in differences)
    lines.append(f"{added} added, {removed} removed, {len(differences) - added - removed} changed")
    return lines


def _told(value: object) -> str:
    return "none" if value is None else printable(str(value))


def _cells(one: Difference) -> tuple[str, ...]:
    sign = "+" if one.before is None else "-" if one.after is None else "~"
    runs = [str(len(entry.runs)) for entry in (one.before, one.after) if entry is not None]
    return (
        f"{sign} {one.key}",
        digits(one.before.gbps) if one.before and one.before.gbps else "",
        digits(one.after.gbps) if one.after and one.after.gbps else "",
        "" if one.change is None else f"{one.change * 100:+.1f} %",
        " → ".join(dict.fromkeys(runs)),
        "; ".join(f"{name} {a or 'none'} → {b or 'none'}" for name, (a, b) in one.fields.items()),
    )


def _plain(one: Difference) -> dict[str, object]:
    kind = "added" if one.before is None else "removed" if one.after is None else "changed"
    return {
        "key": one.key,
        "kind": kind,
        "gbps_before": one.before.gbps if one.before else None,
        "gbps_after": one.after.gbps if one.after else None,
        "change": one.change,
        "runs_before": len(one.before.runs) if one.before else None,
        "runs_after": len(one.after.runs) if one.after else None,
        "fields": {name: list(pair) for name, pair in one.fields.items()},
    }
