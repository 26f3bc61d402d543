"""What is timed from a CUDA graph: as fast as alone, with cold caches, and its launch time shared."""

from dataclasses import replace

import pytest
from gpu_work import copy_task, measured

from pytest_bandwidth.devices.cuda.device import CudaDevice

pytestmark = pytest.mark.usefixtures("nvidia")
SHORT_BYTES = 1 << 20


def test_a_short_copy_from_a_graph_finds_cold_caches(device: CudaDevice) -> None:
    task = copy_task(device, SHORT_BYTES)
    alone, together = measured(device, task), measured(device, replace(task, graph=True))
    assert together.method.endswith("+graph")
    # The same work on cold data: launches in a graph follow each other more closely than events do.
    assert 0.3 * alone.seconds < together.seconds < 1.2 * alone.seconds
    assert together.host_seconds < alone.host_seconds


def test_a_callables_run_from_a_graph_finds_cold_caches(device: CudaDevice) -> None:
    task = replace(copy_task(device, SHORT_BYTES), launch=None)
    alone, replayed = measured(device, task), measured(device, replace(task, graph=True))
    assert replayed.method.endswith("+graph")
    assert replayed.detail["graph_launches"] == 1
    assert 0.5 * alone.seconds < replayed.seconds < 2 * alone.seconds
