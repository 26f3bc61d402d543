"""Look into baseline files and keep them: show, validate, compare, prune them, make empty ones.

Exit status 0: fine; 1: `diff` found a difference; 2: unusable input, an invalid file for `validate` included.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from math import log
from pathlib import Path
from statistics import stdev
from typing import Any, NamedTuple

from pytest_bandwidth.cli.baseline_diff import diff
from pytest_bandwidth.cli.baseline_files import init, load_all, matching, prune, validate
from pytest_bandwidth.cli.main import device_words, print_json, terminal_width
from pytest_bandwidth.devices.open import known_names, timed_on
from pytest_bandwidth.domain.baseline import Baseline, Entry, Metric
from pytest_bandwidth.domain.measured.metrics import metrics_of_run
from pytest_bandwidth.domain.units import counted, digits, drop_of_log, format_percent
from pytest_bandwidth.judging.limits import tolerance_of
from pytest_bandwidth.judging.stored import reference_of, runs_needed, since_anchor
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.reports.text_safe import aligned, printable

# The options' own defaults: what the gate uses where neither marker nor baseline says otherwise.
DEFAULTS = Settings()
_HEADINGS = (
    *("entry", "GB/s", "of peak", "judged on", "runs", "spread"),
    *("tolerance", "detects", "since anchor", "newest", "code", "expected to fail"),
)
_WORDS = ("judged on", "newest", "code", "expected to fail")
# So much of a hash is shown; entries of equal code show the same.
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

    one = action(diff, "say what changed from one file or folder to another, PTX included (exit status 1)")
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
        help="remove what this full run did not measure (with KEY: only where both hold; may be repeated)",
    )
    one.add_argument("--dry-run", action="store_true", help="say what would go, change nothing")

    one = action(init, "make a file without entries for this machine's device")
    one.add_argument("path", type=Path, metavar="PATH", help="the new file, or a folder for it")
    one.add_argument("--device", default="auto", metavar="NAME", help=f"{known_names()} (default: auto)")


def run(options: argparse.Namespace) -> int:
    status: int = options.act(options)
    return status


# ---- what a baseline knows: figures, how far they scatter, which drops the gate can see by them ----------------------


class Shown(NamedTuple):
    """Hold an entry, what programs are shown of it, and whether noise hides a drop of its tolerance."""

    entry: Entry
    facts: dict[str, Any]
    is_blunt: bool


def show(options: argparse.Namespace) -> int:
    baselines = load_all(options.path)
    wanted = set(matching([key for baseline in baselines for key in baseline.entries], options.keys))
    shown = []
    for baseline in baselines:
        # Without the device's kind the larger prior, so that no more is promised than holds on a host.
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
        is_blunt = not reference.sees(tolerance, DEFAULTS.confirm)
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
        # How many runs would do, and for how many entries none would.
        advised = [runs for row in blunt if (runs := row.facts["runs_advised"]) is not None]
        advice = f": --bandwidth-update -o bandwidth_runs={max(advised)} adds runs" if advised else ""
        if hopeless := len(blunt) - len(advised):
            advice += f"; for {hopeless} of them " if advised else ": "
            advice += "no number of runs up to 20 would do: raise the tolerance or quiet the machine"
        visible = sum(row.facts["spread"] is not None for row in rows)
        lines.append(f"{len(blunt)} of {visible} are too noisy for their tolerance{advice}")
    return lines


def _cells(row: Shown) -> tuple[str, ...]:
    entry, facts = row.entry, row.facts
    # The hash that code is known by: what is counted by its PTX, a kernel by machine code.
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
