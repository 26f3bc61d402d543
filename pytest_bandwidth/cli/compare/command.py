"""Compare saved runs: of one device by the gate's rule, each file as one fresh process; of several as a table.

Exit status 0: fine, or nothing to fail on was named; 1: what --fail-on names was found; 2: unusable input, among it
runs that allow no verdict although --fail-on asks for one.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import parse_fraction
from pytest_bandwidth.outcomes.devices import model_of
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.storage.saved_run import load_run


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
        from pytest_bandwidth.cli.compare.devices import compare_devices

        return compare_devices(options, loaded)
    from pytest_bandwidth.cli.compare.runs import compare_runs

    return compare_runs(options, loaded, tolerance)


def _refuse_repeated(loaded: Sequence[tuple[Path, Mapping[str, Any], Sequence[Outcome]]]) -> None:
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
        value = parse_fraction(text)
    except ValueError as error:
        raise UsageError(f"--tolerance: {error}") from None
    if value == 0:
        raise UsageError(f"--tolerance: found {text!r:.40}, expected more than 0 %")
    return value
