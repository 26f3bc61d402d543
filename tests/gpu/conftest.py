"""Skip the tests that need a GPU where there is none, with the reason that the device itself gives."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.devices.cuda.device import CudaDevice, open_cuda
from pytest_bandwidth.domain.errors import DeviceUnavailable

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def opened_device() -> Iterator[CudaDevice]:
    try:
        device = open_cuda(0)
    except DeviceUnavailable as reason:
        pytest.skip(str(reason))
    yield device
    device.release()


@pytest.fixture(autouse=True)
def device(opened_device: CudaDevice) -> Iterator[CudaDevice]:
    yield opened_device
    opened_device.release()


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


@pytest.fixture
def nvidia(device: CudaDevice) -> None:
    if device.xp.cuda.runtime.is_hip:
        pytest.skip("an AMD GPU: this looks at what NVIDIA's alone have")
