"""Find the arrays of a call, pass over other values, and refuse arrays that cannot be measured."""

from collections import deque, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.frameworks.arrays import arrays_in, grouped, located, refuse_mixed

X, Y = np.zeros(8), np.zeros(16, np.float32)
Pair = namedtuple("Pair", "left right")


class Offered:
    """An array of another library."""

    __array_interface__ = X.__array_interface__


@dataclass
class Layer:
    weight: object
    bias: object = None


def paths(value):
    return [path for path, _ in arrays_in(value, "x")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (X, ["x"]),
        ([X, (Y, [X])], ["x[0]", "x[1][0]", "x[1][1][0]"]),
        ({"w": X, 3: {"b": Y}}, ["x['w']", "x[3]['b']"]),
        (Pair(X, 1), ["x[0]"]),
        (Layer(X, [Y]), ["x.weight", "x.bias[0]"]),
        (deque([X, Y]), ["x[0]", "x[1]"]),
        ({1: X}.values(), ["x{…}"]),
        (np.zeros(()), ["x"]),
        (np.ma.zeros(3), ["x"]),
        (np.float32(3), []),
        (Layer, []),
        (("text", b"bytes", 3, None, object(), range(3), bytearray(8)), []),
    ],
)
def test_arrays_are_found_in_containers(value, expected):
    assert paths(value) == expected


def test_an_array_that_another_library_offers_is_found():
    found = located("x", Offered())
    assert (found.extent, found.framework.name) == (located("y", X).extent, __name__)
    assert grouped([found, located("y", X)], {}).nbytes == X.nbytes


@pytest.mark.parametrize("value", [(i for i in ()), iter([X]), [map(abs, [X])]])
def test_what_is_used_up_by_looking_is_refused(value):
    with pytest.raises(UsageError, match=r"which one run would leave empty: expected a list"):
        paths(value)


def test_a_container_in_itself_or_too_large_is_refused():
    around = [X]
    around.append(around)
    for endless in (around, [0] * 100_001):
        with pytest.raises(UsageError, match="x holds too much, or is nested too deep"):
            paths(endless)


def test_objects_are_no_numbers():
    with pytest.raises(UsageError, match="x is an array of Python objects"):
        located("x", np.array([object()]))


def test_a_group_holds_each_place_once():
    views = {}
    found = [located("x", X), located("y", X[:]), located("z", X[2:]), located("w", Y)]
    group = grouped(found, views)
    assert (group.nbytes, [array.size for array in group.arrays]) == (X.nbytes + Y.nbytes, [8, 6, 16])
    # The other side of the declaration has the same object: what is read and written is in memory once.
    assert grouped([located("out", X)], views).arrays[0] is group.arrays[0]


def test_what_is_passed_over_does_not_hide_what_lies_beside_it():
    assert [path for path, _ in arrays_in([X, iter([Y]), {"y": Y}], "x", passing_over=True)] == ["x[0]", "x[2]['y']"]


def test_lists_of_parameters_and_pytrees_are_looked_into(torch, jax):
    parameters = torch.nn.ParameterList([torch.zeros(2), torch.zeros(3)])
    assert paths([parameters, X]) == ["x[0][0]", "x[0][1]", "x[1]"]
    del jax
    from jax.experimental import sparse

    assert len(paths(sparse.BCOO.fromdense(np.eye(3, dtype=np.float32)))) == 2


def test_two_libraries_in_one_call_are_refused():
    with pytest.raises(UsageError, match=r"two frameworks in one call: x is NumPy's, y is test_framework_arrays's"):
        refuse_mixed([located("x", X), located("y", Offered())])
