"""Give tests a model of a GPU, and what times on it."""

import pytest
from gpu_model import Gpu, opened_model

from pytest_bandwidth.devices.cuda.timing import Timer


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def timer(gpu: Gpu) -> Timer:
    timer = Timer(opened_model(gpu).runtime)
    gpu.log.clear()
    return timer
