"""Cheats that give back what they computed before, by every key under which a result can be kept."""

import functools
import time
import weakref

import numpy as np
from table import WITH, cheat
from tasks import ROOT, ROOT_INTO, SUM, work

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


@cheat("fingerprint", ROOT, STALE)
def ends_and_middle(given):
    return kept_by(lambda x: (x[0], x[x.size // 2], x[-1]))


@cheat("fingerprint", ROOT_INTO, STALE)
def ends_and_middle_into(given):
    return kept_by_into(lambda x: (x[0], x[x.size // 2], x[-1]))


@cheat("fingerprint", ROOT, STALE)
def strided_sample(given):
    return kept_by(lambda x: hash(x[::64].tobytes()))


@cheat("fingerprint", ROOT_INTO, STALE, ways=[WITH])
def strided_sample_into(given):
    return kept_by_into(lambda x: hash(x[::64].tobytes()))


@cheat("fingerprint", ROOT_INTO, STALE)
def first_block_into(given):
    return kept_by_into(lambda x: hash(x[:256].tobytes()))


@cheat("fingerprint", ROOT_INTO, STALE, ways=[WITH])
def sum_of_all_but_the_last_digits(given):
    return kept_by_into(lambda x: round(float(x.sum())))


@cheat("fingerprint", ROOT, STALE)
def first_block(given):
    return kept_by(lambda x: hash(x[:256].tobytes()))


@cheat("fingerprint", SUM, STALE)
def sum_by_few_elements(given):
    return kept_by(lambda x: (x[0], x[x.size // 2], x[-1]), lambda x: x.sum())


@cheat("fingerprint", ROOT, STALE)
def rounded_mean_of_a_sample(given):
    return kept_by(lambda x: round(float(x[::16].mean()), 2))


@cheat("fingerprint", ROOT, STALE)
def random_places_fixed_once(given):
    places = np.random.default_rng(7).integers(0, given.args[0].size, 32)
    return kept_by(lambda x: hash(x[places].tobytes()))


@cheat("pointer", ROOT, STALE)
def by_address(given):
    return kept_by(lambda x: x.ctypes.data)


@cheat("pointer", ROOT_INTO, STALE)
def by_address_into(given):
    return kept_by_into(lambda x: x.__array_interface__["data"][0])


@cheat("pointer", ROOT_INTO, "unwritten", STALE)
def nothing_where_addresses_are_known(given):
    known = set()

    def run(x, y):
        addresses = x.ctypes.data, y.ctypes.data
        if addresses not in known:
            known.add(addresses)
            y[:] = work(x)

    return run


@cheat("shape", ROOT, STALE)
def by_shape(given):
    return kept_by(lambda x: (x.shape, x.dtype))


@cheat("shape", ROOT_INTO, STALE)
def by_shape_into(given):
    return kept_by_into(lambda x: x.shape)


@cheat("identity", ROOT, STALE)
def by_id(given):
    return kept_by(id)


@cheat("identity", ROOT_INTO, STALE)
def by_id_into(given):
    return kept_by_into(id)


@cheat("identity", ROOT, STALE)
def by_weak_reference(given):
    results = []

    def run(x):
        for reference, result in results:
            if reference() is x:
                return result
        results.append((weakref.ref(x), work(x)))
        return results[-1][1]

    return run


@cheat("identity", ROOT, STALE)
def by_a_hashable_wrapper(given):
    class Whole:
        def __init__(self, array):
            self.array = array

        def __eq__(self, other):
            return self.array is other.array

        def __hash__(self):
            return id(self.array)

    @functools.lru_cache
    def cached(whole):
        return work(whole.array)

    return lambda x: cached(Whole(x))


@cheat("calls", ROOT, STALE, "unwritten", "wrong-result")
def right_at_first(given):
    calls, last = [], []

    def run(x):
        calls.append(None)
        if len(calls) <= 4:
            last[:] = [work(x)]
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


@cheat("calls", ROOT, STALE, "unwritten", "wrong-result")
def every_second_call_returning(given):
    calls, last = [], []

    def run(x):
        calls.append(None)
        if len(calls) % 2:
            last[:] = [work(x)]
        return last[0]

    return run


@cheat("calls", ROOT, STALE, "unwritten", "wrong-result")
def right_in_three_of_four_calls(given):
    calls, last = [], []

    def run(x):
        calls.append(None)
        if len(calls) % 4:
            last[:] = [work(x)]
        return last[0]

    return run


@cheat("calls", ROOT, STALE, "unwritten", "wrong-result")
def right_for_some_milliseconds(given):
    began, last = time.monotonic(), []

    def run(x):
        if not last or time.monotonic() - began < 0.008:
            last[:] = [work(x)]
        return last[0]

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


@cheat("poison", ROOT_INTO, STALE, "unwritten")
def nothing_where_the_output_is_finite(given):
    def run(x, y):
        if not (0 < y[0] < 100):
            y[:] = work(x)

    return run


@cheat("constant", ROOT, STALE, "wrong-result")
def zeros(x):
    return np.zeros_like(x)


@cheat("constant", ROOT, STALE, "wrong-result")
def one_array_for_ever(given):
    answer = np.full(given.args[0].shape, 3.5, "float32")
    return lambda x: answer


@cheat("constant", ROOT_INTO, STALE, "wrong-result")
def filled(x, y):
    y.fill(3.5)


@cheat("constant", SUM, STALE, "wrong-result")
def expected_sum(given):
    return lambda x: np.float32(1.5 * x.size)


@cheat("precomputed", ROOT, STALE)
def at_import(given):
    answer = work(given.args[0])
    return lambda x: answer


@cheat("precomputed", ROOT_INTO, STALE)
def at_import_into(given):
    answer = work(given.args[0])

    def run(x, y):
        y[:] = answer

    return run
