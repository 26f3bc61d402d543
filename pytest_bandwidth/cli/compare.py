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

from pytest_bandwidth.cli.output import print_json, terminal_width
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import counted, digits, format_gbps, format_percent
from pytest_bandwidth.domain.values import positive_fraction
from pytest_bandwidth.outcomes.devices import model_of
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.tables import aligned
from pytest_bandwidth.reports.text_safe import printable
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
    tolerance = _tolerance(options.tolerance)
    loaded = [(path, *load_run(path)) for path in options.runs]
    _refuse_repeated(loaded)
    devices = {model_of(document["device"]) for _, document, _ in loaded}
    if len(devices) > 1:
        return compare_devices(options, loaded)
    from pytest_bandwidth.cli.compare_runs import compare_runs  # settings and judging are kept out of start-up

    return compare_runs(options, loaded, tolerance)


def _refuse_repeated(loaded: Loaded) -> None:
    """Refuse one run given twice, which would count as two processes that agree perfectly."""
    first: dict[str, Path] = {}
    for path, document, _ in loaded:
        run_id = document["run_id"]
        other = first.setdefault(run_id, path)
        if other is not path:
            raise UsageError(f"{path}: found the run {run_id!r:.60} again, expected another than {other}'s")


def _tolerance(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return positive_fraction(text)
    except ValueError as error:
        raise UsageError(f"--tolerance: {error}") from None


@dataclass(frozen=True, slots=True)
class _Device:
    """Hold one device's runs: the medians of GB/s and of the share of its peak by key."""

    facts: Mapping[str, Any]
    runs: int
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
    names = ", ".join(str(device.facts["name"]) for device in devices)
    for option, value in (("--fail-on", options.fail_on), ("--baseline", options.baseline)):
        if value is not None:
            raise UsageError(f"{option} {value}: found runs of {len(devices)} devices ({names}), expected one device's")
    keys = list(dict.fromkeys(key for device in devices for key in device.gbps))
    if options.json:
        print_json({"verdict": None, "devices": [_plain_device(d) for d in devices], "tests": _tests(devices, keys)})
    else:
        print("\n".join(_lines(devices, keys)))
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
    return _Device(
        group[0][0],
        len(group),
        {key: median(values) for key, values in gbps.items()},
        {key: median(values) for key, values in shares.items()},
    )


def _lines(devices: Sequence[_Device], keys: Sequence[str]) -> list[str]:
    lines = [f"[{i}] {_described(device)}" for i, device in enumerate(devices, 1)]
    headings = ["test"]
    for i in range(1, len(devices) + 1):
        headings += [f"[{i}] GB/s", f"[{i}] of peak", *([] if i == 1 else [f"[{i}] ÷ [1]"])]
    rows = [[key, *(cell for i in range(len(devices)) for cell in _cells(devices, i, key))] for key in keys]
    lines += aligned(headings, rows, width=terminal_width())
    return [*lines, "different devices: no verdict"]


def _described(device: _Device) -> str:
    facts = device.facts
    peak = facts.get("peak")
    about = [printable(facts["name"])]
    about += [f"{facts['memory_gib']} GiB"] if facts.get("memory_gib") is not None else []
    about += [f"peak {format_gbps(peak['gbps'])}"] if peak else []
    return ", ".join([*about, counted(device.runs, "run")])


def _cells(devices: Sequence[_Device], index: int, key: str) -> list[str]:
    device, first = devices[index], devices[0]
    gbps, share = device.gbps.get(key), device.utilization.get(key)
    cells = ["" if gbps is None else digits(gbps), "" if share is None else format_percent(share)]
    if index == 0:
        return cells
    ratio = _ratio(gbps, first.gbps.get(key))
    return [*cells, "" if ratio is None else f"{ratio:.2f}"]


def _ratio(gbps: float | None, of: float | None) -> float | None:
    return gbps / of if gbps is not None and of else None


def _plain_device(device: _Device) -> dict[str, Any]:
    facts = device.facts
    return {
        **{name: facts.get(name) for name in ("name", "memory_gib", "kind")},
        "peak_gbps": facts["peak"]["gbps"] if facts.get("peak") else None,
        "runs": device.runs,
    }


def _tests(devices: Sequence[_Device], keys: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "gbps": [device.gbps.get(key) for device in devices],
            "utilization": [device.utilization.get(key) for device in devices],
            "ratio": [_ratio(device.gbps.get(key), devices[0].gbps.get(key)) for device in devices],
        }
        for key in keys
    ]
