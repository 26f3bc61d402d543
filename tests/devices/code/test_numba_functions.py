"""Numba functions identify themselves where what decides their machine code can be told; else nothing is claimed."""

import math

import pytest

pytest.importorskip("numba", reason="Numba functions need Numba: pip install 'pytest-bandwidth[cpu]'")

import numba
import numpy as np
from numba.core.typing.templates import builtin_registry
from numba.extending import overload

from pytest_bandwidth.devices.code.callables import callable_code, function_digest
from pytest_bandwidth.domain.code.identity import UNKNOWN_CODE

SOURCE = '''
import math
import numba
import numpy as np

FACTOR = 3.0
TABLE = np.arange(4.0)

@numba.njit
def helper(x):
    return x * FACTOR

def plain(x):
    return x

def made(power):
    @numba.njit
    def inner(x):
        return x ** power
    return inner

@numba.njit(parallel=True)
def kernel(out, a):
    """Say what it does."""
    for i in numba.prange(out.size):
        out[i] = helper(a[i]) + math.sqrt(2.0) + TABLE[1]
'''
UNCHANGED = {
    "another docstring": SOURCE.replace("Say what it does.", "Say it in other words."),
    "an unused name": SOURCE + "\nUNUSED = object()\n",
    "names of variables": SOURCE.replace("a[i]", "x[i]").replace("(out, a)", "(out, x)"),
}
CHANGED = {
    "an operation": SOURCE.replace(") + math", ") - math"),
    "a number": SOURCE.replace("sqrt(2.0)", "sqrt(2.5)"),
    "a global": SOURCE.replace("FACTOR = 3.0", "FACTOR = 3.5"),
    "a global array": SOURCE.replace("arange(4.0)", "arange(4.0) + 1"),
    "a helper's options": SOURCE.replace("@numba.njit\ndef helper", "@numba.njit(fastmath=True)\ndef helper"),
    "options": SOURCE.replace("parallel=True", "parallel=True, fastmath=True"),
    "a name of a module": SOURCE.replace("math.sqrt", "math.exp"),
}
UNKNOWN = {
    "a plain function": SOURCE.replace("= helper(", "= plain("),
    "an object": SOURCE.replace("FACTOR = 3.0", "FACTOR = object()"),
    "a missing name": SOURCE.replace("FACTOR = 3.0", ""),
    "a large array": SOURCE.replace("np.arange(4.0)", "np.zeros(2**18)"),
    "a list": SOURCE.replace("np.arange(4.0)", "[1.0, 2.0]"),
    "a module of the user's": SOURCE.replace("import math", "import types\nmath = types.ModuleType('own')"),
}


def module(text: str) -> dict:
    names = {"__name__": "users_own"}
    exec(text, names)
    return names


def digest_of(text: str) -> str | None:
    return function_digest(module(text)["kernel"])


@pytest.mark.parametrize("edit", UNCHANGED)
def test_an_edit_that_changes_no_code_leaves_its_identity(edit):
    assert UNCHANGED[edit] != SOURCE
    assert digest_of(UNCHANGED[edit]) == digest_of(SOURCE) is not None


@pytest.mark.parametrize("edit", CHANGED)
def test_an_edit_that_changes_code_changes_its_identity(edit):
    assert CHANGED[edit] != SOURCE
    assert digest_of(CHANGED[edit]) not in (None, digest_of(SOURCE))


@pytest.mark.parametrize("edit", UNKNOWN)
def test_what_cannot_be_told_is_unknown(edit):
    assert UNKNOWN[edit] != SOURCE
    assert digest_of(UNKNOWN[edit]) is None


def test_closures_are_told_by_what_they_hold():
    made = module(SOURCE)["made"]
    assert function_digest(made(2)) == function_digest(made(2)) is not None
    assert len({function_digest(made(power)) for power in (2, 3, 2.0)}) == 3
    assert function_digest(made(object())) is None


@pytest.mark.parametrize("function", [np.sum, len, lambda x: x, numba.vectorize(lambda x: x + 1), None, "text"])
def test_nothing_else_is_a_numba_function(function):
    assert function_digest(function) is None


def test_code_that_a_user_taught_numba_makes_all_unknown():
    names = module(SOURCE)
    before = function_digest(names["kernel"])

    @overload(math.nextafter)
    def own(x):
        del x
        return lambda x: x

    try:
        assert before is not None
        assert function_digest(names["kernel"]) is None
    finally:
        builtin_registry.functions.pop()
    assert function_digest(names["kernel"]) == before


def test_compiling_a_function_does_not_change_its_identity():
    kernel = module(SOURCE)["kernel"]
    before = function_digest(kernel)
    kernel(np.empty(4), np.empty(4))
    assert function_digest(kernel) == before


def code(function, *args, said=None, **keywords):
    return callable_code(function, args, keywords, said).identity


def test_a_call_is_told_by_its_arguments():
    kernel, small, large = module(SOURCE)["kernel"], np.zeros(4), np.zeros(8)
    first = code(kernel, small, np.zeros(4))
    assert first.is_same(code(kernel, small, np.ones(4)), by="sass")
    assert not first.is_same(code(kernel, small, small), by="sass")
    others = [(large, large), (small, small.astype(np.float32)), (small, 3.0), (small, small[::-1]), (small, (1, 2))]
    for other in others:
        found = code(kernel, *other)
        assert found.function == first.function
        assert not found.is_same(first, by="sass")
    assert code(kernel, small, object()) == UNKNOWN_CODE
    assert code(kernel, small, [1.0]) == UNKNOWN_CODE
