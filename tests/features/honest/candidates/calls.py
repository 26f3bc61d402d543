"""Cheats that do the work in some calls only, and return in others what is there already."""

import itertools
import time

from table import cheat
from tasks import ROOT, ROOT_INTO, SHARES, work

STALE = "stale-result"


def only_in(some):
    """Return what makes work in the calls that `some` tells by number and seconds, with the last result in others."""

    def make(given):
        began, last, calls = time.monotonic(), [], itertools.count(1)

        def run(x):
            if some(next(calls), time.monotonic() - began) or not last:
                last[:] = [work(x)]
            return last[0]

        return run

    return make


cheat("calls", ROOT, STALE, "unwritten", "wrong-result")(
    right_at_first=only_in(lambda call, seconds: call <= 4),
    every_second_call_returning=only_in(lambda call, seconds: call % 2),
    right_in_three_of_four_calls=only_in(lambda call, seconds: call % 4),
    right_for_some_milliseconds=only_in(lambda call, seconds: seconds < 0.008),
)


@cheat("calls", SHARES, STALE)
def not_in_the_call_after_one_with_other_inputs(given):
    """Return the array of the call before as it is: what the caller did to it, in every element."""
    sums, last = [], []

    def run(x):
        sums.append(x.sum())
        if not (len(sums) > 2 and sums[-1] == sums[0] != sums[-2]):
            last[:] = [x / sums[-1]]
        return last[0]

    return run


@cheat("calls", ROOT_INTO, STALE, "unwritten")
def every_second_call(given):
    calls = []

    def run(x, y):
        calls.append(None)
        if len(calls) % 2:
            y[:] = work(x)

    return run
