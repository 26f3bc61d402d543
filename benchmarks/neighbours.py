"""Measure what other processes do to verdicts: kinds of kernels × kinds of neighbours, unchanged, edited and slower.

    python benchmarks/neighbours.py --dropped 2              # 200 unchanged rows with each kind: four hours
    python benchmarks/neighbours.py --judged 1 --kernel triad --kernel sum --kernel attention   # minutes
    python benchmarks/neighbours.py --judged 4 --strict      # with --bandwidth-strict as well

The script takes baselines without neighbours and renews them after ten rounds: five runs of this plugin and one saved
run of pytest-benchmark. In a round each kind of neighbour starts, both tools judge all kernels, and the neighbours end
(benchmarks/arena.py has the kernels, and how they are edited and slowed). Unchanged code has the baseline's hash;
edited code takes pairs of processes. pytest-benchmark judges only in rounds with edited and slower code.

The neighbours are those of tests/support/neighbours.py and two more. `run` is a second run of these tests, which shares
the device's lock. `quota` is a run as in a container: it has its own lock, and a control group limits it to half of the
processors' time, where this user may make one. "Failed" counts the tests that pytest failed, and "passed" the slowed
tests that it passed. Prints Markdown, also after Ctrl-C or SIGTERM.
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
from itertools import product
from pathlib import Path
from statistics import fmean

from arena import (
    EDITED,
    KERNELS,
    OURS,
    PEERS,
    STRICT,
    UNCHANGED,
    Arena,
    Tally,
    arm,
    command,
    environment,
    evenly,
    rounds_of,
    table,
)

from pytest_bandwidth.domain.units import parse_fraction
from pytest_bandwidth.evidence.fresh_processes.signals import signals_as_interrupts

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from neighbours import KINDS, beside
from quota import quota_group

ROUNDS_PER_BASELINE = 10
RUN, QUOTA = "run", "quota"
EVERY_KIND = ("none", *KINDS, RUN, QUOTA)
QUOTA_SHARE = 0.5
# One kernel of each kind: all kernels with all neighbours would take days.
OF_EACH = ("triad", "sum", "softmax", "serial", "attention")


@contextmanager
def second_run(folder: Path, group: Path | None) -> Iterator[None]:
    """Run the same tests over and over in a second process. group: its control group, if it has a quota."""
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
    """Return the tally's name for unchanged or edited code with this kind of neighbours."""
    return f"{kind}, {name}"


def result(
    kept: Tally,
    modes: Sequence[str],
    kinds: Sequence[str],
    kernels: Sequence[str],
    drops: Sequence[float],
    *,
    each: str,
) -> str:
    """Compare the judges in a table, with rows for each kind of neighbours or for each kernel."""
    of_kinds = each == "neighbours"
    as_fast = [head for name in (UNCHANGED, EDITED) for head in (f"{name}: failed", "undecided")]
    slower = [head for drop in drops[1:] for head in (f"found {arm(EDITED, drop)}", "undecided", "passed")]
    head = (each, "judged by", *as_fast, *slower, *(["seconds a row, unchanged", "edited"] * of_kinds))
    lines = []
    for name in kinds if of_kinds else kernels:
        for judge in (*modes, *PEERS):
            figures = cells(kept, judge, (name,) if of_kinds else kinds, kernels if of_kinds else (name,), drops)
            lines.append([name, judge, *figures, *(seconds(kept, judge, name, drops) if of_kinds else [])])
    return table(head, lines)


def cells(
    kept: Tally, judge: str, kinds: Sequence[str], kernels: Sequence[str], drops: Sequence[float]
) -> Iterator[str]:
    """Yield failed and undecided tests of code that lost nothing, then of each drop: found, undecided, passed."""
    for name in (UNCHANGED, EDITED):
        circumstances = [circumstance(kind, name) for kind in kinds]
        as_fast, failed = (of(judge, circumstances, kernels, drops[0]) for of in (kept.count, kept.failed))
        yield f"{failed.total()} of {as_fast.total()}"
        yield "" if judge in PEERS else str(as_fast["UNDECIDED"])
    for drop in drops[1:]:
        circumstances = [circumstance(kind, EDITED) for kind in kinds]
        slowed, failed = (of(judge, circumstances, kernels, drop) for of in (kept.count, kept.failed))
        yield f"{failed['REGRESSED']} of {slowed.total()}"
        yield "" if judge in PEERS else str(slowed["UNDECIDED"])
        yield str(slowed.total() - failed.total())


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
    """Judge so many rounds; group: the control group of the `quota` neighbour."""
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
            counts = (
                f"{arm(n, d)}: {dict(kept.count(OURS, [circumstance(kind, n)], list(KERNELS), d))}" for n, d in asked
            )
            now = f"{datetime.now(timezone.utc):%H:%M} UTC"
            print(f"… {now}, {i + 1} of {judged}, {kind}: {'; '.join(counts)}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judged", type=int, default=40, help="rounds of unchanged code (default: 40)")
    parser.add_argument(
        "--dropped", type=int, help="rounds of edited code and of each drop, spread over the others (default: as many)"
    )
    parser.add_argument("--drop", action="append", help="drop to inject (default: 10%%)")
    parser.add_argument("--kind", action="append", choices=EVERY_KIND, help="kind of neighbours (default: all)")
    parser.add_argument(
        "--kernel", action="append", choices=tuple(KERNELS), help=f"kernel to judge (default: {', '.join(OF_EACH)})"
    )
    parser.add_argument("--strict", action="store_true", help="judge a second time, with --bandwidth-strict")
    parser.add_argument("--tolerance", default="5%")
    parser.add_argument("--mib", type=int, default=128, help="MiB of each array (default: 128)")
    options = parser.parse_args()
    dropped = options.judged if options.dropped is None else min(options.dropped, options.judged)
    drops = [0.0, *map(parse_fraction, options.drop or ["10%"])]
    kinds, kernels = list(options.kind or EVERY_KIND), list(options.kernel or OF_EACH)
    modes = (OURS, STRICT) if options.strict else (OURS,)
    kept = Tally()
    begun = datetime.now(timezone.utc)
    with tempfile.TemporaryDirectory() as folder, quota_group(QUOTA_SHARE) as group, signals_as_interrupts():
        if QUOTA in kinds and group is None:
            kinds.remove(QUOTA)
            print(f"Without {QUOTA}: this user cannot make a control group with a quota of processor time.\n")
        given = {"mib": options.mib, "kernels": kernels, "tolerance": options.tolerance}
        arena = Arena(Path(folder), kept, **given, modes=modes)
        try:
            run(arena, kept, kinds, drops, judged=options.judged, dropped=dropped, group=group)
        except KeyboardInterrupt:
            print("ended by a signal: so far", file=sys.stderr)
    ended = datetime.now(timezone.utc)
    print(f"{begun:%Y-%m-%d %H:%M} to {ended:%H:%M} UTC, {platform.processor() or platform.machine()}, ", end="")
    print(f"{os.cpu_count()} processors; tolerance {options.tolerance}, arrays of {options.mib} MiB\n")
    for each in ("neighbours", "kernel"):
        print(result(kept, modes, kinds, kernels, drops, each=each), end="\n\n")
    for mode, kind, (name, drop) in product(modes, kinds, rounds_of(drops)):
        if counts := kept.count(mode, [circumstance(kind, name)], kernels, drop):
            statuses = ", ".join(f"{n} {status}" for status, n in counts.most_common())
            print(f"- {mode}, {kind}, {arm(name, drop)}: {statuses}")


if __name__ == "__main__":
    main()
