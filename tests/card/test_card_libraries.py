"""cuBLAS and thrust as far as the card stands in for them, by CuPy's own calls."""

from typing import Any

import pytest
from card_processes import Card

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def seen(shared_card: Card) -> Any:
    return shared_card.told("libraries")


@pytest.mark.parametrize(("kind", "rounding"), [("float16", 2**-7), ("float32", 2**-20), ("float64", 2**-46)])
def test_products_of_rows_and_columns(seen: Any, kind: str, rounding: float) -> None:
    assert max(seen[kind]) < rounding  # of sums below 31


def test_stacks_of_matrices_and_other_streams(seen: Any) -> None:
    assert seen["stacked"] < 1e-12
    assert seen["on a stream"] < 1e-12


def test_what_is_not_done_is_an_error(seen: Any) -> None:
    assert "NOT_SUPPORTED" in seen["not done"]


def test_sorting_gives_the_order(seen: Any) -> None:
    assert seen["sorted"] is True
