"""Model copies between memories. The peak of the first two and of the peer copy is the link's, not the memory's."""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, count
from pytest_bandwidth.suite.traffic_models.stream import copy


def host_to_device(n: int, dtype: Any) -> Traffic:
    """Model n·s bytes, all of them writes as the device's memory sees it."""
    return Traffic(0, count("n", n) * bytes_per_element(dtype))


def device_to_host(n: int, dtype: Any) -> Traffic:
    """Model n·s bytes, all of them reads as the device's memory sees it."""
    return Traffic(count("n", n) * bytes_per_element(dtype), 0)


def device_to_device(n: int, dtype: Any) -> Traffic:
    """Model 2n·s bytes: both ends are in the one memory."""
    return copy(n, dtype)


def peer_to_peer(n: int, dtype: Any) -> Traffic:
    """Model n·s bytes over the link in one direction, counted once, as reads of the source device's memory."""
    return device_to_host(n, dtype)
