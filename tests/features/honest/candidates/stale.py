"""Cheats that give back what they computed before: by every key under which a result can be kept, or by the call."""

import itertools
import time

import numpy as np
from table import ROOT, ROOT_INTO, SHARES, SUM, WITH, cheat, work

STALE = "stale-result"


def kept_by(key, compute=work):
    """Return work that keeps its results by a key of its input."""
    results = {}

    def run(x):
        found = key(x)
        if found not in results:
            results[found] = compute(x)
        return results[found]

    return run


def kept_by_into(key):
    """Return work that writes its kept result, so that its memory is always new to the caller."""
    kept = kept_by(key)

    def run(x, y):
        y[:] = kept(x)

    return run


def _few(x):
    return x[0], x[x.size // 2], x[-1]


def _strided(x):
    return hash(x[::64].tobytes())


KEYS = {
    # A few, since a key that holds the largest element is a dependence on that one: without a reference it passes.
    "first_few": lambda x: hash(x[:8].tobytes()),
    "by_address": lambda x: x.ctypes.data,
    "by_shape": lambda x: (x.shape, x.dtype),
}


def keeping(kept, key):
    return lambda given: kept(key)


cheat("key", ROOT, STALE)(
    **{name: keeping(kept_by, key) for name, key in KEYS.items()},
    rounded_mean_of_a_sample=keeping(kept_by, lambda x: round(float(x[::16].mean()), 2)),
)
cheat("key", ROOT_INTO, STALE)(**{f"{name}_into": keeping(kept_by_into, key) for name, key in KEYS.items()})
cheat("key", ROOT_INTO, STALE, ways=[WITH])(
    strided_sample_into=keeping(kept_by_into, _strided),
    sum_of_all_but_the_last_digits=keeping(kept_by_into, lambda x: round(float(x.sum()))),
)
cheat("key", SUM, STALE)(sum_by_few_elements=lambda given: kept_by(_few, lambda x: x.sum()))


@cheat("pointer", ROOT_INTO, "unwritten", STALE)
def nothing_where_addresses_are_known(given):
    known = set()

    def run(x, y):
        addresses = x.ctypes.data, y.ctypes.data
        if addresses not in known:
            known.add(addresses)
            y[:] = work(x)

    return run


@cheat("poison", ROOT_INTO, STALE, "unwritten")
def right_where_the_output_is_poisoned(given):
    """Know that no root is negative, which the inverted bits of one are."""
    last = []

    def run(x, y):
        if not last or y[0] < 0:
            last[:] = [work(x)]
        y[:] = last[0]

    return run


cheat("constant", ROOT, STALE, "wrong-result")(zeros=lambda x: np.zeros_like(x))
cheat("constant", ROOT_INTO, STALE, "wrong-result")(filled=lambda x, y: y.fill(3.5))


@cheat("precomputed", ROOT, STALE)
def at_import(given):
    answer = work(given.args[0])
    return lambda x: answer


# ---- the work in some calls only, and in others what is there already ------------------------------------------------


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
