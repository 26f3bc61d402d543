"""Estimate on this machine how often identical code raises an alarm, and how many real drops are found.

Fresh processes measure the shipped triad unchanged and slowed: a drop of 5 % is injected by letting the kernel do
1/(1 − 5 %) times the work that it declares, in the same arrays. The gate's rule then judges random
divisions of those processes.
"""

from __future__ import annotations

import argparse

from pytest_bandwidth.cli.output import print_json
from pytest_bandwidth.cli.selftest.rates import LEAST_RUNS, plain, report, tables
from pytest_bandwidth.devices.base import TimedDevice
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import parse_fraction

MOST_PROCESSORS = 10**6


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cuda, cuda:N or cpu (default: auto)")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="fresh processes (default: 20)")
    parser.add_argument(
        "--drop", action="append", metavar="P", help="drop to inject, e.g. 5%%; may be repeated (default: 3%% 5%% 10%%)"
    )
    parser.add_argument("--mib", type=int, default=256, metavar="N", help="MiB of each of three arrays (default: 256)")
    parser.add_argument(
        "--busy-processors",
        type=float,
        metavar="N",
        help="processors that others may use of a host before its figures are invalid, as bandwidth_busy_processors",
    )
    parser.add_argument("--json", action="store_true", help="print every process's figures and the table as JSON")


def run(options: argparse.Namespace) -> int:
    from pytest_bandwidth.cli.selftest.processes import Plan, measure  # its locks are kept out of start-up

    drops = tuple(dict.fromkeys(_drop(text) for text in options.drop or ("3%", "5%", "10%")))
    _check(options)
    device = open_device(options.device)
    if not isinstance(device, TimedDevice):
        raise UsageError(f"--device {options.device}: it measures no time; expected auto, cuda, cuda:N or cpu")
    identity = device.identity
    seen = measure(Plan(identity, options.runs, options.mib, drops, options.busy_processors), LEAST_RUNS)
    rates = tables(seen, identity.on_host)
    if options.json:
        print_json({"device": identity.name, **plain(seen, rates)})
    else:
        print("\n".join(report(identity.name, seen, rates)))
    return 0


def _check(options: argparse.Namespace) -> None:
    if not LEAST_RUNS <= options.runs <= 1000:
        raise UsageError(f"--runs {options.runs}: expected {LEAST_RUNS} to 1000 processes")
    if not 1 <= options.mib <= 65_536:
        raise UsageError(f"--mib {options.mib}: expected 1 to 65536")
    busy = options.busy_processors
    if busy is not None and not 0 < busy <= MOST_PROCESSORS:
        raise UsageError(f"--busy-processors {busy:g}: expected more than 0 and at most {MOST_PROCESSORS}")


def _drop(text: str) -> float:
    try:
        value = parse_fraction(text)
    except ValueError as error:
        raise UsageError(f"--drop: {error}") from None
    if not 0 < value <= 0.5:
        raise UsageError(f"--drop {text}: expected more than 0 % and at most 50 %")
    return value
