import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.values import brought


def test_lists_are_joined_in_their_order():
    assert brought("a_hook", [["b"], (), ["a", "c"]], str) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (3, "a_hook: found 3, expected a list of str: return one"),
        ("text", "a_hook: found 'text', expected a list of str: return one"),
        ([3], "a_hook: found 3 in its list, expected a list of str: return that"),
        ("x" * 99, f"a_hook: found '{'x' * 60}…', expected a list of str: return one"),
    ],
)
def test_what_is_no_list_of_the_kind_is_told_in_one_line(found, said):
    with pytest.raises(UsageError) as told:
        brought("a_hook", [found], str)
    assert str(told.value) == said


def test_items_are_named_as_the_caller_says():
    with pytest.raises(UsageError, match=r"expected a list of Reporter: return one$"):
        brought("a_hook", [None], object, "Reporter")
