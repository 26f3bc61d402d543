"""Measure callables on one of tinygrad's backends, such as METAL, by the host's clock and the backend's own wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.hooks import hookimpl
from pytest_bandwidth.registry import later

if TYPE_CHECKING:
    from pytest_bandwidth.hooks import DeviceType, Explanation


@hookimpl
def pytest_bandwidth_devices() -> list[DeviceType]:
    """Add `tinygrad`; its variants are tinygrad's names of backends, with a card's number where there is one."""
    from pytest_bandwidth.domain.device import DeviceType

    return [DeviceType("tinygrad", _open, "host", "tinygrad:METAL", r"[A-Za-z]\w{0,20}(:[0-9]{1,4})?")]


@hookimpl
def pytest_bandwidth_frameworks() -> dict[str, Any]:
    """Add tinygrad's tensors."""
    return {"tinygrad": later("features.tinygrad.backend:Tinygrad")}


@hookimpl
def pytest_bandwidth_explain(
    framework: str | None, function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> Explanation | None:
    """Explain calls of tinygrad."""
    if framework != "tinygrad":
        return None
    from pytest_bandwidth.features.tinygrad.backend import explained_tinygrad

    return explained_tinygrad(lambda: function(*args, **keywords), (args, keywords))


def _open(backend: str) -> Any:
    from pytest_bandwidth.features.tinygrad.backend import open_backend
    from pytest_bandwidth.features.tinygrad.device import TinygradDevice

    return TinygradDevice(open_backend(backend or None))
