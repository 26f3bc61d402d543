"""Plug the device `traffic` in, with its columns, and the sectors of old and new code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.hooks import hookimpl

if TYPE_CHECKING:
    from pytest_bandwidth.hooks import Column, DeviceType, Launch


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


@hookimpl
def pytest_bandwidth_sectors(
    old: str, new: str, launch: Launch, host_args: Callable[[], tuple[Any, ...]]
) -> Mapping[str, int] | None:
    """Count by executing a few blocks of each on the CPU."""
    from pytest_bandwidth.features.traffic.sectors import sectors_of_both

    return sectors_of_both(old, new, launch, host_args)


def _open(architecture: str) -> Any:
    try:
        from pytest_bandwidth.features.traffic.device import open_traffic
    except ModuleNotFoundError as error:
        from pytest_bandwidth.domain.errors import DeviceUnavailable

        missing = f"the traffic device needs {error.name}: pip install 'pytest-bandwidth[traffic]'"
        raise DeviceUnavailable(missing) from None

    return open_traffic(architecture or None)
