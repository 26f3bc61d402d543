"""Plug the device `traffic` in, with its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_bandwidth.domain.errors import DeviceUnavailable
from pytest_bandwidth.hooks import hookimpl

if TYPE_CHECKING:
    from pytest_bandwidth.hooks import Column, DeviceType


@hookimpl
def pytest_bandwidth_devices() -> list[DeviceType]:
    """Add `traffic`; its variants are architectures."""
    from pytest_bandwidth.domain.device import DeviceType

    return [DeviceType("traffic", _open, "nothing", "traffic", r"sm_\d+[af]?")]


@hookimpl
def pytest_bandwidth_columns() -> list[Column]:
    """Add the figures and facts of a result that it brings."""
    from pytest_bandwidth.features.traffic.columns import COLUMNS

    return list(COLUMNS)


def _open(architecture: str) -> Any:
    try:
        from pytest_bandwidth.features.traffic.device import open_traffic
    except ModuleNotFoundError as error:
        missing = f"the traffic device needs {error.name}: pip install 'pytest-bandwidth[traffic]'"
        raise DeviceUnavailable(missing) from None

    return open_traffic(architecture or None)
