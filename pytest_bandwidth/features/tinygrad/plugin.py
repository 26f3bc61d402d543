"""Plug in the device `tinygrad` and tinygrad's tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_bandwidth.hooks import hookimpl

if TYPE_CHECKING:
    from pytest_bandwidth.hooks import DeviceType


@hookimpl
def pytest_bandwidth_devices() -> list[DeviceType]:
    """Add `tinygrad`; its variants are tinygrad's names of backends, and a card's number."""
    from pytest_bandwidth.domain.device import DeviceType

    return [DeviceType("tinygrad", _open, "host", "tinygrad:METAL", r"[A-Za-z]\w{0,20}(:[0-9]{1,4})?")]


@hookimpl
def pytest_bandwidth_frameworks() -> dict[str, Any]:
    """Add tinygrad's tensors."""
    return {"tinygrad": _framework}


def _framework(module: Any) -> Any:
    from pytest_bandwidth.features.tinygrad.arrays import Tinygrad

    return Tinygrad(module)


def _open(backend: str) -> Any:
    from pytest_bandwidth.features.tinygrad.device import open_tinygrad

    return open_tinygrad(backend or None)
