"""Compare saved runs: of one device by the gate's rule, each file as one fresh process; of several as a table.

Exit status 0: fine, or nothing to fail on was named; 1: what --fail-on names was found; 2: unusable input, among it
runs that allow no verdict although --fail-on asks for one.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pytest_bandwidth.cli.output import device_words, print_json, terminal_width
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import counted, digits, format_percent
from pytest_bandwidth.domain.values import positive_fraction
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
    try:
        tolerance = None if options.tolerance is None else positive_fraction(options.tolerance)
    except ValueError as error:
        raise UsageError(f"--tolerance: {error}") from None
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


@dataclass(frozen=True, slots=True)
class _Device:
    """Hold what documents say about a device, and the medians of GB/s and of the share of its peak by key."""

    about: Mapping[str, Any]
    gbps: Mapping[str, float]
    utilization: Mapping[str, float]


def compare_devices(options: argparse.Namespace, loaded: Loaded) -> int:
    """Print a table of several devices, without a verdict: another device is no regression.

    Raises UsageError where a verdict was asked for.
    """
    groups: dict[tuple[Any, ...], list[tuple[Mapping[str, Any], Sequence[Outcome]]]] = {}
    for _, document, outcomes in loaded:
        groups.setdefault(model_of(document["device"]), []).append((document["device"], outcomes))
    devices = [_device(group) for group in groups.values()]
    names = ", ".join(str(device.about["name"]) for device in devices)
    for option, value in (("--fail-on", options.fail_on), ("--baseline", options.baseline)):
        if value is not None:
            raise UsageError(f"{option} {value}: found runs of {len(devices)} devices ({names}), expected one device's")
    keys = list(dict.fromkeys(key for device in devices for key in device.gbps))
    if not options.json:
        print("\n".join(_lines(devices, keys)))
        return 0
    tests = [
        {
            "key": key,
            "gbps": [device.gbps.get(key) for device in devices],
            "utilization": [device.utilization.get(key) for device in devices],
            "ratio": [_ratio(device.gbps.get(key), devices[0].gbps.get(key)) for device in devices],
        }
        for key in keys
    ]
    print_json({"verdict": None, "devices": [device.about for device in devices], "tests": tests})
    return 0


def _device(group: Sequence[tuple[Mapping[str, Any], Sequence[Outcome]]]) -> _Device:
    gbps: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    for _, outcomes in group:
        for outcome in outcomes:
            if not (outcome.is_valid and outcome.gbps):
                continue
            gbps.setdefault(outcome.key, []).append(outcome.gbps)
            if outcome.utilization is not None and outcome.utilization_of == "peak":
                shares.setdefault(outcome.key, []).append(outcome.utilization)
    facts = group[0][0]
    about = {name: facts.get(name) for name in ("name", "memory_gib", "kind")}
    about |= {"peak_gbps": facts["peak"]["gbps"] if facts.get("peak") else None, "runs": len(group)}
    return _Device(
        about,
        {key: median(values) for key, values in gbps.items()},
        {key: median(values) for key, values in shares.items()},
    )


def _lines(devices: Sequence[_Device], keys: Sequence[str]) -> list[str]:
    lines: list[str] = []
    headings = ["test"]
    rows = [[key] for key in keys]
    for i, device in enumerate(devices, 1):
        about = device.about
        words = device_words(about["name"], about["memory_gib"], about["peak_gbps"])
        lines.append(f"[{i}] {', '.join([*words, counted(about['runs'], 'run')])}")
        headings += [f"[{i}] GB/s", f"[{i}] of peak", *([] if i == 1 else [f"[{i}] ÷ [1]"])]
        for key, cells in zip(keys, rows, strict=True):
            gbps, share = device.gbps.get(key), device.utilization.get(key)
            cells += ["" if gbps is None else digits(gbps), "" if share is None else format_percent(share)]
            if i > 1:
                ratio = _ratio(gbps, devices[0].gbps.get(key))
                cells.append("" if ratio is None else f"{ratio:.2f}")
    return [*lines, *aligned(headings, rows, width=terminal_width()), "different devices: no verdict"]


def _ratio(gbps: float | None, of: float | None) -> float | None:
    return gbps / of if gbps is not None and of else None
