"""Judge every kind of kernel by this plugin and by pytest-benchmark: unchanged, edited, and slower.

    python benchmarks/gate.py                                # short: unchanged, edited and 10 % slower, once each
    python benchmarks/gate.py --judged 40 --dropped 8        # 440 unchanged rows: hours
    python benchmarks/gate.py --judged 0 --folder kept       # a baseline to be used later, and the same on another day:
    python benchmarks/gate.py --judged 37 --edited 8 --dropped 4 --mode strict --folder kept
    python benchmarks/gate.py --judged 4 --neighbour memory --neighbour builds
    python benchmarks/gate.py --judged 8 --drop 3% --tolerance 2% --kernel triad --kernel sum

It works as in CI: in a git repository, by default and with --bandwidth-strict, each run in a new process
(benchmarks/arena.py has the kernels, and how they are edited and slowed). The baseline has five runs of this plugin and
one saved run of pytest-benchmark, without neighbours; the script renews it after ten rounds, unless a folder keeps
it. Unchanged code has the baseline's hash. Edited code does the same in the same time, so that pairs of processes must
decide.

A row is one kernel in one run of pytest. "Failed" counts the tests that pytest failed, whatever their status, and
"found" those that failed as REGRESSED. "Undecided" counts UNDECIDED and MISMATCH, and "passed" the slowed tests that
pytest passed. Limits are one-sided, of 95 %. The script names each unexpected verdict on standard error while it runs,
and prints the tables also after Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean, median

from arena import EDITED, KERNELS, OURS, PEERS, STRICT, UNCHANGED, Arena, Row, table

from pytest_bandwidth.cli.selftest import upper_limit
from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.evidence.processes.start_and_end import signals_as_interrupts

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from neighbours import KINDS, beside

MODES = {"strict": STRICT, "default": OURS}
JUDGES = (*MODES.values(), *PEERS)
# The statuses that answer whether the code lost something; all others are undecided.
FINE, SLOWER = ("OK", "IMPROVED"), "REGRESSED"


def of(rows: Sequence[Row], judge: str, name: str, kernels: Sequence[str], drop: float) -> list[Row]:
    """Return the rows of some kernels by one judge, for one kind of change (`name`) and one drop."""
    asked = judge, name, drop
    return [row for row in rows if (row.judge, row.circumstance, row.drop) == asked and row.kernel in kernels]


def result(rows: Sequence[Row], kernels: Sequence[str], drops: Sequence[float]) -> str:
    """Compare the judges over all kernels and by kinds of them."""
    alarms = (head for name in (UNCHANGED, EDITED) for head in (f"{name}: failed", "undecided"))
    heads = ("kernels", "judged by", *alarms, *(f"found {format_percent(d)}" for d in drops[1:]))
    kinds = {kind: [k for k in kernels if KERNELS[k] == kind] for kind in dict.fromkeys(KERNELS[k] for k in kernels)}
    lines = []
    for name, members in (("all", list(kernels)), *kinds.items()):
        judges = [judge for judge in JUDGES if of(rows, judge, UNCHANGED, members, 0.0)]
        lines += [[name, judge, *cells(rows, judge, members, drops)] for judge in judges]
    return table(heads, lines)


def cells(rows: Sequence[Row], judge: str, kernels: Sequence[str], drops: Sequence[float]) -> Iterator[str]:
    for name in (UNCHANGED, EDITED):
        as_fast = of(rows, judge, name, kernels, drops[0])
        yield limited(sum(row.failed for row in as_fast), len(as_fast), at_most=True)
        undecided = sum(row.status not in (SLOWER, *FINE) for row in as_fast)
        yield str(undecided) if judge not in PEERS else ""
    for drop in drops[1:]:
        slowed = of(rows, judge, EDITED, kernels, drop)
        passed = f", {sum(not row.failed for row in slowed)} passed" if judge not in PEERS else ""
        yield limited(sum(row.failed and row.status == SLOWER for row in slowed), len(slowed), at_most=False) + passed


def limited(count: int, judged: int, *, at_most: bool) -> str:
    """Return the count, of how many, and the rate's one-sided limit of 95 %."""
    if not judged:
        return "0 of 0"
    if at_most:
        return f"{count} of {judged} (≤ {format_percent(upper_limit(count, judged), 1)})"
    return f"{count} of {judged} (≥ {format_percent(1 - upper_limit(judged - count, judged), 1)})"


def spent(rows: Sequence[Row], kernels: Sequence[str], drops: Sequence[float]) -> Iterator[str]:
    """Yield the seconds of a row, pairs included, by what was changed, and of all changed rows."""
    for judge in JUDGES[:-1]:  # both peers are one run
        arms = {arm(name, drop): of(rows, judge, name, kernels, drop) for name, drop in rounds_of(drops)}
        arms["all changed"] = [row for row in rows if row.judge == judge and row.circumstance != UNCHANGED]
        for what, some in arms.items():
            if seconds := [row.seconds for row in some if row.seconds is not None]:
                figures = f"median {median(seconds):.1f}, mean {fmean(seconds):.1f}, at most {max(seconds):.1f}"
                yield f"- {judge}, {what}: seconds a row, of {len(seconds)}: {figures}"


def rounds_of(drops: Sequence[float]) -> list[tuple[str, float]]:
    """Return what a round judges: unchanged code, and edited code without a drop and with each."""
    return [(UNCHANGED, 0.0), *((EDITED, drop) for drop in drops)]


def statuses_of(rows: Sequence[Row]) -> Counter[str]:
    return Counter(row.status for row in rows)


def arm(name: str, drop: float) -> str:
    return f"{format_percent(drop)} slower" if drop else name


def evenly(i: int, judged: int, dropped: int) -> bool:
    """Return whether the i-th of `judged` rounds is one of the `dropped`, which are spread evenly."""
    return (i + 1) * dropped // judged > i * dropped // judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judged", type=int, default=1, help="rounds of unchanged code (default: 1)")
    parser.add_argument("--edited", type=int, help="rounds with edited code, spread over them (default: all)")
    parser.add_argument("--dropped", type=int, help="rounds with each drop (default: as many as with edited code)")
    parser.add_argument("--drop", action="append", help="drop to inject (default: 10%%; long runs take 5%% and 10%%)")
    parser.add_argument("--kernel", action="append", choices=tuple(KERNELS), help="kernel to judge (default: all)")
    parser.add_argument("--tolerance", default="5%")
    parser.add_argument("--mib", type=int, default=128, help="MiB of each array (default: 128)")
    parser.add_argument("--renew", type=int, default=10, metavar="ROUNDS", help="rounds of a baseline (default: 10)")
    parser.add_argument("--folder", type=Path, help="keep repository and baseline here, and use those that are there")
    parser.add_argument("--mode", action="append", choices=tuple(MODES), help="default: both")
    parser.add_argument("--compared", type=int, help="rounds that pytest-benchmark judges, too (default: all)")
    parser.add_argument("--neighbour", action="append", choices=tuple(KINDS), help="run one a round, in turn")
    options = parser.parse_args()
    edited = options.judged if options.edited is None else min(options.edited, options.judged)
    compared = options.judged if options.compared is None else min(options.compared, options.judged)
    dropped = edited if options.dropped is None else min(options.dropped, options.judged)
    drops = [0.0, *map(parse_fraction, options.drop or (["10%"] if options.judged == 1 else ["5%", "10%"]))]
    kernels = options.kernel or list(KERNELS)
    begun = datetime.now(timezone.utc)
    with tempfile.TemporaryDirectory() as temporary, signals_as_interrupts():
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        given = {"mib": options.mib, "kernels": kernels, "tolerance": options.tolerance}
        neighbours = options.neighbour or ["none"]
        modes = [MODES[name] for name in options.mode or MODES]
        arena = Arena(folder.resolve(), **given, modes=modes)
        if options.folder and not arena.baseline.is_file():
            arena.take_baselines()
        taken = datetime.fromtimestamp(arena.baseline.stat().st_mtime, timezone.utc) if options.folder else None
        try:
            for i in range(options.judged):
                if not options.folder and i % options.renew == 0:
                    arena.take_baselines()
                asked = rounds_of(drops[:1] * evenly(i, options.judged, edited))
                asked += [(EDITED, drop) for drop in drops[1:] * evenly(i, options.judged, dropped)]
                compare = evenly(i, options.judged, compared)
                with beside(neighbours[i % len(neighbours)]):
                    for name, drop in asked[i % len(asked) :] + asked[: i % len(asked)]:
                        arena.judge(name, drop, ours_first=i % 2 == 0, edited=name == EDITED, compare=compare)
                counts = "; ".join(
                    f"{arm(n, d)}: {dict(statuses_of(of(arena.rows, modes[0], n, kernels, d)))}"
                    for n, d in rounds_of(drops)
                )
                now = datetime.now(timezone.utc)
                print(f"… {now:%H:%M} UTC, {i + 1} of {options.judged}; {counts}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("ended by a signal: so far", file=sys.stderr)
    ended = datetime.now(timezone.utc)
    if taken:
        print(f"the baseline is of {taken:%Y-%m-%d %H:%M} UTC")
    print(f"{begun:%Y-%m-%d %H:%M} to {ended:%H:%M} UTC, {platform.processor() or platform.machine()}, ", end="")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}; tolerance {options.tolerance}, ", end="")
    print(f"arrays of {options.mib} MiB\n")
    print(result(arena.rows, kernels, drops), end="\n\n")
    print("\n".join(spent(arena.rows, kernels, drops)))
    for mode in MODES.values():
        for name, drop in rounds_of(drops):
            if statuses := statuses_of(of(arena.rows, mode, name, kernels, drop)).most_common():
                print(f"- {mode}, {arm(name, drop)}: {', '.join(f'{n} {status}' for status, n in statuses)}")


if __name__ == "__main__":
    main()
