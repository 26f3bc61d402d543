"""What makes GPU numbers wrong, one test a trap: each shows that the trap is real here or that it is handled."""

import time
import zlib
from typing import Any

import numpy as np
import pytest
from gpu_work import copy_task, large, measured, median_seconds, spinner

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.devices.cuda.device import CudaDevice
from pytest_bandwidth.devices.cuda.identity import arithmetic_peak, driver_uuid
from pytest_bandwidth.devices.cuda.management import GpuIdentity
from pytest_bandwidth.domain.measured.roofline import with_regime
from pytest_bandwidth.domain.traffic import MIXES, Traffic

# Trap: a read-only kernel is optimised away.


def test_reading_twice_as_much_takes_about_twice_as_long(device: CudaDevice) -> None:
    size = large(device)
    seconds = []
    for factor in (1, 2):
        probe = device.probe(Traffic(2 * factor * size, 0))
        seconds.append(median_seconds(device, Workload(probe.call, Traffic(2 * factor * size, 0))))
    assert 1.7 < seconds[1] / seconds[0] < 2.3


# Trap: copies counted once or twice.


def test_our_copy_is_as_fast_as_cudas_own_when_both_directions_count(device: CudaDevice) -> None:
    size = large(device)
    xp = device.xp
    x, y = device.random(size // 4, "float32"), device.empty(size // 4, "float32")

    def memcpy() -> None:
        xp.cuda.runtime.memcpyAsync(
            y.data.ptr, x.data.ptr, size, xp.cuda.runtime.memcpyDeviceToDevice, xp.cuda.get_current_stream().ptr
        )

    theirs = measured(device, Workload(memcpy, Traffic(size, size), reads=(x,), writes=(y,)))
    assert 0.75 < theirs.relative < 1.25


# Trap: compressible or special data.


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "int32", "complex64", "bool"])
def test_random_data_is_finite_and_random(device: CudaDevice, dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    values = device.random((1000, 33), dtype)
    assert values.shape == (1000, 33)
    host = device.xp.asnumpy(values)
    if dtype not in ("int32", "bool"):
        numbers = host.astype(np.float32) if dtype == "bfloat16" else host.view(host.real.dtype)
        assert np.isfinite(numbers).all()
        assert numbers.min() >= 1
        assert numbers.max() < 2
    assert len(np.unique(host)) > (1 if dtype == "bool" else 100)


@pytest.mark.parametrize("mix", [mix for mix in MIXES if mix.reads], ids=lambda mix: mix.name)
def test_what_a_probe_reads_cannot_be_compressed(device: CudaDevice, mix: Any) -> None:
    device.release()
    device.probe(Traffic(mix.reads << 20, mix.writes << 20))
    held = [array.get().tobytes() for array in device._probes._arrays[: mix.reads]]
    assert [len(bits) for bits in held] == [1 << 20] * mix.reads
    assert all(len(zlib.compress(bits)) > len(bits) for bits in held)
    assert len(set(held)) == mix.reads


# Trap: the host's launch time inside the events.


def test_a_slow_host_is_kept_out_of_the_interval_and_told(device: CudaDevice) -> None:
    tiny = spinner(device, 1000)

    def call() -> None:
        for _ in range(10):
            tiny()
            time.sleep(2e-4)

    blocked = median_seconds(device, Workload(call, Traffic(1, 1)), runs=5)
    plain = median_seconds(device, Workload(call, Traffic(1, 1)), runs=5, blocked=False)
    assert plain > 2e-3
    assert blocked < 0.2 * plain
    found = measured(device, Workload(call, Traffic(1, 1)))
    assert found.host_seconds > 2e-3
    assert with_regime(found).regime == "overhead-bound"  # as the fixture adds it


# What the card is, and how it is.


@pytest.mark.usefixtures("nvidia")
def test_conditions_are_read(device: CudaDevice) -> None:
    if device.identity.facts["nvml"] != "available":
        pytest.skip(f"NVML: {device.identity.facts['nvml']}")
    found = measured(device, copy_task(device, large(device)))
    after = found.conditions_after
    known = [after.memory_clock_mhz, after.temperature_c, after.power_w]
    if device.identity.settings["mig"] == "disabled":
        assert all(value is not None and value > 0 for value in known)


@pytest.mark.usefixtures("nvidia")
def test_datasheet_and_arithmetic_agree_where_both_are_there(device: CudaDevice) -> None:
    facts = device.identity.facts
    clock, width = facts.get("max_memory_clock_mhz"), facts.get("memory_bus_width_bits")
    if device.peak is None or "NVML" in device.peak.source or not clock or not width:
        pytest.skip("no datasheet row, or NVML does not tell clock and width")
    known = GpuIdentity(max_memory_clock_mhz=int(clock), memory_bus_width_bits=int(width))
    computed = arithmetic_peak(device._facts, known)
    if computed is None:
        pytest.skip("arithmetic is not trusted on this architecture")
    assert computed.bytes_per_second == pytest.approx(device.peak.bytes_per_second, rel=0.05)


@pytest.mark.usefixtures("nvidia")
def test_the_driver_and_nvml_mean_the_same_gpu(device: CudaDevice) -> None:
    if device.identity.facts["nvml"] != "available":
        pytest.skip(f"NVML: {device.identity.facts['nvml']}")
    assert device.identity.serial.partition("-")[2] == driver_uuid(0)


# Trap: probes that do not match.


@pytest.mark.parametrize("mix", MIXES, ids=[mix.name for mix in MIXES])
def test_every_mix_has_a_probe_that_moves_as_much(device: CudaDevice, mix: Any) -> None:
    size = large(device)
    traffic = Traffic(mix.reads * size, mix.writes * size)
    probe = device.probe(traffic)
    assert probe.name == mix.name
    assert traffic.bytes_moved - 16 * mix.arrays < probe.bytes_moved <= traffic.bytes_moved
    assert device.time(probe.call, None).seconds > 0
