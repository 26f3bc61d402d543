"""Compare baseline files with others: entries, their figures, what they are held to, and the code that they ran."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from os.path import exists, isdir  # of a name that no file system takes, Path's raise
from pathlib import Path
from typing import Any

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.code_files import NO_CHANGE, CodeChange, KeptCode, ptx_change
from pytest_bandwidth.baseline.schema import RECORDED, entry_fields
from pytest_bandwidth.cli.baseline_files import files_at
from pytest_bandwidth.cli.main import print_json, terminal_width
from pytest_bandwidth.domain.baseline import Baseline, Entry
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.errors import BaselineError, UsageError
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.domain.units import digits
from pytest_bandwidth.reports.text_safe import aligned, printable

# Told by the columns of GB/s and runs, or by no field of the file.
_APART = ("bandwidth", "runs")
# Of all changed kernels together, where people read it.
MOST_DIFF_LINES = 400
# So many entries that share a change are named.
MOST_NAMED = 3
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}

# What two files differ by: their names, `header` and `entries`.
Files = dict[str, Any]
PtxChanges = Callable[[str, str], CodeChange]


def diff(options: argparse.Namespace) -> int:
    compared = _compared_all(options.old, options.new)
    if options.json:
        print_json({"files": compared})
    else:
        for one in compared:
            if len(compared) > 1:
                print(printable(f"{one['old'] or 'none'} → {one['new'] or 'none'}"))
            print("\n".join(_lines(one)))
    return int(any(one["header"] or one["entries"] for one in compared))


def _compared_all(old: Path, new: Path) -> list[Files]:
    """Compare two files, or those of two folders by name: a device's may be in one alone. Raises UsageError."""
    if isdir(old) != isdir(new):
        for path in (old, new):
            if not exists(path):
                raise UsageError(f"{path}: found no such folder, expected one of baselines")
        raise UsageError(f"{old}, {new}: found a file and a folder, expected two files or two folders")
    if not isdir(old):
        return [_compared(old, baseline_files.load(old), new, baseline_files.load(new))]
    names = sorted({file.name for folder in (old, new) for file in files_at(folder)})
    pairs = [(old / name, new / name) for name in names]
    return [_compared(then, _in_folder(then), now, _in_folder(now)) for then, now in pairs]


def _in_folder(file: Path) -> Baseline:
    return baseline_files.load(file) if exists(file) else Baseline(None, {})


def _compared(old_file: Path, old: Baseline, new_file: Path, new: Baseline) -> Files:
    """Return what differs between two files, as programs are shown it. A file that does not exist counts as empty."""
    ptx = _ptx_changes(old_file, new_file)
    facts: dict[str, tuple[object, object]] = {"tolerance": (old.tolerance, new.tolerance)}
    for name in ("name", "memory_gib", "kind", "peak_gbps"):
        facts[f"device.{name}"] = (getattr(old.device, name, None), getattr(new.device, name, None))
    header = {name: pair for name, pair in facts.items() if pair[0] != pair[1]}
    differences = [
        one
        for key in dict.fromkeys((*old.entries, *new.entries))
        if (one := _difference(key, old.entries.get(key), new.entries.get(key), ptx)) is not None
    ]
    return {"old": old.path, "new": new.path, "header": header, "entries": differences}


def _ptx_changes(old: Path, new: Path) -> PtxChanges:
    """Return a function that compares the PTX of two hashes.

    It reads the code folders next to both baselines, and compares each pair of hashes once.
    """

    def read(name: str, own: Path, other: Path) -> str:
        # Either code folder may hold it. If none does, the error names the folder of its own baseline.
        with suppress(BaselineError):
            return KeptCode(other).ptx(name)
        return KeptCode(own).ptx(name)

    @cache
    def between(then: str, now: str) -> CodeChange:
        return ptx_change(lambda: read(then, old, new), lambda: read(now, new, old))

    return between


def _difference(key: str, before: Entry | None, after: Entry | None, ptx: PtxChanges) -> dict[str, Any] | None:
    """Return how an entry differs between two files, as the JSON form has it; None where both hold the same.

    fields: name → old and new text as files hold it, None where a side has none. change: of GB/s, as a fraction.
    code_changes: what surely changed in the code that ran, in words. code_diff, code_unknown: how the kernel's PTX did.
    """
    if before == after:
        return None
    fields: dict[str, tuple[str | None, str | None]] = {}
    said: tuple[str, ...] = ()
    change = NO_CHANGE
    if before is not None and after is not None:
        old, new = entry_fields(before, RECORDED), entry_fields(after, RECORDED)
        names = [name for name in dict.fromkeys((*old, *new)) if name not in _APART and old.get(name) != new.get(name)]
        fields = {name: (old.get(name), new.get(name)) for name in names}
        said = identity_of_plain(after.code).changes_since(identity_of_plain(before.code))
        then, now = before.code.get("ptx"), after.code.get("ptx")
        change = NO_CHANGE if then is None or now is None or then == now else ptx(then, now)
    gbps_before, gbps_after = (entry and entry.gbps for entry in (before, after))
    return {
        "key": key,
        "kind": "added" if before is None else "removed" if after is None else "changed",
        "gbps_before": gbps_before,
        "gbps_after": gbps_after,
        "change": gbps_after / gbps_before - 1 if gbps_before and gbps_after else None,
        "runs_before": None if before is None else len(before.runs),
        "runs_after": None if after is None else len(after.runs),
        "fields": fields,
        "code_changes": tuple(filter(None, (*said, change.accesses))),
        "code_diff": change.diff,
        "code_unknown": change.unknown,
    }


def _lines(compared: Files) -> list[str]:
    differences = compared["entries"]
    if not compared["header"] and not differences:
        return [f"{printable(compared['old'] or '')} and {printable(compared['new'] or '')} say the same"]
    lines = []
    for name, pair in compared["header"].items():
        before, after = ("none" if value is None else printable(str(value)) for value in pair)
        lines.append(f"{name}: {before} → {after}")
    if differences:
        headings = ("entry", "GB/s before", "GB/s after", "change", "runs", "what else")
        lines += aligned(headings, [_cells(one) for one in differences], left=("what else",), width=terminal_width())
    lines += _code_lines(differences)
    kinds = Counter(one["kind"] for one in differences)
    lines.append(", ".join(f"{kinds[kind]} {kind}" for kind in _SIGNS))
    return lines


def _code_lines(differences: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Give whose code changed and how, entries that share a change together; of all PTX no more than a page or two."""
    alike: dict[tuple[tuple[str, ...], str, str | None], list[str]] = {}
    for one in differences:
        if one["code_changes"]:
            alike.setdefault((one["code_changes"], one["code_diff"], one["code_unknown"]), []).append(one["key"])
    left = MOST_DIFF_LINES
    for (said, ptx, unknown), keys in alike.items():
        yield printable(f"code of {listed(keys, MOST_NAMED)}: {'; '.join(said)}")
        if unknown is not None:
            yield f"  {printable(unknown)}"
        diff = ptx.splitlines()
        yield from (f"  {printable(line)}" for line in diff[:left])
        if len(diff) > left:
            yield f"  … {len(diff) - left} more lines, which --json shows"
        left = max(left - len(diff), 0)


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    runs = [str(count) for count in (one["runs_before"], one["runs_after"]) if count is not None]
    fields = {name: f"{name} {old or 'none'} → {new or 'none'}" for name, (old, new) in one["fields"].items()}
    if "code" in fields and one["code_changes"]:
        fields["code"] = "code changed"  # hashes tell people nothing; how it changed stands below
    return (
        f"{_SIGNS[one['kind']]} {one['key']}",
        digits(one["gbps_before"]) if one["gbps_before"] else "",
        digits(one["gbps_after"]) if one["gbps_after"] else "",
        "" if one["change"] is None else f"{one['change'] * 100:+.1f} %",
        " → ".join(dict.fromkeys(runs)),
        "; ".join(fields.values()),
    )
