"""Compare saved runs: of one device by the gate's rule, each file as one fresh process; of several as a table.

Exit status 0: fine, or nothing to fail on was named; 1: what --fail-on names was found; 2: unusable input, among it
runs that allow no verdict although --fail-on asks for one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pytest_bandwidth.cli.output import device_words, print_json, terminal_width
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.statistics import median_known
from pytest_bandwidth.domain.units import counted, digits, format_percent
from pytest_bandwidth.domain.values import parsed, positive_fraction
from pytest_bandwidth.outcomes.devices import model_of
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.tables import aligned
from pytest_bandwidth.storage.saved_run import load_run

Loaded = Sequence[tuple[Path, Mapping[str, Any], Sequence[Outcome]]]


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN.json", help="documents that --bandwidth-json wrote")
    parser.add_argument(
        "--baseline",
        type=int,
        metavar="N",
        help="how many of the files, from the first, are the reference (default: 1)",
    )
    parser.add_argument(
        "--tolerance", metavar="P", help="drop that matters, e.g. 5%% (default: each test's own, from the newest file)"
    )
    parser.add_argument(
        "--fail-on",
        choices=("regressed", "strict"),
        help="exit status 1 for what fails a test (REGRESSED, MISMATCH); strict: and for what was not judged",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    if len(options.runs) < 2:
        raise UsageError(f"found {len(options.runs)} saved run, expected two or more")
    tolerance = parsed("--tolerance", options.tolerance, positive_fraction)
    loaded = [(path, *load_run(path)) for path in options.runs]
    # One run given twice would count as two processes that agree perfectly.
    first: dict[str, Path] = {}
    for path, document, _ in loaded:
        other = first.setdefault(document["run_id"], path)
        if other is not path:
            run_id = document["run_id"]
            raise UsageError(f"{path}: found the run {run_id!r:.60} again, expected another than {other}'s")
    devices = {model_of(document["device"]) for _, document, _ in loaded}
    if len(devices) > 1:
        return compare_devices(options, loaded)
    from pytest_bandwidth.cli.compare_runs import compare_runs  # settings and judging are kept out of start-up

    return compare_runs(options, loaded, tolerance)


def compare_devices(options: argparse.Namespace, loaded: Loaded) -> int:
    """Print a table of several devices, without a verdict: another device is no regression.

    Raises UsageError where a verdict was asked for.
    """
    groups: dict[tuple[Any, ...], list[tuple[Mapping[str, Any], Sequence[Outcome]]]] = {}
    for _, document, outcomes in loaded:
        groups.setdefault(model_of(document["device"]), []).append((document["device"], outcomes))
    devices = []
    for group in groups.values():
        device, _ = group[0]
        about = {name: device.get(name) for name in ("name", "memory_gib", "kind")}
        peak_gbps = device["peak"]["gbps"] if device.get("peak") else None
        devices.append({**about, "peak_gbps": peak_gbps, "runs": len(group)})
    names = ", ".join(str(device["name"]) for device in devices)
    for option, value in (("--fail-on", options.fail_on), ("--baseline", options.baseline)):
        if value is not None:
            raise UsageError(f"{option} {value}: found runs of {len(devices)} devices ({names}), expected one device's")
    figures = [_figures(outcomes for _, outcomes in group) for group in groups.values()]
    tests: list[dict[str, Any]] = []
    for key in dict.fromkeys(chain.from_iterable(figures)):
        gbps, shares = zip(*(one.get(key, (None, None)) for one in figures), strict=True)
        ratios = [one / gbps[0] if one is not None and gbps[0] else None for one in gbps]
        tests.append({"key": key, "gbps": gbps, "utilization": shares, "ratio": ratios})
    if options.json:
        print_json({"verdict": None, "devices": devices, "tests": tests})
    else:
        print("\n".join(_lines(devices, tests)))
    return 0


def _figures(runs: Iterable[Sequence[Outcome]]) -> dict[str, tuple[float | None, float | None]]:
    """Return the medians of GB/s and of the share of the peak over the runs that measured them, by key."""
    measured: dict[str, list[Outcome]] = {}
    for outcome in chain.from_iterable(runs):
        if outcome.is_valid and outcome.gbps:
            measured.setdefault(outcome.key, []).append(outcome)
    return {
        key: (median_known(one.gbps for one in found), median_known(one.of_peak for one in found))
        for key, found in measured.items()
    }


def _lines(devices: Sequence[Mapping[str, Any]], tests: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    headings = ["test"]
    rows = [[test["key"]] for test in tests]
    for i, about in enumerate(devices):
        named = f"[{i + 1}]"
        words = device_words(about["name"], about["memory_gib"], about["peak_gbps"])
        lines.append(f"{named} {', '.join([*words, counted(about['runs'], 'run')])}")
        headings += [f"{named} GB/s", f"{named} of peak", *([f"{named} ÷ [1]"] if i else [])]
        for test, cells in zip(tests, rows, strict=True):
            gbps, share, ratio = (test[name][i] for name in ("gbps", "utilization", "ratio"))
            cells += ["" if gbps is None else digits(gbps), "" if share is None else format_percent(share)]
            cells += ["" if ratio is None else f"{ratio:.2f}"] if i else []
    return [*lines, *aligned(headings, rows, width=terminal_width()), "different devices: no verdict"]
