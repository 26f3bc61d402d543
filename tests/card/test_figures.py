"""A copy's figure on the card: what its memory gives, and how its samples differ."""

import pytest
from card_processes import PTX, Card

# The first card of card/time_model.c: its peak, and what of it a copy reaches. The 4 MiB here are 16 caches.
PEAK_GBPS, COPY_SHARE = 80, 0.89
LARGE, SMALL_CACHE = {**PTX, "N": str(1 << 19)}, {"L2_BYTES": 1 << 18}


def test_a_copy_has_the_bandwidth_of_the_cards_memory(card: Card) -> None:
    copied = card.told("measured", LARGE, **SMALL_CACHE)["first"]
    assert copied["gbps"] == pytest.approx(PEAK_GBPS * COPY_SHARE, rel=0.02)  # its noise is half a percent
    assert copied["relative"] == pytest.approx(1, rel=0.02)
    assert copied["findings"] == []
    assert len(set(copied["rounds"]["kernel_seconds"])) > 1
