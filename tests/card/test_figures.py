"""A copy's figure on the card: what its memory gives, the same to the digit however busy the machine is."""

from typing import Any

import pytest
from card_processes import PTX, Card
from neighbours import beside

# The first card of card/time_model.c: its peak, and what of it a copy reaches. The 4 MiB here are 16 caches.
PEAK_GBPS, COPY_SHARE = 80, 0.89
LARGE, SMALL_CACHE = {**PTX, "N": str(1 << 19)}, {"L2_BYTES": 1 << 18}


@pytest.fixture(scope="module")
def seen(shared_card: Card) -> Any:
    return shared_card.told("measured", LARGE, **SMALL_CACHE)


def test_a_copy_has_the_bandwidth_of_the_cards_memory(seen: Any) -> None:
    copied = seen["first"]
    assert copied["gbps"] == pytest.approx(PEAK_GBPS * COPY_SHARE, rel=0.02)  # its noise is half a percent
    assert copied["relative"] == pytest.approx(1, rel=0.02)
    assert copied["findings"] == []


def test_figures_repeat_to_the_digit_beside_busy_processes(seen: Any, card: Card) -> None:
    with beside("steady"):
        again = card.told("measured", LARGE, **SMALL_CACHE)
    assert again == seen
    assert len(set(seen["first"]["rounds"]["kernel_seconds"])) > 1
