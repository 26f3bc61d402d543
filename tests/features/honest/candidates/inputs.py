"""Cheats that change their inputs, return them, or work on the first ones for ever."""

import numpy as np
from table import COPY, FLIP, ROOT, ROOT_INTO, cheat, work

MODIFIED, ALIASED, MOVED = "input-modified", "aliased-result", "moved-inputs"


@cheat("overwritten", ROOT, MODIFIED, ALIASED)
def in_place_and_returned(x):
    np.sqrt(x, out=x)
    x *= 3
    return x


@cheat("overwritten", ROOT_INTO, MODIFIED)
def input_as_scratch(x, y):
    np.sqrt(x, out=x)
    np.multiply(x, 3, out=y)


@cheat("overwritten", ROOT_INTO, MODIFIED)
def last_bit_of_the_input(x, y):
    y[:] = work(x)
    x.view("uint32")[-1] ^= 1


@cheat("overwritten", ROOT_INTO, MODIFIED)
def restored_by_the_next_call(given):
    kept = []

    def run(x, y):
        if kept:
            x[:8] = kept[0]
        kept[:] = [x[:8].copy()]
        y[:] = work(x)
        x[:8] = 0

    return run


@cheat("overwritten", ROOT_INTO, MODIFIED)
def every_third_call(given):
    calls = []

    def run(x, y):
        calls.append(None)
        y[:] = work(x)
        if len(calls) % 3 == 0:
            x[5] = 0

    return run


cheat("aliased", COPY, ALIASED)(
    the_input_itself=lambda x: x,
)
cheat("aliased", FLIP, ALIASED)(backwards_view=lambda x: x[::-1])


@cheat("aliased", COPY, ALIASED)
def by_address(x):
    import ctypes

    return np.ctypeslib.as_array((ctypes.c_float * x.size).from_address(x.ctypes.data))


@cheat("first-arrays", ROOT, MOVED)
def first_input(given):
    (first,) = given.args
    return lambda x: work(first)


@cheat("first-arrays", ROOT_INTO, MOVED, "unwritten")
def first_input_and_output(given):
    first, out = given.args

    def run(x, y):
        out[:] = work(first)

    return run
