"""Estimate on this machine how often identical code raises an alarm, and how many real drops are found.

Fresh processes measure the shipped triad unchanged and slowed: a drop of 5 % is injected by letting the kernel do
1/(1 − 5 %) times the work that it declares, in the same arrays. The gate's rule then judges random
divisions of those processes.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import comb
from pathlib import Path
from statistics import median, stdev
from typing import Any

import numpy as np

from pytest_bandwidth.cli.main import checked, print_json
from pytest_bandwidth.devices.base import Launch, TimedDevice, Workload
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.baseline import Entry, Metric, Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import METRICS, disbelief, metrics_of_measurement, value_of_run
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import counted, digits, format_percent, parse_fraction
from pytest_bandwidth.domain.values import count, fitting, processors
from pytest_bandwidth.domain.verdict import Decision, Status
from pytest_bandwidth.evidence.processes.requests import ChildRequest
from pytest_bandwidth.evidence.processes.start_and_end import output_of
from pytest_bandwidth.judging.decide import decide_stored
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.judging.stored import reference_of
from pytest_bandwidth.measuring.measurer import DeviceLock, Measurer
from pytest_bandwidth.measuring.progress import ConsoleProgress, Progress
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.reports.text_safe import printable

# For a process that has the device; its wait for the device does not count.
PROCESS_SECONDS = 300
LOCK_SECONDS = 600.0
# The figures of each measurement, by the names of `Run`.
FIGURES = ("gbps", "relative", "probe_gbps")
BLOCK = 256
GRID = 132 * 16
TOLERANCES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.10)
BASELINE_RUNS = (1, 3, 5, 10)
CONFIRM = 3
TRIALS = 2000
# With fewer processes there would be no row of five baseline runs, which are advised.
LEAST_RUNS = 5 + 1 + CONFIRM
# The limits for a recommendation: hardly any false alarm, nearly every test judged, and nearly every drop found that is
# larger than the tolerance.
MOST_FALSE_ALARMS, MOST_UNJUDGED, LEAST_FOUND = 0.005, 0.05, 0.95


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cuda, cuda:N or cpu (default: auto)")
    parser.add_argument(
        "--runs", type=checked(count(LEAST_RUNS)), default=20, metavar="N", help="new processes (default: 20)"
    )
    parser.add_argument(
        "--drop",
        type=checked(fitting(parse_fraction, lambda drop: 0 < drop <= 0.5, "more than 0 % and at most 50 %")),
        action="append",
        metavar="P",
        help="drop to inject, e.g. 5%%; may be repeated (default: 3%% 5%% 10%%)",
    )
    parser.add_argument(
        "--mib", type=checked(count(1)), default=256, metavar="N", help="MiB of each of three arrays (default: 256)"
    )
    parser.add_argument(
        "--busy-processors",
        type=checked(processors),
        metavar="N",
        help="processors that others may use of a host before its figures are invalid, as bandwidth_busy_processors",
    )
    parser.add_argument("--json", action="store_true", help="print every process's figures and the table as JSON")


def run(options: argparse.Namespace) -> int:
    device = open_device(options.device)
    if not isinstance(device, TimedDevice):
        raise UsageError(f"--device {options.device}: it measures no time; expected auto, cuda, cuda:N or cpu")
    identity = device.identity
    asked = {
        "device": identity.option,
        "mib": options.mib,
        "drops": tuple(dict.fromkeys(options.drop or (0.03, 0.05, 0.10))),
        "busy_processors": options.busy_processors,
    }
    seen = measure(identity, options.runs, asked, LEAST_RUNS)
    found = tables(seen, identity.on_host)
    if not options.json:
        print("\n".join(report(identity.name, seen, found)))
        return 0
    runs = {drop: [{name: getattr(run, name) for name in FIGURES} for run in of] for drop, of in seen.runs.items()}
    left_out = [{"process": process, "reason": reason} for process, reason in seen.left_out.items()]
    rows = {figure: [asdict(row) for row in of_figure] for figure, of_figure in found.items()}
    print_json({"device": identity.name, "runs": runs, "left_out": left_out, "rates": rows})
    return 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Hold the shares of judged tests that ended REGRESSED: identical code (false alarms), and slowed code by its drop.

    unjudged: the share of tests of identical code that were UNDECIDED.
    """

    tolerance: float
    baseline_runs: int
    false_alarms: float
    found: dict[float, float]
    unjudged: float


Tables = dict[Metric, list[Rates]]


def rates(
    same: Sequence[Run],
    slowed: Mapping[float, Sequence[Run]],
    *,
    figure: Metric,
    tolerance: float,
    baseline_runs: int,
    confirm: int,
    on_host: bool,
    trials: int,
) -> Rates:
    """Judge `trials` random divisions of the processes into baseline, judged process and new ones.

    same: one run a fresh process of identical code, at least ``baseline_runs + 1 + confirm`` of them; slowed: those of
    the slowed kernel by drop. Divisions share processes, so the rates are no more certain than the processes are many.
    """
    draw = random.Random(1)
    alarms, unjudged = 0, 0
    hits = dict.fromkeys(slowed, 0)
    for _ in range(trials):
        drawn = draw.sample(same, baseline_runs + 1 + confirm)
        judge = Judge(drawn[:baseline_runs], figure, tolerance, confirm, on_host=on_host)
        status = judge.decision(drawn[baseline_runs:]).status
        alarms += status is Status.REGRESSED
        unjudged += status is Status.UNDECIDED
        for drop, runs in slowed.items():
            hits[drop] += judge.decision(draw.sample(runs, 1 + confirm)).status is Status.REGRESSED
    found = {drop: n / trials for drop, n in hits.items()}
    return Rates(tolerance, baseline_runs, alarms / trials, found, unjudged / trials)


class Judge:
    """Apply the stored figures' rule for one baseline.

    known: the baseline's runs, all with the figure. confirm: how many new processes measure a slow test again.
    """

    def __init__(self, known: Sequence[Run], figure: Metric, tolerance: float, confirm: int, *, on_host: bool) -> None:
        reference = reference_of(Entry("drawn", runs=tuple(known)), figure, on_host)
        assert reference is not None
        self._reference, self._figure, self._tolerance, self._confirm = reference, figure, tolerance, confirm

    def decision(self, judged: Sequence[Run]) -> Decision:
        """Return the rule's decision on a test, from its first process and `confirm` new ones, all with the figure."""
        first, *fresh = [value for run in judged if (value := value_of_run(run, self._figure)) is not None]
        decided = decide_stored(self._reference, first, fresh, self._tolerance, self._confirm, None)
        assert isinstance(decided, Decision)
        return decided


def upper_limit(events: int, cases: int) -> float:
    """Return a rate's upper limit, 95 % one-sided: `events` seen in independent `cases` (Clopper and Pearson, 1934)."""
    if events >= cases:
        return 1.0
    low, high = events / cases, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        at_most = sum(comb(cases, i) * middle**i * (1 - middle) ** (cases - i) for i in range(events + 1))
        low, high = (middle, high) if at_most > 0.05 else (low, middle)
    return high


def tables(seen: MeasuredRuns, on_host: bool) -> Tables:
    """Compute rates by judged figure, for every tolerance and, within it, every number of baseline runs there is."""
    slowed = {drop: runs for drop, runs in seen.runs.items() if drop}
    enough = [k for k in BASELINE_RUNS if len(seen.same) >= k + 1 + CONFIRM]
    settings = [(tolerance, k) for tolerance in TOLERANCES for k in enough]
    judged = partial(rates, seen.same, slowed, confirm=CONFIRM, on_host=on_host, trials=TRIALS)
    return {f: [judged(figure=f, tolerance=t, baseline_runs=k) for t, k in settings] for f in METRICS}


def report(name: str, seen: MeasuredRuns, found: Tables) -> list[str]:
    """Return lines for people: the processes' scatter, the table, and its recommendation."""
    processes = len(seen.same)
    left_out = f", {len(seen.left_out)} left out" if seen.left_out else ""
    lines = [f"{printable(name)}: {processes} new processes of identical code{left_out}"]
    for title, values in (
        ("GB/s", [run.gbps for run in seen.same]),
        ("share of the probe", [run.relative for run in seen.same if run.relative is not None]),
    ):
        spread = format_percent(stdev(values) / median(values), 2)
        lines.append(f"  {title:18} median {digits(median(values))}, between-process sd {spread}")
    drops = [drop for drop in seen.runs if drop]
    heading = "".join(f"  found {format_percent(d):>5}" for d in drops)
    lines += ["", f"  judged on   tolerance  baseline runs  false alarms  unjudged{heading}"]
    for figure, rows in found.items():
        for row in rows:
            shares = "".join(f"  {format_percent(row.found[d], 1):>11}" for d in drops)
            alarms, unjudged = format_percent(row.false_alarms, 2), format_percent(row.unjudged, 1)
            setting = f"{format_percent(row.tolerance):>9}  {row.baseline_runs:>13}"
            lines.append(f"  {figure:10}  {setting}  {alarms:>12}  {unjudged:>8}{shares}")
    return [*lines, "", recommendation(found["relative"], processes)]


def recommendation(table: Sequence[Rates], processes: int) -> str:
    """Return the smallest tolerance and the fewest baseline runs that hold, in plain words."""
    for row in table:
        larger = [drop for drop in row.found if drop > row.tolerance]
        found = [drop for drop in larger if row.found[drop] >= LEAST_FOUND]
        if row.false_alarms <= MOST_FALSE_ALARMS and row.unjudged <= MOST_UNJUDGED and found:
            # Only divisions that share no process are independent cases; the text gives the upper limit for so few.
            cases = processes // (row.baseline_runs + 1 + CONFIRM)
            unseen = format_percent(upper_limit(0, cases))
            return (
                f"Recommended: --bandwidth-tolerance={row.tolerance * 100:g}% and --bandwidth-runs={row.baseline_runs}:"
                f" drops of {format_percent(min(found))} are found, identical code passes. "
                f"{processes} processes make {counted(cases, 'independent case')}: false alarms in up to {unseen} of "
                "runs could have gone unseen (95 % confidence); --runs lowers that."
            )
    return (
        "Recommended: none of the tried settings finds these drops reliably without false alarms on this machine: "
        "quiet it (other users, clocks), or inject larger drops with --drop to see what it can find."
    )


# ---- the processes: one after the other under the device's lock, each runs `main` and prints figures as JSON ---------


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """Hold each process's run by drop (0.0: identical code), and why processes were left out, by number from 1."""

    runs: dict[float, list[Run]]
    left_out: dict[int, str] = field(default_factory=dict)

    @property
    def same(self) -> list[Run]:
        return self.runs[0.0]


def measure(device: DeviceIdentity, runs: int, asked: Mapping[str, Any], least: int) -> MeasuredRuns:
    """Run the processes and report the ones left out. asked: the request to `main`, without the turn.

    Raises BandwidthError where a process fails, where fewer than `least` processes would remain, and where the device
    stays in use.
    """
    seen = MeasuredRuns({drop: [] for drop in (0.0, *asked["drops"])})
    progress = ConsoleProgress("selftest")
    lock = DeviceLock(
        device,
        LOCK_SECONDS,
        advice="wait for it or end it",  # no ini file is read here, so its time-out cannot help
    )
    try:
        for process in range(1, runs + 1):
            with lock.held(progress.show, progress.log):
                progress.show(f"process {process} of {runs}")
                answered = _answer({**asked, "turn": process})
            reason = answered.get("invalid")
            if reason is None:
                for drop, figures in answered["runs"].items():
                    seen.runs[float(drop)].append(Run(**figures))
                continue
            seen.left_out[process] = reason
            progress.note(f"process {process} was left out: {reason}")
            if runs - len(seen.left_out) < least:
                others = ", or say in --busy-processors what others may use" if device.on_host else ""
                raise BandwidthError(
                    f"{len(seen.left_out)} of {runs} processes left out by now, at least {least} have to count (the "
                    f"last: {reason}): quiet the machine or raise --runs{others}"
                )
    finally:
        progress.clear()
    return seen


def _answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(output_of(__name__, json.dumps(asked), seconds=PROCESS_SECONDS))
    except subprocess.TimeoutExpired:
        raise BandwidthError(
            f"a process did not measure the kernel {1 + len(asked['drops'])} times in {PROCESS_SECONDS} s: "
            "try a smaller --mib or fewer of --drop"
        ) from None
    except BandwidthError as error:
        raise BandwidthError(f"a process measured nothing: {error}") from None
    return answer


def measurer_of(asked: Mapping[str, Any]) -> Measurer:
    """Return a fresh process's measurer; its parent holds the device's lock."""
    settings = Settings(device=asked["device"], busy_processors=asked["busy_processors"])
    return Measurer(settings, Path(), ChildRequest(asked["device"]))


def answer(measurer: Measurer, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return `runs`, figures by drop, measured in an order that changes with the turn; or why one stayed `invalid`."""
    order = [0.0, *asked["drops"]]
    random.Random(asked["turn"]).shuffle(order)
    runs = {}
    for drop in order:
        measurement = measured_triad(measurer, asked["mib"], drop)
        reason = None if measurement.invalid is None else measurement.invalid.text
        if reason is None and not (figures := metrics_of_measurement(measurement)).has_credible_share:
            reason = disbelief(figures)
        if reason is not None:
            return {"invalid": reason}
        runs[str(drop)] = {name: getattr(measurement, name) for name in FIGURES}
    return {"runs": runs}


def measured_triad(measurer: Measurer, mib: int, drop: float) -> Measurement:
    """Measure a triad of `mib` MiB a vector that works 1/(1 − drop) times as much as it declares, as a test would."""
    device = measurer.device
    declared = mib * 2**20 // 4
    b, c = device.random(declared, "float32"), device.random(declared, "float32")
    a = device.empty(declared, "float32")
    kernel = device.kernel(read_source("stream.cu", "triad_f32", ()))

    def launch(n: int) -> Launch:
        return Launch(kernel, (GRID, 1, 1), (BLOCK, 1, 1), (a, b, c, np.float32(3), np.int64(n)))

    # The further work is done in the same arrays: memory's speed depends on where they lie to each other.
    whole, rest = divmod(round(declared / (1 - drop)), declared)
    calls = [device.launcher(launch(n), None) for n in (*[declared] * whole, rest) if n]

    def work() -> None:
        for call in calls:
            call()

    workload = Workload(work, Traffic(8 * declared, 4 * declared), launch=launch(declared))
    return measurer.measure(workload, MarkerOptions(), Progress())


def main(text: str) -> int:
    """Print the answer to a request, a JSON object: device, mib, drops, busy_processors, turn.

    drops: in addition to identical code. busy_processors: as in `busy_with_others`.
    """
    asked = json.loads(text)
    try:
        print(json.dumps(answer(measurer_of(asked), asked)))
    except BandwidthError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0
