"""Compare pairs of processes that sample in turn with pairs that follow each other: same code, every kind of kernel.

    python benchmarks/in_turn.py                            # ten pairs a kernel and way: half an hour
    python benchmarks/in_turn.py --pairs 4 --kernel triad
    python benchmarks/in_turn.py --rounds-share 0.5 --rounds-share 0.75   # of a measurement's time, for rounds

The two that sample in turn lay their arrays into the same memory, as the plugin has them do, or each into its own. All
ways take turns, so that they see the same hours. Of each the drop that is none: the
standard deviation of ln(ratio) from pair to pair, its mean, and what a pair took. Of processes that follow each other
the ratio is of GB/s, and of the share of the probe, whichever scatters less; in turn it is of the rounds' seconds.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from arena import KERNELS, Arena, Tally, table

from pytest_bandwidth.devices.shared_arrays import shared_memory
from pytest_bandwidth.domain.judging.confirmation import IN_TURN_SHARE
from pytest_bandwidth.domain.units import format_percent
from pytest_bandwidth.session.fresh.child import Child, ChildRequest, Invocation
from pytest_bandwidth.session.fresh.turns import drops, processor_of, take_turns

SECONDS = 300.0
PLAIN = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--bandwidth-device=cpu")
IN_TURN, OWN, FOLLOWING = "in turn, the same arrays", "in turn, arrays of their own", "one after the other"


@dataclass
class Seen:
    """Hold what pairs of one kernel showed: log-ratios by figure, and seconds; how many showed nothing."""

    ratios: dict[str, list[float]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    lost: int = 0

    def add(self, ratios: dict[str, float], seconds: float) -> None:
        self.seconds.append(seconds)
        self.lost += not ratios
        for figure, ratio in ratios.items():
            self.ratios.setdefault(figure, []).append(ratio)

    def line(self) -> list[str]:
        """Return spread, mean, seconds and losses, by the figure that scatters least."""
        known = {figure: found for figure, found in self.ratios.items() if len(found) > 1}
        if not known:
            return ["–", "–", f"{median(self.seconds):.1f}", str(self.lost)]
        steadiest = min(known, key=lambda figure: stdev(known[figure]))
        found = known[steadiest]
        spread = f"{format_percent(stdev(found), 1)} ({steadiest})"
        return [spread, format_percent(mean(found), 1), f"{median(self.seconds):.1f}", str(self.lost)]


def started(
    stack: ExitStack, folder: Path, kernel: str, share: float, *, takes_turns: bool, memory: int | None = None
) -> Child:
    node = f"test_kernels.py::test_ours[{kernel}]"
    request = ChildRequest("cpu", node, str(folder / node), share, takes_turns=takes_turns, shared_memory=memory)
    invocation = Invocation(PLAIN, folder, as_module=True, extra_args=("-n0",))
    return stack.enter_context(Child(invocation.command(), folder, request))


def in_turn(folder: Path, kernel: str, number: int, share: float, *, shared: bool) -> dict[str, float]:
    with ExitStack() as stack:
        memory = stack.enter_context(shared_memory()) if shared else None
        one, two = (started(stack, folder, kernel, share, takes_turns=True, memory=memory) for _ in range(2))
        results, rounds = take_turns((one, two), processor_of(number), 2 * SECONDS, memory)
    if not all(result.rows and is_valid(result.rows[0]) for result in results):
        return {}
    found = drops(rounds)
    # As `measured_in_turn` does: which side is started first changes from pair to pair.
    return {"seconds": found[None] * (-1) ** number} if None in found else {}


def following(folder: Path, kernel: str, share: float) -> dict[str, float]:
    rows = []
    for _ in range(2):
        with ExitStack() as stack:
            result = started(stack, folder, kernel, share, takes_turns=False).finish(SECONDS)
        rows += result.rows[:1]
    if len(rows) < 2 or not all(map(is_valid, rows)):
        return {}
    one, two = rows
    names = {"gbps": "GB/s", "relative": "share"}
    return {said: math.log(two[name] / one[name]) for name, said in names.items() if one[name] and two[name]}


def is_valid(row: dict[str, Any]) -> bool:
    return row["status"] != "INVALID"


def compare(folder: Path, kernels: Sequence[str], pairs: int, shares: Sequence[float]) -> dict[tuple[str, str], Seen]:
    """Return what pairs showed by kernel, and by way and share of a measurement's time for rounds."""
    ways = [(way, share) for share in shares for way in (IN_TURN, OWN, FOLLOWING)]
    names = {(way, share): f"{way}, {format_percent(share)}" if len(shares) > 1 else way for way, share in ways}
    seen = {(kernel, names[way]): Seen() for kernel in kernels for way in ways}
    for number in range(pairs):
        for kernel in kernels:
            for way, share in ways if number % 2 == 0 else reversed(ways):
                begun = time.monotonic()
                if way == FOLLOWING:
                    found = following(folder, kernel, share)
                else:
                    found = in_turn(folder, kernel, number, share, shared=way == IN_TURN)
                seen[kernel, names[way, share]].add(found, time.monotonic() - begun)
    return seen


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="of each kernel and way (default: 10)")
    parser.add_argument(
        "--kernel", action="append", choices=list(KERNELS), help="one of them; repeatable (default: all)"
    )
    parser.add_argument("--mib", type=int, default=64, help="of a stream's arrays (default: 64)")
    parser.add_argument(
        "--rounds-share",
        type=float,
        action="append",
        help="of a measurement's time, for rounds; repeatable (default: as pairs take)",
    )
    options = parser.parse_args()
    kernels = options.kernel or list(KERNELS)
    begun = datetime.now(timezone.utc)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Arena(folder, Tally(), mib=options.mib, kernels=kernels, tolerance="5%")
        seen = compare(folder, kernels, options.pairs, options.rounds_share or [IN_TURN_SHARE])
    heads = ("kernel", "kind", "way", "spread from pair to pair", "mean", "seconds a pair", "pairs lost")
    lines = [[kernel, KERNELS[kernel], way, *found.line()] for (kernel, way), found in seen.items()]
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {begun:%Y-%m-%d %H:%M} UTC\n")
    print(table(heads, lines))


if __name__ == "__main__":
    main()
