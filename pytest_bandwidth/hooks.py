"""Specify the plugin's own hooks, which a conftest.py or another plugin implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_bandwidth.domain.device import DeviceIdentity


def pytest_bandwidth_environment(config: pytest.Config, environment: dict[str, Any]) -> None:
    """Change `environment`, the JSON document's facts about where the run took place, before anything is written."""


def pytest_bandwidth_document(config: pytest.Config, document: dict[str, Any]) -> None:
    """Change a device's whole JSON document, from which every file is written; `results` hold rows of docs/json.md."""


@pytest.hookspec(firstresult=True)
def pytest_bandwidth_peaks(config: pytest.Config, identity: DeviceIdentity) -> float | str | None:
    """Tell a device's peak bandwidth, in GB/s or as text with a unit; None for devices that you do not know.

    It comes after `bandwidth_peak` of the ini file and before the baseline's, the datasheet's and NVML's.
    """
