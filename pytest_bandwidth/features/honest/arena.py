"""Compare candidates with a reference: does each compute the same, do its work each time, and how fast is it?

REFERENCE and CANDIDATE are FILE.py (its function `run`), FILE.py::FUNCTION, or
a kernel: FILE.cu::KERNEL or FILE.ptx. A function gets the arrays and numbers of
a case, in order. It returns arrays, or writes into those that it gets, as the
reference does.

The file of the reference yields the cases, each a name and the arguments:

    def inputs(bandwidth):
        for n in (1000, 2**24):
            yield f"n={n}", (bandwidth.random(n), bandwidth.random(n))

    def run(x, y):
        return 2 * x + y

or --inputs names a file of cases, as kernels need it for grid and block:

    - name: small
      args:
        y: {shape: 1024, role: out}
        x: {shape: [1024], dtype: float32, distribution: signed}
        n: {value: 1024, dtype: int64}
      grid: 4
      block: 256

role is in, out or inout; distribution is one of `bandwidth.random`; shared_mem
is in bytes. Each candidate runs in a process of its own. That is no sandbox:
put code that you do not trust into a container without network.

Exit status 0: every candidate is correct and honest; 1: some candidate is not;
2: unusable input, or the reference fails.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from pytest_bandwidth.cli.output import json_text, print_json, terminal_width, write_output
from pytest_bandwidth.devices.open import known_names
from pytest_bandwidth.domain import values
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import CONFIDENCE
from pytest_bandwidth.domain.units import format_percent, parse_bytes
from pytest_bandwidth.domain.values import parsed
from pytest_bandwidth.evidence.processes.start_and_end import signals_as_interrupts
from pytest_bandwidth.features.honest.arena_inputs import read_cases
from pytest_bandwidth.features.honest.arena_rounds import Arena, Row, side_of
from pytest_bandwidth.reports.tables import aligned
from pytest_bandwidth.reports.text_safe import printable_sentence
from pytest_bandwidth.storage.atomic import FileForm, refuse_foreign

FORM = FileForm((".json",), r'\{\s*"schema": \d+,\s*"reference":')
_UNKNOWN = "–"
_WORDS = {True: "yes", False: "no", None: _UNKNOWN}
_error = values.fitting(float, lambda value: 0 <= value < float("inf"), "a number of at least 0")


def declare(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("reference", metavar="REFERENCE", help="what every candidate has to compute")
    parser.add_argument("candidates", metavar="CANDIDATE", nargs="+", help="what is compared with it")
    parser.add_argument("--inputs", type=Path, metavar="FILE", help="YAML: a list of cases (default: the reference's)")
    parser.add_argument("--device", default="auto", metavar="NAME", help=f"{known_names()} (default: auto)")
    parser.add_argument("--rtol", metavar="X", help="largest relative error (default: by dtype)")
    parser.add_argument("--atol", metavar="X", help="largest absolute error (default: by dtype)")
    parser.add_argument("--max-time", metavar="S", help="stop a measurement after S seconds (default: 1)")
    parser.add_argument(
        "--busy-processors",
        metavar="N",
        help="processors that others may use of a host before its figures are invalid, as bandwidth_busy_processors",
    )
    parser.add_argument("--timeout", metavar="S", default="120", help="end a case after S seconds (default: 120)")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory that a process may take, such as 8GiB; no limit on a GPU, whose driver reserves more "
        "(default: what is free)",
    )
    parser.add_argument("--json", metavar="FILE", help="write JSON; - prints it alone")


def run(options: argparse.Namespace) -> int:
    if len(set(options.candidates)) < len(options.candidates):
        raise UsageError("found a candidate twice, expected each once")
    arena = Arena(
        side_of(options.reference),
        {name: side_of(name) for name in options.candidates},
        None if options.inputs is None else read_cases(options.inputs),
        options.device,
        seconds=parsed("--timeout", options.timeout, values.seconds),
        memory=parsed("--memory", options.memory, parse_bytes),
        options={
            "max_time": parsed("--max-time", options.max_time, values.seconds),
            "busy_processors": parsed("--busy-processors", options.busy_processors, values.processors),
        },
        rtol=parsed("--rtol", options.rtol, _error),
        atol=parsed("--atol", options.atol, _error),
    )
    file = None if options.json in (None, "-") else Path(options.json)
    if file is not None:
        refuse_foreign("--json", file, FORM)
    with signals_as_interrupts():
        rows = arena.rows()
    document = document_of(options.reference, arena.device, rows)
    if options.json == "-":
        print_json(document)
    else:
        print("\n".join(lines_of(options.reference, arena.device, rows)))
    if file is not None:
        write_output(file, json_text(document), FORM)
    return int(not all(row.is_fine for row in rows))


def document_of(reference: str, device: DeviceIdentity, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the document: candidates with their whole result, and a row for each case of each."""
    return {
        "reference": reference,
        "device": {"kind": device.kind, "name": device.name},
        "confidence": CONFIDENCE,
        "candidates": _candidates(rows),
        "rows": [asdict(row) for row in rows],
    }


def _candidates(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the whole result of each candidate."""
    found = []
    for name in dict.fromkeys(row.candidate for row in rows):
        own = [row for row in rows if row.candidate == name]
        known = [row.speed_up for row in own if row.speed_up is not None]
        whole = {
            "candidate": name,
            "correct": all(row.correct is True for row in own),
            "honest": all(row.honest is True for row in own),
            "speed_up": geometric_mean(known) if all(row.is_fine for row in own) and len(known) == len(own) else None,
        }
        found.append(whole)
    return found


def lines_of(reference: str, device: DeviceIdentity, rows: Sequence[Row]) -> list[str]:
    """Return a table of the rows, then a line for each finding and for each candidate."""
    headings = ["candidate", "case", "correct", "honest", "speed-up", "interval", "of light", "findings"]
    cells = [
        [
            row.candidate,
            row.case,
            _WORDS[row.correct],
            _WORDS[row.honest],
            _UNKNOWN if row.speed_up is None else f"{row.speed_up:.3g}×",
            _UNKNOWN if row.low is None or row.high is None else f"{row.low:.3g} to {row.high:.3g}",
            "" if row.sol is None else format_percent(row.sol),
            ", ".join(finding.code for finding in row.findings),
        ]
        for row in rows
    ]
    about = printable_sentence(f"reference {reference} on {device.name}")
    table = aligned(headings, cells, left=headings, width=terminal_width())
    found = [
        f"{row.candidate} {row.case}: {one.code} ({one.level}): {one.text}" for row in rows for one in row.findings
    ]
    for whole in _candidates(rows):
        said = "correct and honest" if whole["correct"] and whole["honest"] else "not correct and honest"
        speed_up = whole["speed_up"]
        found.append(f"{whole['candidate']}: {said}{'' if speed_up is None else f', {speed_up:.3g}× as fast'}")
    return [about, *table, *map(printable_sentence, found)]
