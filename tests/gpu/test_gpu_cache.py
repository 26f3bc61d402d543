"""What the last cache does to small data: nothing is served from it, and no write stays in it uncounted.

A cache that writes back late swallows up to its size of a sample's writes where it was left clean, and adds as much
where it was left dirty. The flush leaves it as the work itself would; whether that holds is for a card to say.
"""

import time
from dataclasses import replace

import pytest
from gpu_work import MIB, copy_task, measured, median_seconds

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.devices.cuda.device import CudaDevice
from pytest_bandwidth.domain.traffic import COPY, MIXES, WRITE, Mix, Traffic

# In caches, all bytes of a run together. Past the last of them nothing is flushed.
SIZES = (0.25, 0.5, 1, 2, 4, 8, 32)
# A run's time is its bytes at the rate of the largest, and no more than this for its start and its end: 2 to 4 µs on an
# H200. A flush that left the cache clean would hide as much time as the cache takes to write.
STEADY = 0.05
START_AND_END_SECONDS = 6e-6
IDLE_SECONDS = 0.2


def cache_bytes(device: CudaDevice) -> int:
    return int(device.identity.facts["last_cache_bytes"] or 0)


def small(device: CudaDevice) -> int:
    """Return bytes an array of which a copy stays in the cache whole: a MiB or more, where both fit well."""
    return min(max(cache_bytes(device) // 8, MIB), cache_bytes(device) // 4)


def cold_gbps(device: CudaDevice, mix: Mix, caches: float, idle_seconds: float = 0.0) -> float:
    """Return a probe's GB/s, cold: flushed where its size asks for that. idle_seconds: before each sample."""
    size = int(caches * cache_bytes(device)) // (16 * mix.arrays) * 16
    probe = device.probe(Traffic(mix.reads * size, mix.writes * size))

    def sample() -> float:
        time.sleep(idle_seconds)
        return device.time(probe.call, None).seconds

    for _ in range(5):
        sample()
    return probe.bytes_moved / sorted(sample() for _ in range(21))[10] / 1e9


@pytest.mark.parametrize("mix", MIXES, ids=[mix.name for mix in MIXES])
def test_no_size_is_above_the_peak_and_large_ones_agree(device: CudaDevice, mix: Mix) -> None:
    found = {caches: cold_gbps(device, mix, caches) for caches in SIZES}
    print(mix.name, {caches: f"{gbps:.0f} GB/s" for caches, gbps in found.items()})
    if device.peak is not None:
        above = {caches: gbps for caches, gbps in found.items() if gbps > device.peak.gbps}
        assert not above, f"{mix.name} is above the peak of {device.peak.gbps:.0f} GB/s: the flush leaves the wrong mix"
    for caches, gbps in found.items():
        moved = caches * cache_bytes(device)
        seconds, expected = moved / gbps / 1e9, moved / found[SIZES[-1]] / 1e9
        assert (1 - STEADY) * expected < seconds, f"{mix.name} of {caches} caches is faster than large ones: {found}"
        assert seconds < (1 + STEADY) * expected + START_AND_END_SECONDS, f"{mix.name} of {caches} caches: {found}"


@pytest.mark.parametrize("mix", [WRITE, COPY], ids=["write", "copy"])
def test_a_cache_at_rest_keeps_what_it_has_to_write(device: CudaDevice, mix: Mix) -> None:
    # One that cleans itself while idle would make the first writes after a pause look too fast.
    at_once, rested = (cold_gbps(device, mix, 1, idle) for idle in (0.0, IDLE_SECONDS))
    assert rested == pytest.approx(at_once, rel=0.1)


def test_a_warm_cache_is_faster_and_the_flush_prevents_it(device: CudaDevice) -> None:
    task = copy_task(device, small(device))
    warm = median_seconds(device, task)
    cold = median_seconds(device, task, cold=True)
    assert cold > 1.15 * warm


def test_small_data_is_flushed_and_large_data_is_not(device: CudaDevice) -> None:
    large = 9 * cache_bytes(device) + MIB
    assert measured(device, copy_task(device, small(device))).detail["cache_flushed"] is True
    assert measured(device, copy_task(device, large)).detail["cache_flushed"] is False


def test_work_in_place_is_no_faster_than_its_probe_where_the_cache_could_hide_it(device: CudaDevice) -> None:
    # What it touches is dirty as a whole, twice the share that its bytes would tell.
    x = device.random(cache_bytes(device) // 4, "float32")

    def call() -> None:
        device.xp.negative(x, out=x)

    found = measured(device, Workload(call, Traffic(x.nbytes, x.nbytes), reads=(x,), writes=(x,)))
    assert found.relative < 1.15
    assert found.invalid is None


@pytest.mark.usefixtures("nvidia")
def test_a_short_copy_from_a_graph_finds_cold_caches(device: CudaDevice) -> None:
    task = copy_task(device, MIB)
    alone, together = measured(device, task), measured(device, replace(task, graph=True))
    assert together.method.endswith("+graph")
    # The same work on cold data: launches in a graph follow each other more closely than events do.
    assert 0.3 * alone.seconds < together.seconds < 1.2 * alone.seconds
    assert together.host_seconds < alone.host_seconds


@pytest.mark.usefixtures("nvidia")
def test_a_callables_run_from_a_graph_finds_cold_caches(device: CudaDevice) -> None:
    task = replace(copy_task(device, MIB), launch=None)
    alone, replayed = measured(device, task), measured(device, replace(task, graph=True))
    assert replayed.method.endswith("+graph")
    assert replayed.detail["graph_launches"] == 1
    assert 0.5 * alone.seconds < replayed.seconds < 2 * alone.seconds
