"""On this very machine: how often identical code would raise an alarm, and how many real drops would be found.

Fresh processes measure the shipped triad unchanged and slowed: a drop of 5 % is injected by letting the kernel do
1/(1 − 5 %) times the work that it declares, in the same arrays. The gate's rule then judges random
divisions of those processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median, stdev
from typing import Any

from pytest_bandwidth.commands.tables import print_json
from pytest_bandwidth.devices.opening import open_device
from pytest_bandwidth.domain.baseline import Figure, Run
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.figures import FIGURES
from pytest_bandwidth.domain.resampling import Rates, rates, upper_limit
from pytest_bandwidth.domain.units import digits, format_percent, parse_fraction
from pytest_bandwidth.orphans import output_of

TOLERANCES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.10)
BASELINE_RUNS = (1, 3, 5, 10)
CONFIRM = 3
# A recommendation holds to this: next to no false alarm, and nearly every drop of twice the tolerance found.
MOST_FALSE_ALARMS, LEAST_FOUND = 0.005, 0.95
PROCESS_SECONDS = 300


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cuda, cuda:N or cpu (default: auto)")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="fresh processes (default: 20)")
    parser.add_argument(
        "--drop", action="append", metavar="P", help="drop to inject, e.g. 5%%; may be repeated (default: 3%% 5%% 10%%)"
    )
    parser.add_argument("--mib", type=int, default=256, metavar="N", help="MiB of each of three arrays (default: 256)")
    parser.add_argument("--json", action="store_true", help="print every process's figures and the table as JSON")


def run(options: argparse.Namespace) -> int:
    drops = tuple(dict.fromkeys(_drop(text) for text in options.drop or ("3%", "5%", "10%")))
    least = max(BASELINE_RUNS[:3]) + 1 + CONFIRM
    if options.runs < least or options.runs > 1000:
        raise UsageError(f"--runs {options.runs}: expected {least} to 1000 processes")
    if not 1 <= options.mib <= 65_536:
        raise UsageError(f"--mib {options.mib}: expected 1 to 65536")
    identity = open_device(options.device).identity
    seen = _measure(options.device, options.runs, options.mib, drops)
    tables = {figure: _table(seen, drops, figure, identity.on_host) for figure in FIGURES}
    if options.json:
        print_json({"device": identity.name, "runs": seen, "rates": _plain(tables)})
        return 0
    print("\n".join(_report(identity.name, seen, tables, drops)))
    return 0


def _drop(text: str) -> float:
    try:
        value = parse_fraction(text)
    except ValueError as error:
        raise UsageError(f"--drop: {error}") from None
    if not 0 < value <= 0.5:
        raise UsageError(f"--drop {text}: expected more than 0 % and at most 50 %")
    return value


def _measure(device: str, runs: int, mib: int, drops: Sequence[float]) -> dict[str, list[dict[str, float]]]:
    """Figures by drop ("0" for identical code), one of each a process."""
    seen: dict[str, list[dict[str, float]]] = {str(drop): [] for drop in (0.0, *drops)}
    begun = time.monotonic()
    for i in range(runs):
        for name, figures in _one_process(device, mib, drops, i).items():
            seen[name].append(figures)
        _progress(i + 1, runs, time.monotonic() - begun)
    return seen


def _one_process(device: str, mib: int, drops: Sequence[float], turn: int) -> dict[str, dict[str, float]]:
    arguments = (device, str(mib), str(turn), *map(str, drops))
    try:
        printed = output_of("pytest_bandwidth.commands.selftest_process", *arguments, seconds=PROCESS_SECONDS)
    except subprocess.TimeoutExpired:
        raise BandwidthError(f"a process did not end in {PROCESS_SECONDS} s: try a smaller --mib") from None
    except BandwidthError as error:
        raise BandwidthError(f"a process measured nothing: {error}") from None
    found: dict[str, dict[str, float]] = json.loads(printed)
    return found


def _progress(done: int, of: int, seconds: float) -> None:
    if not sys.stderr.isatty():
        return
    width = 30
    filled = width * done // of
    left = seconds / done * (of - done)
    end = "\r\x1b[2K" if done == of else ""
    print(
        f"\r[{'#' * filled}{'.' * (width - filled)}] {done}/{of}, {left:.0f} s left {end}",
        end="",
        file=sys.stderr,
        flush=True,
    )


def _table(
    seen: dict[str, list[dict[str, float]]], drops: Sequence[float], figure: Figure, on_host: bool
) -> list[Rates]:
    runs = {
        float(drop): [Run(gbps=f["gbps"], probe_gbps=f["probe_gbps"], relative=f["relative"]) for f in figures]
        for drop, figures in seen.items()
    }
    return [
        rates(
            runs[0.0],
            {drop: runs[drop] for drop in drops},
            figure=figure,
            tolerance=tolerance,
            baseline_runs=k,
            confirm=CONFIRM,
            on_host=on_host,
        )
        for tolerance in TOLERANCES
        for k in BASELINE_RUNS
        if len(runs[0.0]) >= k + 1 + CONFIRM
    ]


def _report(
    name: str, seen: dict[str, list[dict[str, float]]], tables: dict[Figure, list[Rates]], drops: Sequence[float]
) -> list[str]:
    same = seen["0.0"]
    lines = [f"{name}: {len(same)} fresh processes of identical code"]
    for figure, title in (("gbps", "GB/s"), ("relative", "share of the probe")):
        values = [f[figure] for f in same]
        spread = stdev(values) / median(values)
        lines.append(f"  {title:18} median {digits(median(values))}, between-process sd {format_percent(spread, 2)}")
    lines.append("")
    heading = "".join(f"  found {format_percent(d):>5}" for d in drops)
    lines.append(f"  judged on   tolerance  baseline runs  false alarms{heading}")
    for figure in FIGURES:
        for row in tables[figure]:
            found = "".join(f"  {format_percent(row.found[d], 1):>11}" for d in drops)
            alarms = format_percent(row.false_alarms, 2)
            lines.append(
                f"  {figure:10}  {format_percent(row.tolerance):>9}  {row.baseline_runs:>13}  {alarms:>12}{found}"
            )
    lines += ["", recommendation(tables["relative"], len(same))]
    return lines


def recommendation(table: Sequence[Rates], processes: int) -> str:
    """The smallest tolerance and the fewest baseline runs that hold, in plain words."""
    for row in table:
        larger = [drop for drop in row.found if drop > row.tolerance]
        found = [drop for drop in larger if row.found[drop] >= LEAST_FOUND]
        if row.false_alarms <= MOST_FALSE_ALARMS and found:
            return (
                f"Recommended: --bandwidth-tolerance={row.tolerance * 100:g}% and --bandwidth-runs={row.baseline_runs}:"
                f" drops of {format_percent(min(found))} are found, identical code stays green. "
                f"{_certainty(processes, row.baseline_runs)}"
            )
    return (
        "Recommended: none of the tried settings finds these drops reliably without false alarms on this machine: "
        "quiet it (other users, clocks), or inject larger drops with --drop to see what it can find."
    )


def _certainty(processes: int, baseline_runs: int) -> str:
    """What so few processes cannot rule out: only divisions that share none of them are independent cases."""
    cases = processes // (baseline_runs + 1 + CONFIRM)
    unseen = format_percent(upper_limit(0, cases))
    return (
        f"{processes} processes make {cases} independent {'case' if cases == 1 else 'cases'}: false alarms in up to "
        f"{unseen} of runs could have gone unseen (95 % confidence); --runs lowers that."
    )


def _plain(tables: dict[Figure, list[Rates]]) -> dict[str, list[dict[str, Any]]]:
    return {
        figure: [
            {
                "tolerance": r.tolerance,
                "baseline_runs": r.baseline_runs,
                "false_alarms": r.false_alarms,
                "found": {str(d): share for d, share in r.found.items()},
            }
            for r in table
        ]
        for figure, table in tables.items()
    }
