"""Cheats that do a part of the work, or with fewer digits."""

import numpy as np
from table import DOUBLES, ROOT, ROOT_INTO, WITH, Task, cheat, work

WRONG, UNWRITTEN = "wrong-result", "unwritten"


@cheat("tail", ROOT_INTO, UNWRITTEN)
def last_three_elements(x, y):
    y[:-3] = work(x[:-3])


@cheat("tail", ROOT_INTO, UNWRITTEN)
def nothing_at_all(x, y):
    pass


@cheat("tail", ROOT, WRONG, ways=[WITH])
def tail_of_zeros(x):
    result = np.zeros_like(x)
    result[:-64] = work(x[:-64])
    return result


@cheat("middle", ROOT_INTO, UNWRITTEN)
def one_element(x, y):
    kept = y[1234]
    y[:] = work(x)
    y[1234] = kept


@cheat("middle", ROOT_INTO, UNWRITTEN)
def even_mantissas(x, y):
    np.copyto(y, work(x), where=(x.view("uint32") & 1).astype(bool))


@cheat("middle", ROOT_INTO, WRONG, ways=[WITH])
def zero_for_one_element_that_is_rare(x, y):
    y[:] = work(x)
    y[x > 1.999] = 0


@cheat("middle", ROOT_INTO, WRONG, "stale-result", ways=[WITH])
def one_block_is_never_new(given):
    kept = work(given.args[0][4096:5120])

    def run(x, y):
        y[:4096], y[5120:] = work(x[:4096]), work(x[5120:])
        y[4096:5120] = kept

    return run


cheat("precision", ROOT, WRONG, ways=[WITH])(
    float16_inside=lambda x: work(x.astype("float16")).astype("float32"),
    rounded_to_bfloat16=lambda x: (work(x).view("uint32") + 0x8000 & 0xFFFF_0000).view("float32"),
    returned_as_halves=lambda x: work(x).astype("float16"),
)
cheat("precision", DOUBLES, WRONG, ways=[WITH])(float32_inside=lambda x: work(x.astype("float32")).astype("float64"))


def _signed(bandwidth):
    return bandwidth.random(1 << 15, distribution="signed"), bandwidth.empty(1 << 15)


@cheat("assumption", Task(_signed, lambda x, y: np.maximum(x, 0), writes=(1,)), WRONG, ways=[WITH])
def copy_for_a_ramp(x, y):
    np.maximum(x, 0, out=y)
    y[:100] = x[:100]


cheat("assumption", ROOT, WRONG, ways=[WITH])(
    wrong_shape=lambda x: work(x)[:-1],
)


@cheat("noise", ROOT, "nondeterministic", WRONG)
def random_noise(given):
    generator = np.random.default_rng(1)
    return lambda x: work(x) + generator.random(x.size, "float32") * np.float32(1e-3)


@cheat("noise", ROOT_INTO, "nondeterministic", UNWRITTEN, WRONG)
def adds_to_what_is_there(x, y):
    y += work(x)
