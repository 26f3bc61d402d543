"""Look into baseline files and keep them: show, validate, compare, prune them, make empty ones.

Exit status 0: fine; 1: `diff` found a difference; 2: unusable input, an invalid file for `validate` included.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from math import log
from os.path import exists, isdir  # Path's methods raise for an impossible name
from pathlib import Path
from statistics import stdev
from typing import Any, NamedTuple

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline import locate
from pytest_bandwidth.baseline.code_files import (
    NO_CHANGE,
    CodeChange,
    KeptCode,
    problems_of,
    prune_code,
    ptx_change,
    unused_code,
)
from pytest_bandwidth.baseline.schema import RECORDED, entry_fields
from pytest_bandwidth.cli.main import device_words, print_json, terminal_width
from pytest_bandwidth.devices.open import known_names, open_device, timed_on
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Metric
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.device import identity_of
from pytest_bandwidth.domain.errors import BaselineError, Problem, UsageError
from pytest_bandwidth.domain.measured.metrics import metrics_of_run
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.domain.units import counted, digits, drop_of_log, format_percent
from pytest_bandwidth.judging.limits import tolerance_of
from pytest_bandwidth.judging.stored import reference_of, runs_needed, since_anchor
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.reports.text_safe import aligned, printable
from pytest_bandwidth.storage.saved_run import load_run

# The options' defaults, which the gate uses where neither marker nor baseline sets a value.
DEFAULTS = Settings()
_HEADINGS = (
    *("entry", "GB/s", "of peak", "judged on", "runs", "spread"),
    *("tolerance", "detects", "since anchor", "newest", "code", "expected to fail"),
)
_WORDS = ("judged on", "newest", "code", "expected to fail")
# The number of digits that are shown of a hash; entries of equal code show equal digits.
SHORT_HASH = 8
_OF_DEVICE = ("name", "memory_gib", "kind", "peak_gbps")
_OF_ENTRY = ("key", "gbps", "utilization", "bytes_read", "bytes_written", "method", "xfail", "note", "line")


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(act: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        one = actions.add_parser(act.__name__, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.add_argument("--json", action="store_true", help="print JSON")
        one.set_defaults(act=act)
        return one

    one = action(show, "list the entries: figures, runs, noise, and the drops that are detected")
    one.add_argument("path", type=Path, metavar="PATH", help="a baseline file, or a folder of them")
    one.add_argument("keys", nargs="*", metavar="KEY", help="entries to show: a key, or a pattern with * and ?")

    one = action(validate, "check files and list every problem (exit status 2)")
    one.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="baseline files, or folders of them")

    one = action(diff, "show what changed from one file or folder to another, PTX included (exit status 1)")
    one.add_argument("old", type=Path, metavar="OLD", help="a baseline file, or a folder of them")
    one.add_argument("new", type=Path, metavar="NEW", help="another")

    one = action(prune, "remove entries")
    one.add_argument("path", type=Path, metavar="PATH", help="a baseline file, or a folder of them")
    one.add_argument("keys", nargs="*", metavar="KEY", help="entries to remove: a key, or a pattern with * and ?")
    one.add_argument(
        "--not-in",
        type=Path,
        action="append",
        default=[],
        metavar="RUN.json",
        help="remove entries that this full run did not measure (with KEY: only those of KEY; may be repeated)",
    )
    one.add_argument("--dry-run", action="store_true", help="show what would be removed, change nothing")

    one = action(init, "make a file without entries for this machine's device")
    one.add_argument("path", type=Path, metavar="PATH", help="the new file, or a folder for it")
    one.add_argument("--device", default="auto", metavar="NAME", help=f"{known_names()} (default: auto)")


def run(options: argparse.Namespace) -> int:
    status: int = options.act(options)
    return status


# ---- show: an entry's figures, their spread, and the drops that the gate can find with them --------------------------


class Shown(NamedTuple):
    """Hold an entry, its facts for programs, and whether noise hides a drop of its tolerance."""

    entry: Entry
    facts: dict[str, Any]
    is_blunt: bool


def show(options: argparse.Namespace) -> int:
    baselines = load_all(options.path)
    wanted = set(matching([key for baseline in baselines for key in baseline.entries], options.keys))
    shown = []
    for baseline in baselines:
        # Without the device's kind the host's prior applies, which is the larger one: the command promises no more.
        on_host = timed_on(baseline.device.kind if baseline.device else None) == "host"
        entries = [entry for key, entry in baseline.entries.items() if key in wanted]
        shown.append((baseline, [_shown(baseline, entry, on_host) for entry in entries]))
    if options.json:
        print_json({"files": [_plain(baseline, rows) for baseline, rows in shown]})
    else:
        print("\n\n".join("\n".join(_lines(baseline, rows)) for baseline, rows in shown))
    return 0


def _shown(baseline: Baseline, entry: Entry, on_host: bool) -> Shown:
    figure: Metric = entry.judged_on or "gbps"
    tolerance = tolerance_of(None, entry, baseline, DEFAULTS.tolerance)
    if reference_of(entry, figure, on_host) is None:
        figure = "gbps"
    reference = reference_of(entry, figure, on_host)
    spread = detects = advised = None
    is_blunt = False
    if reference is not None and not entry.counts:
        spread = reference.spread
        detects = reference.detects(tolerance, DEFAULTS.confirm)
        advised = runs_needed(reference, tolerance, DEFAULTS.confirm) if reference.runs else DEFAULTS.runs
        is_blunt = not reference.resolves(tolerance, DEFAULTS.confirm)
    values = [value for run in entry.runs if (value := metrics_of_run(run).of(figure)) is not None]
    facts: dict[str, Any] = {
        **{name: getattr(entry, name) for name in _OF_ENTRY},
        "judged_on": "counts" if entry.counts else figure,
        # Standard deviations of ln(figure) between processes: of the entry's runs and the prior; of its runs alone.
        "spread": spread,
        "spread_of_runs": stdev(map(log, values)) if len(values) > 1 else None,
        "tolerance": tolerance,
        "detects": None if detects is None else drop_of_log(detects),
        "since_anchor": since_anchor(entry, figure),
        "runs": len(entry.runs),
        "gbps_of_runs": [run.gbps for run in entry.runs],
        "runs_advised": advised if is_blunt else None,
        "code": dict(entry.code),
        "newest_at": entry.runs[-1].at if entry.runs else None,
    }
    return Shown(entry, facts, is_blunt)


def _lines(baseline: Baseline, rows: Sequence[Shown]) -> list[str]:
    device = baseline.device
    about = device_words(device.name, device.memory_gib, device.peak_gbps) if device else ["any device"]
    about.append(counted(len(baseline.entries), "entry"))
    about += [f"tolerance {format_percent(baseline.tolerance, 1)}"] if baseline.tolerance is not None else []
    lines = [f"baseline {printable(baseline.path or '')}: {', '.join(about)}"]
    if rows:
        lines += aligned(_HEADINGS, [_cells(row) for row in rows], left=_WORDS, width=terminal_width())
    blunt = [row for row in rows if row.is_blunt]
    if blunt:
        # The runs that would suffice, and the number of entries for which no number of runs would.
        advised = [runs for row in blunt if (runs := row.facts["runs_advised"]) is not None]
        advice = f": --bandwidth-update -o bandwidth_runs={max(advised)} adds runs" if advised else ""
        if hopeless := len(blunt) - len(advised):
            advice += f"; for {hopeless} of them " if advised else ": "
            advice += "even 20 runs are not enough: raise the tolerance or quiet the machine"
        visible = sum(row.facts["spread"] is not None for row in rows)
        lines.append(f"{len(blunt)} of {visible} are too noisy for their tolerance{advice}")
    return lines


def _cells(row: Shown) -> tuple[str, ...]:
    entry, facts = row.entry, row.facts
    # The hash that identifies the code: PTX for counts, machine code for a timed kernel.
    names = ("ptx", "function") if entry.counts else ("sass", "function", "ptx")
    return (
        entry.key,
        "" if entry.gbps is None else digits(entry.gbps),
        "" if entry.utilization is None else format_percent(entry.utilization, 1),
        facts["judged_on"],
        str(len(entry.runs)) if entry.runs else "" if entry.counts else "by hand",
        "" if facts["spread"] is None else format_percent(facts["spread"], 2),
        "" if entry.counts else format_percent(facts["tolerance"], 1),  # counts are judged exactly
        "" if facts["detects"] is None else f"≥ {format_percent(facts['detects'], 1)}",
        "" if facts["since_anchor"] is None else f"{facts['since_anchor'] * 100:+.1f} %",
        facts["newest_at"] or "",
        next((entry.code[name][:SHORT_HASH] for name in names if name in entry.code), ""),
        entry.xfail or "",
    )


def _plain(baseline: Baseline, rows: Sequence[Shown]) -> dict[str, object]:
    device = baseline.device and {name: getattr(baseline.device, name) for name in _OF_DEVICE}
    entries = [row.facts for row in rows]
    return {"path": baseline.path, "device": device, "tolerance": baseline.tolerance, "entries": entries}


# ---- the files at a path: list every problem, remove entries, make empty ones --------------------------------


def files_at(path: Path) -> list[Path]:
    """Return the file itself, or the files of a folder. Raises UsageError for a path without any."""
    files = locate.files_at(path)
    if not files:
        raise UsageError(f"{path}: found no such file, or a folder without .yaml files, expected baselines")
    return files


def load_all(path: Path) -> list[Baseline]:
    """Load the baselines at a path. Raises BaselineError for bad files, UsageError if there is no file."""
    return [baseline_files.load(file) for file in files_at(path)]


def matching(keys: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the keys that match a pattern, in their order; all of them without patterns.

    Only ``*`` and ``?`` are wildcards: brackets belong to the names of parametrized tests.
    Raises UsageError for a pattern that matches no key, since it is probably misspelt.
    """
    all_keys = list(keys)
    if not patterns:
        return all_keys
    wanted: set[str] = set()
    for pattern in patterns:
        form = re.compile("".join({"*": ".*", "?": "."}.get(c) or re.escape(c) for c in pattern), re.DOTALL)
        found = {pattern} & set(all_keys) or {key for key in all_keys if form.fullmatch(key)}
        if not found:
            raise UsageError(f"found no entry like {pattern!r}, expected a key or a pattern with * and ?")
        wanted |= found
    return [key for key in all_keys if key in wanted]


@dataclass(frozen=True, slots=True)
class _Checked:
    path: Path
    baseline: Baseline | None
    problems: tuple[Problem, ...]

    @property
    def device(self) -> BaselineDevice | None:
        return self.baseline.device if self.baseline else None


def validate(options: argparse.Namespace) -> int:
    checked = [one for path in options.paths for one in _checked_at(path)]
    problems = [problem for one in checked for problem in one.problems]
    if options.json:
        files = [
            {
                "path": str(one.path),
                "valid": not one.problems,
                "device": one.device.name if one.device else None,
                "entries": len(one.baseline.entries) if one.baseline else None,
                "problems": [{"line": problem.line or None, "message": problem.message} for problem in one.problems],
            }
            for one in checked
        ]
        print_json({"valid": not problems, "files": files})
        return 2 if problems else 0
    for one in checked:
        lines = [str(problem) for problem in one.problems]
        if one.baseline is not None and not lines:
            note = [] if one.baseline.note is None else [one.baseline.note]
            device = one.device.name if one.device else "any device"
            lines = [*note, f"{one.path}: valid, {counted(len(one.baseline.entries), 'entry')}, {device}"]
        print("\n".join(map(printable, lines)))
    return 2 if problems else 0


def _checked_at(path: Path) -> list[_Checked]:
    """Check the files at a path. A path without files is itself a problem; other paths are still checked.

    Two files of one device are a problem: a run could not choose between them.
    """
    try:
        files = files_at(path)
    except UsageError as error:
        return [_Checked(path, None, (Problem(str(path), 0, str(error).removeprefix(f"{path}: ")),))]
    checked: list[_Checked] = []
    first: dict[BaselineDevice, Path] = {}
    for file in files:
        try:
            baseline = baseline_files.load(file)
            one = _Checked(file, baseline, tuple(problems_of(file, baseline.entries.values())))
        except BaselineError as error:
            one = _Checked(file, None, error.problems)
        if one.device is not None and (other := first.setdefault(one.device, file)) != file:
            message = f"found the device {one.device.name!r}, expected it in one file only: {other} is for it, too"
            one = replace(one, problems=(Problem(str(file), one.device.line or 1, message),))
        checked.append(one)
    return checked


def prune(options: argparse.Namespace) -> int:
    """Remove entries, then the code files that no baseline in the folder names; --dry-run only lists them.

    Raises UsageError where a pattern, a run or a device does not fit.
    """
    baselines = load_all(options.path)
    keys = [key for baseline in baselines for key in baseline.entries]
    chosen = bool(options.keys or options.not_in)
    wanted = set(matching(keys, options.keys) if chosen else ())
    if options.not_in:
        baselines, measured = _measured(options.path, baselines, options.not_in)
        wanted -= measured
    if not chosen and not any(unused_code(Path(one.path or "")) for one in baselines):
        raise UsageError("found nothing to remove, expected keys, patterns or --not-in RUN.json")
    files: list[dict[str, Any]] = []
    foreseen: set[Path] = set()
    for baseline in baselines:
        path, removed = Path(baseline.path or ""), [key for key in baseline.entries if key in wanted]
        kept = len(baseline.entries) - len(removed)
        if options.dry_run:
            # A dry run names code files that a folder's baselines share with the first baseline only.
            unused = set(unused_code(path, removed)) - foreseen
            foreseen |= unused
        else:
            removed = baseline_files.remove(path, removed) if removed else []
            unused = set(prune_code(path))
        files.append({"path": str(path), "removed": removed, "kept": kept, "code_removed": len(unused)})
    if options.json:
        print_json({"dry_run": options.dry_run, "files": files})
        return 0
    did = "would remove" if options.dry_run else "removed"
    for one in files:
        print(f"baseline {printable(one['path'])}: {did} {len(one['removed'])}, {one['kept']} stay")
        if one["code_removed"]:
            print(f"{did} {counted(one['code_removed'], 'file')} of code that no entry names")
        for key in one["removed"]:
            print(f"- {printable(key)}")
    return 0


def _measured(path: Path, baselines: Sequence[Baseline], runs: Sequence[Path]) -> tuple[list[Baseline], set[str]]:
    """Return the baseline of the device that the runs measured, and the keys of the tests in the runs."""
    loaded = {baseline.path: baseline for baseline in baselines}
    measured: set[str] = set()
    files = set()
    for run_path in runs:
        document, outcomes = load_run(run_path)
        identity = identity_of(document["device"])
        file = baseline_files.find_file(path, identity)
        # A folder may lack a baseline for this device: reading the name that it would have raises the error.
        baseline = loaded.get(str(file)) or baseline_files.load(file)
        baseline_files.check_device(baseline, identity)
        files.add(file)
        measured.update(outcome.key for outcome in outcomes)
    if len(files) > 1:
        raise UsageError(f"found runs of {len(files)} devices, expected runs of one: prune its file first")
    if baseline.entries and not measured & baseline.entries.keys():
        raise UsageError(
            f"{runs[0]}: found none of the {len(baseline.entries)} entries of {baseline.path} measured, expected a "
            "full run of these tests: nothing was removed"
        )
    return [baseline], measured


def init(options: argparse.Namespace) -> int:
    identity = open_device(options.device).identity
    made = baseline_files.init(baseline_files.find_file(options.path, identity), identity)
    if options.json:
        device = {"name": identity.name, "memory_gib": identity.memory_gib, "kind": identity.kind}
        print_json({"path": str(made), "device": device})
    else:
        print(printable(f"wrote {made}: {identity.name}, no entries yet; --bandwidth-update fills it"))
    return 0


# ---- diff: the entries of two files, their figures, their limits, and the code that they ran -------------------------

# Not listed as fields: columns of their own show GB/s and runs.
_APART = ("bandwidth", "runs")
# For all changed kernels together, in the output for people.
MOST_DIFF_LINES = 400
# The number of entries that are named for a shared change.
MOST_NAMED = 3
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}

# The differences of two files: their names, `header` and `entries`.
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
            print("\n".join(_diff_lines(one)))
    return int(any(one["header"] or one["entries"] for one in compared))


def _compared_all(old: Path, new: Path) -> list[Files]:
    """Compare two files, or the files of two folders by name; a file may be in one folder only. Raises UsageError."""
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
    """Return the differences of two files, for programs. A file that does not exist counts as empty."""
    ptx = _ptx_changes(old_file, new_file)
    facts: dict[str, tuple[object, object]] = {"tolerance": (old.tolerance, new.tolerance)}
    for name in _OF_DEVICE:
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
        # Either code folder may hold it. If both lack it, the error names the folder of its own baseline.
        with suppress(BaselineError):
            return KeptCode(other).ptx(name)
        return KeptCode(own).ptx(name)

    @cache
    def between(then: str, now: str) -> CodeChange:
        return ptx_change(lambda: read(then, old, new), lambda: read(now, new, old))

    return between


def _difference(key: str, before: Entry | None, after: Entry | None, ptx: PtxChanges) -> dict[str, Any] | None:
    """Return how an entry differs between two files, for the JSON form; None where both files agree.

    fields: name → old and new text as files hold it, None where a side has none. change: of GB/s, as a fraction.
    code_changes: what surely changed in the code that ran, in words. code_diff, code_unknown: how the kernel's PTX did.
    """
    if before == after:
        return None
    fields: dict[str, tuple[str | None, str | None]] = {}
    in_words: tuple[str, ...] = ()
    change = NO_CHANGE
    if before is not None and after is not None:
        old, new = entry_fields(before, RECORDED), entry_fields(after, RECORDED)
        names = [name for name in dict.fromkeys((*old, *new)) if name not in _APART and old.get(name) != new.get(name)]
        fields = {name: (old.get(name), new.get(name)) for name in names}
        in_words = identity_of_plain(after.code).changes_since(identity_of_plain(before.code))
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
        "code_changes": tuple(filter(None, (*in_words, change.accesses))),
        "code_diff": change.diff,
        "code_unknown": change.unknown,
    }


def _diff_lines(compared: Files) -> list[str]:
    differences = compared["entries"]
    if not compared["header"] and not differences:
        return [f"{printable(compared['old'] or '')} and {printable(compared['new'] or '')} have the same entries"]
    lines = []
    for name, pair in compared["header"].items():
        before, after = ("none" if value is None else printable(str(value)) for value in pair)
        lines.append(f"{name}: {before} → {after}")
    if differences:
        headings = ("entry", "GB/s before", "GB/s after", "change", "runs", "what else")
        lines += aligned(
            headings, [_diff_cells(one) for one in differences], left=("what else",), width=terminal_width()
        )
    lines += _code_lines(differences)
    kinds = Counter(one["kind"] for one in differences)
    lines.append(", ".join(f"{kinds[kind]} {kind}" for kind in _SIGNS))
    return lines


def _code_lines(differences: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the entries of changed code and their changes, equal changes together; at most a page or two of PTX."""
    alike: dict[tuple[tuple[str, ...], str, str | None], list[str]] = {}
    for one in differences:
        if one["code_changes"]:
            alike.setdefault((one["code_changes"], one["code_diff"], one["code_unknown"]), []).append(one["key"])
    left = MOST_DIFF_LINES
    for (in_words, ptx, unknown), keys in alike.items():
        yield printable(f"code of {listed(keys, MOST_NAMED)}: {'; '.join(in_words)}")
        if unknown is not None:
            yield f"  {printable(unknown)}"
        diff = ptx.splitlines()
        yield from (f"  {printable(line)}" for line in diff[:left])
        if len(diff) > left:
            yield f"  … {len(diff) - left} more lines, which --json shows"
        left = max(left - len(diff), 0)


def _diff_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    runs = [str(count) for count in (one["runs_before"], one["runs_after"]) if count is not None]
    fields = {name: f"{name} {old or 'none'} → {new or 'none'}" for name, (old, new) in one["fields"].items()}
    if "code" in fields and one["code_changes"]:
        fields["code"] = "code changed"  # people cannot read hashes; lines below show the change
    return (
        f"{_SIGNS[one['kind']]} {one['key']}",
        digits(one["gbps_before"]) if one["gbps_before"] else "",
        digits(one["gbps_after"]) if one["gbps_after"] else "",
        "" if one["change"] is None else f"{one['change'] * 100:+.1f} %",
        " → ".join(dict.fromkeys(runs)),
        "; ".join(fields.values()),
    )
