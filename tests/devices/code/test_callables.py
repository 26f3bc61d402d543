"""Callables identify themselves where what they do can be told: by NumPy, plain values and functions of their own."""

import functools
import math
import operator
import os
import time

import numpy as np
import pytest

from pytest_bandwidth.devices.code.callables import call_digest, callable_code
from pytest_bandwidth.domain.code.identity import UNKNOWN_CODE

N = 64
SOURCE = '''
import math
import numpy as np

FACTOR = 3.0

def helper(x):
    return x * FACTOR

def kernel(y, x):
    """Say what it does."""
    for part in range(2):
        np.multiply(helper(x), math.sqrt(2.0), out=y)
    return [one for one in (y, x) if one.any()]
'''
UNCHANGED = {
    "another docstring": SOURCE.replace("Say what it does.", "Say it in other words."),
    "an unused name": SOURCE + "\nUNUSED = object()\n",
}
CHANGED = {
    "an operation": SOURCE.replace("multiply", "add"),
    "a number": SOURCE.replace("2.0", "2.5"),
    "a global": SOURCE.replace("FACTOR = 3.0", "FACTOR = 3.5"),
    "a helper": SOURCE.replace("x * FACTOR", "x / FACTOR"),
    "what goes on inside": SOURCE.replace("one.any()", "one.all()"),
}
UNKNOWN = {
    "another module": SOURCE.replace("import math", "import os as math"),
    "an object": SOURCE.replace("FACTOR = 3.0", "FACTOR = object()"),
    "a list that anybody changes": SOURCE.replace("FACTOR = 3.0", "FACTOR = [3.0]"),
    "a missing name": SOURCE.replace("FACTOR = 3.0", ""),
    "a file": SOURCE.replace("multiply(helper(x)", "multiply(open(x)"),
    "a name that it sets": SOURCE.replace("    for part", "    global FACTOR\n    FACTOR = 4\n    for part"),
    "a library": SOURCE.replace("np.multiply", "np.ctypeslib.load_library"),
    "a class": SOURCE.replace("    for part", "    class Own: pass\n    for part"),
    "what is reached by force": SOURCE.replace("multiply(helper(x)", "multiply(helper.__globals__"),
}


def code(function, *args, said=None, **keywords):
    return callable_code(function, args, keywords, said).identity


def code_of(text):
    names = {"__name__": "users_own"}
    exec(text, names)
    return code(names["kernel"], np.zeros(N), np.zeros(N))


@pytest.mark.parametrize("edit", UNCHANGED)
def test_an_edit_that_changes_no_code_leaves_its_identity(edit):
    assert UNCHANGED[edit] != SOURCE
    assert code_of(UNCHANGED[edit]).is_same(code_of(SOURCE), by="sass")


@pytest.mark.parametrize("edit", CHANGED)
def test_an_edit_that_changes_code_changes_its_identity(edit):
    assert CHANGED[edit] != SOURCE
    assert code_of(CHANGED[edit]).changes_since(code_of(SOURCE)) == ("the code changed",)


@pytest.mark.parametrize("edit", UNKNOWN)
def test_what_cannot_be_told_is_unknown(edit):
    assert UNKNOWN[edit] != SOURCE
    assert code_of(UNKNOWN[edit]) == UNKNOWN_CODE


def test_what_a_function_was_made_with_are_its_arguments():
    def made(y, x, factor=2.0):
        return lambda: np.multiply(x, factor, out=y)

    first = code(made(np.zeros(N), np.zeros(N)))
    assert first.is_same(code(made(np.ones(N), np.ones(N))), by="sass")
    for other in (
        made(np.zeros(N), np.zeros(N), 3.0),
        made(np.zeros(N), np.zeros(N, "float32")),
        made(np.zeros(N), np.zeros(2 * N)[::2]),
        made(*[np.zeros(N)] * 2),
    ):
        (said,) = code(other).changes_since(first)
        assert said.startswith("the call changed")
    assert code(made(np.zeros(N), np.zeros(N, object))) == UNKNOWN_CODE
    assert code(made(np.zeros(N), np.ma.zeros(N))) == UNKNOWN_CODE


def test_lists_and_tuples_of_arrays_are_told_by_what_they_hold():
    def made(*arrays):
        calls = [(np.add, *arrays), (np.sum, arrays[0])]
        return lambda: [function(*args) for function, *args in calls]

    one, two = np.zeros(N), np.zeros(N)
    assert code(made(one, two)).is_same(code(made(two, one)), by="sass")
    assert not code(made(one, two)).is_same(code(made(one, one)), by="sass")
    assert not code(made(one, two)).is_same(code(made(one, two, two)), by="sass")


@pytest.mark.parametrize(
    "function",
    [
        *(np.sum, np.add, np.copyto, np.linalg.norm, np.add.reduce, np.zeros(N).sum, math.fsum, operator.neg, sum),
        *(functools.partial(np.sum, axis=0), functools.partial(np.add, np.ones(N)), lambda x: x, np.float32),
    ],
)
def test_what_is_known_by_its_name_or_all_of_its_parts(function):
    assert code(function, np.zeros(N)).function is not None


@pytest.mark.parametrize(
    "function",
    [
        *(time.sleep, open, exec, object(), np.random.default_rng().random, functools.partial(os.stat)),
        *(np.ctypeslib.load_library, functools.wraps(np.sum)(functools.lru_cache(lambda x: x))),
    ],
)
def test_what_is_not_is_unknown(function):
    assert code(function, np.zeros(N)) == UNKNOWN_CODE


def test_a_function_that_calls_itself_ends():
    def twice(x, depth=2):
        return twice(x, depth - 1) if depth else np.sum(x)

    assert code(twice, np.zeros(N)).function is not None


def test_arguments_of_a_call_are_told_by_their_values_and_others_unknown():
    assert code(lambda x: x.sum(), object()) == UNKNOWN_CODE
    assert code(np.sum, np.zeros(N), axis=0).is_same(code(np.sum, np.ones(N), axis=0), by="sass")
    assert not code(np.sum, np.zeros(N), axis=0).is_same(code(np.sum, np.zeros(N), axis=None), by="sass")


def test_what_the_test_says_identifies_any_callable():
    first = code(time.sleep, np.zeros(4), said=b"cubin")
    assert first.is_same(code(np.max, np.ones(4), said="cubin"), by="sass")
    assert not first.is_same(code(time.sleep, np.zeros(4), said=b"another"), by="sass")
    assert not first.is_same(code(time.sleep, np.zeros(5), said=b"cubin"), by="sass")
    assert not first.is_same(code(time.sleep, np.zeros(4), said=b"cubin", axis=0), by="sass")


class Kernel:
    """Stand for a framework's compiled kernel, of which its machine code alone is known."""

    def __getitem__(self, grid):
        return lambda *_: grid


def around(grid=4, times=1, array=None, scale=2.0):
    kernel, held = Kernel(), np.zeros(N) if array is None else array

    def run(x):
        kernel[(grid,)](x, held, scale)

    def often(x):
        for _ in range(times):
            kernel[(grid,)](x, held, scale)

    return code(run if times == 1 else often, np.zeros(N), said=b"cubin")


@pytest.mark.parametrize("other", [{"grid": 8}, {"times": 10}, {"array": np.zeros(2 * N)}, {"scale": 3.0}])
def test_what_stands_around_code_that_the_test_names_is_of_its_identity(other):
    assert around().is_same(around(), by="sass")
    assert not around().is_same(around(**other), by="sass")


def test_what_was_bound_to_a_function_stands_around_its_code_too():
    def run(kernel, grid, x):
        kernel[(grid,)](x)

    def bound(grid):
        return code(functools.partial(run, Kernel(), grid), np.zeros(N), said=b"cubin")

    assert bound(4).is_same(bound(4), by="sass")
    assert not bound(4).is_same(bound(8), by="sass")


def test_what_a_library_notes_on_its_wrapper_is_no_part_of_a_call():
    """Of torch.compile's it is an id."""
    text = "def made(scale):\n    def call(x): return x * scale\n    call.own_id = id(call)\n    return call\n"
    own, installed = {}, {}
    exec(compile(text, "/root/own.py", "exec"), own)
    exec(compile(text, "/env/lib/site-packages/compiler.py", "exec"), installed)

    def called(module, scale):
        return call_digest(module["made"](scale), (np.zeros(N),), {})

    assert called(installed, 2) == called(installed, 2) != called(installed, 3)
    kept = [module["made"](2) for module in (own, own)]
    assert len({call_digest(call, (), {}) for call in kept}) == 2
