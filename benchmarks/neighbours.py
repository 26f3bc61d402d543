"""Measure what other processes do to verdicts: kinds of kernels × kinds of neighbours, unchanged, edited and slower.

    python benchmarks/neighbours.py --dropped 2              # 200 unchanged rows beside each kind: four hours
    python benchmarks/neighbours.py --judged 1 --kernel triad --kernel sum --kernel attention   # minutes

Baselines are taken while nothing disturbs, five fresh processes for this plugin and one saved run for
pytest-benchmark, renewed for every ten rounds. A round has each kind of neighbour start, all kernels are judged
beside it, and the neighbours go (benchmarks/arena.py has the kernels, and how they are edited and slowed). What is
known to be the baseline's code is UNCHANGED whoever is beside it; edited code takes pairs of processes. In rounds of
edited and slowed code pytest-benchmark takes turns with this plugin; others it is spared. The
neighbours are those of tests/support/neighbours.py, and two more: `run`, a second run of these tests, which takes turns
with the first by the device's lock; and `quota`, one in a container's place: with a lock of its own, and half of the
processors' time by a control group, where this user may make one. Prints Markdown; an end by Ctrl-C or SIGTERM loses
nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean

from arena import (
    EDITED,
    KERNELS,
    OURS,
    PEERS,
    UNCHANGED,
    Arena,
    Tally,
    command,
    environment,
    evenly,
    rounds_of,
    said,
    table,
)

from pytest_bandwidth.domain.units import parse_fraction
from pytest_bandwidth.session.fresh.signals import signals_as_interrupts

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from neighbours import KINDS, beside
from quota import quota_group

ROUNDS_PER_BASELINE = 10
RUN, QUOTA = "run", "quota"
EVERY_KIND = ("none", *KINDS, RUN, QUOTA)
QUOTA_SHARE = 0.5
# One of each kind of kernels: all of them beside each kind of neighbours would take days.
OF_EACH = ("triad", "sum", "softmax", "serial", "attention")


@contextmanager
def second_run(folder: Path, group: Path | None) -> Iterator[None]:
    """Have a second process judge the same tests over and over. group: the control group of one in a container."""
    own = environment()
    started = command("ours")
    with tempfile.TemporaryDirectory() as elsewhere:
        if group is not None:
            own["TMPDIR"] = elsewhere
            procs = str(group / "cgroup.procs")
            started = ["sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *started]
        running: list[subprocess.Popen[bytes]] = []
        over = threading.Event()

        def run_on() -> None:
            silent = subprocess.DEVNULL
            while not over.is_set():
                running[:] = [subprocess.Popen(started, cwd=folder, env=own, stdout=silent, stderr=silent)]
                running[0].wait()

        thread = threading.Thread(target=run_on)
        thread.start()
        try:
            yield
        finally:
            over.set()
            for process in running:
                process.terminate()
            thread.join()


def circumstance(kind: str, name: str) -> str:
    """Name in the tally what code of this name (unchanged, edited) is judged beside."""
    return f"{kind}, {name}"


def result(kept: Tally, kinds: Sequence[str], kernels: Sequence[str], drops: Sequence[float], *, each: str) -> str:
    """Compare the judges in a table, with rows for each kind of neighbours or for each kernel."""
    of_kinds = each == "neighbours"
    as_fast = [head for name in (UNCHANGED, EDITED) for head in (f"red, {name}", f"INVALID, {name}")]
    slower = [head for drop in drops[1:] for head in (f"found {said(EDITED, drop)}", "INVALID", "passed")]
    head = (each, "judged by", *as_fast, *slower, *(["seconds a row, unchanged", "edited"] * of_kinds))
    lines = []
    for name in kinds if of_kinds else kernels:
        for judge in (OURS, *PEERS):
            figures = cells(kept, judge, (name,) if of_kinds else kinds, kernels if of_kinds else (name,), drops)
            lines.append([name, judge, *figures, *(seconds(kept, judge, name, drops) if of_kinds else [])])
    return table(head, lines)


def cells(
    kept: Tally, judge: str, kinds: Sequence[str], kernels: Sequence[str], drops: Sequence[float]
) -> Iterator[str]:
    """Give red and INVALID of code that lost nothing, then of each drop what was found, INVALID and passed."""
    for name in (UNCHANGED, EDITED):
        beside = [circumstance(kind, name) for kind in kinds]
        as_fast, failed = (of(judge, beside, kernels, drops[0]) for of in (kept.count, kept.failed))
        yield f"{failed.total()} of {as_fast.total()}"
        yield str(as_fast["INVALID"]) if judge == OURS else ""
    for drop in drops[1:]:
        beside = [circumstance(kind, EDITED) for kind in kinds]
        slowed, failed = (of(judge, beside, kernels, drop) for of in (kept.count, kept.failed))
        yield f"{failed['REGRESSED']} of {slowed.total()}"
        yield str(slowed["INVALID"]) if judge == OURS else ""
        yield str(sum(slowed[status] for status in ("UNCHANGED", "WITHIN", "IMPROVED")))


def seconds(kept: Tally, judge: str, kind: str, drops: Sequence[float]) -> Iterator[str]:
    for name, asked in ((UNCHANGED, drops[:1]), (EDITED, drops)):
        spent = [s for drop in asked for s in kept.seconds.get((judge, circumstance(kind, name), drop), [])]
        yield f"{fmean(spent):.1f}" if spent else ""


def run(
    arena: Arena,
    kept: Tally,
    kinds: Sequence[str],
    drops: Sequence[float],
    *,
    judged: int,
    dropped: int,
    group: Path | None,
) -> None:
    """Judge so many rounds; group: the control group of a container's place."""
    for i in range(judged):
        if i % ROUNDS_PER_BASELINE == 0:
            arena.take_baselines()
        asked = rounds_of(drops if evenly(i, judged, dropped) else ())
        both = evenly(i, judged, max(dropped, 1))
        for kind in [*kinds[i % len(kinds) :], *kinds[: i % len(kinds)]]:
            second = kind in (RUN, QUOTA)
            with second_run(arena.folder, group if kind == QUOTA else None) if second else beside(kind):
                for name, drop in asked[i % len(asked) :] + asked[: i % len(asked)]:
                    given = {"ours_first": i % 2 == 0, "edited": name == EDITED, "alone": not both}
                    arena.judge(circumstance(kind, name), drop, **given)
            told = (
                f"{said(n, d)}: {dict(kept.count(OURS, [circumstance(kind, n)], list(KERNELS), d))}" for n, d in asked
            )
            now = f"{datetime.now(timezone.utc):%H:%M} UTC"
            print(f"… {now}, {i + 1} of {judged}, {kind}: {'; '.join(told)}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judged", type=int, default=40, help="rounds of unchanged code (default: 40)")
    parser.add_argument(
        "--dropped", type=int, help="rounds of edited code and of each drop, of so many at most (default: as many)"
    )
    parser.add_argument("--drop", action="append", help="drop to inject (default: 10%%)")
    parser.add_argument("--kind", action="append", choices=EVERY_KIND, help="kind of neighbours (default: all)")
    parser.add_argument(
        "--kernel", action="append", choices=tuple(KERNELS), help=f"kernel to judge (default: {', '.join(OF_EACH)})"
    )
    parser.add_argument("--tolerance", default="5%")
    parser.add_argument("--mib", type=int, default=128, help="MiB of each array (default: 128)")
    options = parser.parse_args()
    dropped = options.judged if options.dropped is None else min(options.dropped, options.judged)
    drops = [0.0, *map(parse_fraction, options.drop or ["10%"])]
    kinds, kernels = list(options.kind or EVERY_KIND), list(options.kernel or OF_EACH)
    kept = Tally()
    begun = datetime.now(timezone.utc)
    with tempfile.TemporaryDirectory() as folder, quota_group(QUOTA_SHARE) as group, signals_as_interrupts():
        if QUOTA in kinds and group is None:
            kinds.remove(QUOTA)
            print(f"Left out: {QUOTA}, since no control group with a quota of processor time can be made here.\n")
        given = {"mib": options.mib, "kernels": kernels, "tolerance": options.tolerance}
        arena = Arena(Path(folder), kept, **given)
        try:
            run(arena, kept, kinds, drops, judged=options.judged, dropped=dropped, group=group)
        except KeyboardInterrupt:
            print("ended by a signal: so far", file=sys.stderr)
    ended = datetime.now(timezone.utc)
    print(f"{begun:%Y-%m-%d %H:%M} to {ended:%H:%M} UTC, {platform.processor() or platform.machine()}, ", end="")
    print(f"{os.cpu_count()} processors; tolerance {options.tolerance}, arrays of {options.mib} MiB\n")
    for each in ("neighbours", "kernel"):
        print(result(kept, kinds, kernels, drops, each=each), end="\n\n")
    for kind in kinds:
        for name, drop in rounds_of(drops):
            counts = kept.count(OURS, [circumstance(kind, name)], kernels, drop)
            if counts:
                told = ", ".join(f"{n} {status}" for status, n in counts.most_common())
                print(f"- {kind}, {said(name, drop)}: {told}")


if __name__ == "__main__":
    main()
