"""Results against what a test says that they have to be: tolerances, shapes, and what is said of a difference."""

import numpy as np
import pytest

from pytest_bandwidth import Reference
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.honest.arrays import view_of
from pytest_bandwidth.features.honest.reference import compared, copied, expected_arrays, reference_of

X = np.random.default_rng(3).random(10_000) + 1


@pytest.fixture(scope="module")
def device():
    return open_device("cpu")


def found(device, result, expected, **tolerances):
    return compared(Reference(None, **tolerances), [view_of(device, "out", result)], [expected], device)


@pytest.mark.parametrize(("dtype", "within", "beyond"), [("f2", 9e-4, 4e-3), ("f4", 1e-6, 2e-5), ("f8", 9e-8, 3e-7)])
def test_tolerances_are_those_of_the_results_type(device, dtype, within, beyond):
    expected = np.full(100, 4.0, dtype)
    for error, is_right in ((within, True), (beyond, False)):
        result = expected.copy()
        result[7] = 4 * (1 + error)
        assert result[7] != 4
        assert (found(device, result, expected) is None) is is_right


def test_a_tolerance_that_is_given_holds_alone(device):
    result, expected = np.float32([1.0, 101.0]), np.float32([1.0, 100.0])
    assert found(device, result, expected, rtol=0.02) is None
    assert found(device, result, expected, atol=1.0) is None
    assert "1 of 2 elements of out differ from the reference, first [1]: 101 in place of 100" in found(
        device, result, expected, atol=0.5
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_agree_with_themselves_alone(device, value):
    special, finite = np.float32([value, 1]), np.float32([1, 1])
    assert found(device, special, special) is None
    assert found(device, special, finite, rtol=0.5) is not None
    assert found(device, finite, special, rtol=0.5) is not None


def test_errors_of_half_precision_are_called_so(device):
    wrong = found(device, X.astype("f2").astype("f4"), X.astype("f4"))
    assert wrong.endswith("is of the size of float16's rounding")
    assert "rounding" not in found(device, (X + 1).astype("f4"), X.astype("f4"))


def test_whole_numbers_have_no_tolerance(device):
    assert found(device, np.arange(5), np.arange(5)) is None
    assert "first [4]: 4 in place of 5" in found(device, np.arange(5), np.array([0, 1, 2, 3, 5]))


def test_a_difference_beyond_the_first_part_is_found_at_its_place(device):
    result = np.zeros((3, 1 << 21), "f4")
    result[2, 17] = 1
    assert "1 of 6,291,456 elements of out differ from the reference, first [2, 17]" in found(
        device, result, np.zeros_like(result)
    )


def test_numbers_that_a_narrower_type_holds_are_called_so(device):
    """Their errors may be as small as the tolerance."""
    rounded = "all numbers of out are rounded to float32, and the reference's are not"
    assert found(device, X.astype("f4").astype("f8"), X) == rounded
    assert found(device, X.astype("f4").astype("f8"), X, rtol=1e-7) is None
    whole = np.arange(100.0)
    assert found(device, whole, whole) is None


def test_a_narrower_type_than_inputs_and_reference_is_no_reason_for_larger_errors(device):
    result = [view_of(device, "result", X.astype("f2"))]
    for input_bytes, expected, is_right in ((4, "f4", False), (2, "f4", True), (4, "f2", True), (0, "f4", True)):
        wrong = compared(Reference(None), result, [X.astype(expected)], device, input_bytes)
        assert (wrong is None) is is_right


def test_shapes_and_numbers_of_arrays_must_agree(device):
    assert found(device, np.zeros(5), np.zeros(4)) == "out has the shape (5,), and the reference's (4,)"
    with pytest.raises(UsageError, match="the reference gave 2 arrays, and the work has 1"):
        compared(Reference(None), [view_of(device, "out", X)], [X, X], device)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (3, "found a int, expected a callable"),
        (Reference(X, rtol=-1), "rtol=-1, expected a number"),
        (Reference(X, atol="x"), "atol='x', expected a number"),
    ],
)
def test_what_is_no_reference_is_refused(check, said):
    with pytest.raises(UsageError, match=said):
        reference_of(check)


def test_a_reference_gets_copies_and_returns_or_writes_what_is_expected():
    x, out = X.copy(), np.zeros_like(X)

    def writes(x, out):
        x[:] = 0
        out[:] = 1

    (written,) = expected_arrays(Reference(writes), (x, out), {}, [out])
    assert (written == 1).all()
    assert (x == X).all()
    assert (out == 0).all()
    (returned,) = expected_arrays(Reference(lambda x: 2 * x), (x,), {}, [])
    np.testing.assert_array_equal(returned, 2 * X)
    (named,) = expected_arrays(Reference(writes), (x,), {"out": out}, [out])
    assert (named == 1).all()
    with pytest.raises(UsageError, match="the reference returned a generator, expected arrays or a number"):
        expected_arrays(Reference(lambda x: (one for one in x)), (x,), {}, [])
    (number,) = expected_arrays(Reference(lambda x: float(x[0])), (x,), {}, [])
    assert number == X[0]


def test_copies_lie_elsewhere_in_containers_too():
    given = {"layers": [X, (X, 3)], "n": 5}
    memo = {}
    copy = copied(given, memo)
    assert copy["n"] == 5
    assert copy["layers"][1][1] == 3
    assert not np.shares_memory(copy["layers"][0], X)
    assert memo[id(X)] is copy["layers"][0] is copy["layers"][1][0]
