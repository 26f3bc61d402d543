"""Compare pairs of processes that sample alternately with pairs that follow each other, for every kind of kernel.

    python benchmarks/in_turn.py                            # ten pairs a kernel and way: an hour
    python benchmarks/in_turn.py --pairs 4 --kernel triad
    python benchmarks/in_turn.py --edited                   # one of the two runs edited code that does the same
    python benchmarks/in_turn.py --drop 5% --way alternate  # one of the two runs slower code

"alternate" is how the plugin takes pairs. Three ways leave out what such a pair has in common: the memory of its
arrays, the addresses of its processes, or both. All ways run in every round, so that they meet the same machine.
The table has the standard deviation of ln(ratio) from pair to pair, the largest ratio, the mean, and the seconds of a
pair. For pairs that sample alternately the ratio is of the rounds' seconds. For those that follow each other it is of
GB/s or of the share of the probe, whichever varies less. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any
from unittest.mock import patch

from arena import KERNELS, Arena, table

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.units import format_percent, parse_fraction
from pytest_bandwidth.evidence.commit_pairs import process as processes
from pytest_bandwidth.evidence.commit_pairs.alternate import FINEST_PRECISION
from pytest_bandwidth.evidence.commit_pairs.process import Worktrees
from pytest_bandwidth.evidence.commit_pairs.worktree import CheckedOut
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.judging.judge import ALTERNATE_SHARE, ROUNDS_SHARE

SECONDS = 300.0
PLAIN = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "bandwidth", "--bandwidth-device=cpu")
OWN_MEMORY = ("shared_memory", lambda: nullcontext(None))
OWN_ADDRESSES = ("addresses_of_pair", dict)
FOLLOWING = "one after the other"
# Each way, with what it leaves out.
WAYS: dict[str, Sequence[tuple[str, Callable[[], Any]]]] = {
    "alternate": (),
    "alternate, separate memory": (OWN_MEMORY,),
    "alternate, separate addresses": (OWN_ADDRESSES,),
    "alternate, both separate": (OWN_MEMORY, OWN_ADDRESSES),
    FOLLOWING: (),
}


@dataclass
class Pairs:
    """Hold the pairs of one kernel: log-ratios by figure, and seconds. lost: how many gave no ratio."""

    ratios: dict[str, list[float]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    lost: int = 0

    def add(self, ratios: dict[str, float], seconds: float) -> None:
        self.seconds.append(seconds)
        self.lost += not ratios
        for figure, ratio in ratios.items():
            self.ratios.setdefault(figure, []).append(ratio)

    def line(self) -> list[str]:
        """Return spread, largest, mean, seconds and losses, by the figure that scatters least."""
        known = {figure: found for figure, found in self.ratios.items() if len(found) > 1}
        if not known:
            return ["–", "–", "–", f"{median(self.seconds):.1f}", str(self.lost)]
        steadiest = min(known, key=lambda figure: stdev(known[figure]))
        found = known[steadiest]
        spread, largest = f"{format_percent(stdev(found), 1)} ({steadiest})", max(map(abs, found))
        figures = [spread, format_percent(largest, 1), format_percent(mean(found), 1)]
        return [*figures, f"{median(self.seconds):.1f}", str(self.lost)]


def in_turn(both: Worktrees, number: int, without: Sequence[tuple[str, Callable[[], Any]]]) -> dict[str, float]:
    with ExitStack() as stack:
        for name, nothing in without:
            stack.enter_context(patch.object(processes, name, nothing))
        found = both.alternating(number, FINEST_PRECISION)
    if not (found.head[None].is_valid and found.base[None].is_valid):
        return {}
    return {"seconds": found.drops[None]} if None in found.drops else {}


def following(both: Worktrees, number: int) -> dict[str, float]:
    if number % 2 == 0:
        head, base = both.head()[0], both.base()[0]
    else:
        base, head = both.base()[0], both.head()[0]
    if not (is_valid(head) and is_valid(base)):
        return {}
    names = {"gbps": "GB/s", "relative": "share"}
    return {figure: math.log(base[name] / head[name]) for name, figure in names.items() if head[name] and base[name]}


def is_valid(row: dict[str, Any]) -> bool:
    return bool(row["is_valid"])


def compare(folder: Path, kernels: Sequence[str], pairs: int, ways: Sequence[str]) -> dict[tuple[str, str], Pairs]:
    """Take the pairs; return them by kernel and way."""
    seen = {(kernel, way): Pairs() for kernel in kernels for way in ways}
    checked_out = CheckedOut(folder, "HEAD")
    invocation = Invocation(PLAIN, folder, as_module=True)
    try:
        for number in range(pairs):
            for kernel in kernels:
                nodeid, file = f"test_kernels.py::test_ours[{kernel}]", folder / "test_kernels.py"
                both = Worktrees(invocation, checked_out.revision, "cpu", nodeid, file, SECONDS, ALTERNATE_SHARE)
                for way in ways if number % 2 == 0 else reversed(ways):
                    begun = time.monotonic()
                    try:
                        if way == FOLLOWING:
                            found = following(replace(both, rounds_share=ROUNDS_SHARE), number)
                        else:
                            found = in_turn(both, number, WAYS[way])
                    except BandwidthError:
                        found = {}
                    seen[kernel, way].add(found, time.monotonic() - begun)
    finally:
        checked_out.remove()
    return seen


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="of each kernel and way (default: 10)")
    parser.add_argument(
        "--kernel", action="append", choices=list(KERNELS), help="one of them; repeatable (default: all)"
    )
    parser.add_argument("--mib", type=int, default=64, help="of a stream's arrays (default: 64)")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="one of them; repeatable (default: all)")
    parser.add_argument("--edited", action="store_true", help="one of the two runs edited code")
    parser.add_argument(
        "--drop", type=parse_fraction, default=0.0, help="one of the two is this much slower (default: 0%%)"
    )
    options = parser.parse_args()
    kernels = options.kernel or list(KERNELS)
    begun = datetime.now(timezone.utc)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arena = Arena(folder, mib=options.mib, kernels=kernels, tolerance="5%")
        if options.edited or options.drop:
            arena.edit(options.drop)
        seen = compare(folder, kernels, options.pairs, options.way or list(WAYS))
    heads = ("kernel", "kind", "way", "spread from pair to pair", "largest", "mean", "seconds a pair", "pairs lost")
    lines = [[kernel, KERNELS[kernel], way, *found.line()] for (kernel, way), found in seen.items()]
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {begun:%Y-%m-%d %H:%M} UTC\n")
    print(table(heads, lines))


if __name__ == "__main__":
    main()
