"""CUDA's facts and NVML's joined into one identity."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_model import MODEL_FACTS

from pytest_bandwidth.devices.cuda.identity import (
    arithmetic_peak,
    choose_peak,
    driver_uuid,
    join_identity,
    read_facts,
    uuid_text,
)
from pytest_bandwidth.devices.cuda.management import GpuIdentity
from pytest_bandwidth.devices.host import identify
from pytest_bandwidth.judging.causes import SETTING_FACTS, VERSION_FACTS

KNOWN = GpuIdentity(
    name="NVIDIA H100 80GB HBM3",
    uuid="GPU-8a",
    driver_version="580.1",
    max_sm_clock_mhz=1980,
    max_memory_clock_mhz=2619,
    memory_bus_width_bits=5120,
    mig="disabled",
    ecc="on",
    persistence="on",
)


def test_settings_hold_what_makes_figures_incomparable() -> None:
    identity = join_identity(MODEL_FACTS, KNOWN, {})
    assert identity.settings == {"mig": "disabled", "ecc": "on", "virtual": "none"}
    assert identity.kind == "cuda"
    assert (identity.name, identity.serial) == ("NVIDIA H100 80GB HBM3", "GPU-8a")
    assert identity.memory_gib == 8


def test_facts_hold_versions_clocks_and_caches() -> None:
    facts = join_identity(MODEL_FACTS, KNOWN, {"nvml": "available"}).facts
    assert facts["driver_version"] == "580.1"
    assert facts["cuda_runtime"] == "13.2"
    assert facts["compute_capability"] == "9.0"
    assert facts["l2_bytes"] == MODEL_FACTS.l2_bytes
    assert facts["persistence"] == "on"
    assert facts["nvml"] == "available"
    assert None not in facts.values()


def test_what_runs_record_has_the_names_that_devices_give_it() -> None:
    full = replace(KNOWN, default_sm_clock_mhz=1755, power_limit_w=700.0)
    cuda, hip = (join_identity(facts, full, {}).facts for facts in (MODEL_FACTS, replace(MODEL_FACTS, gfx="gfx942")))
    host = identify(None, None).facts
    assert {*VERSION_FACTS, *SETTING_FACTS} <= {*cuda, *hip, *host}
    assert {name for name in cuda if name.endswith(("driver", "runtime", "driver_version"))} <= {*VERSION_FACTS}


def test_a_vgpu_is_a_setting() -> None:
    identity = join_identity(MODEL_FACTS, replace(KNOWN, virtual="vgpu"), {})
    assert identity.settings["virtual"] == "vgpu"


def test_without_nvml_cuda_alone_must_do() -> None:
    identity = join_identity(replace(MODEL_FACTS, uuid="12-34"), GpuIdentity(), {})
    assert (identity.name, identity.serial) == ("NVIDIA Model", "GPU-12-34")
    assert join_identity(MODEL_FACTS, GpuIdentity(), {}).serial == "PCI-0000:01:00.0"
    assert identity.facts["max_sm_clock_mhz"] == 1600.0


def test_an_amd_gpu_is_known_by_its_gfx_name_and_its_infinity_cache_counts() -> None:
    facts = replace(MODEL_FACTS, name="", gfx="gfx942", memory_bytes=192 * 2**30, l2_bytes=4 * 2**20)
    assert facts.cache_bytes == 256 * 2**20
    identity = join_identity(facts, GpuIdentity(), {})
    assert identity.name == "gfx942"
    assert "compute_capability" not in identity.facts
    assert "cuda_runtime" not in identity.facts
    peak = choose_peak(identity, arithmetic_peak(facts, GpuIdentity()))
    assert peak is not None
    assert "MI300X" in peak.source


def test_memory_arithmetic_needs_both_figures_and_an_nvidia_gpu() -> None:
    found = arithmetic_peak(MODEL_FACTS, KNOWN)
    assert found is not None
    assert "2619 MHz × 5120 bit" in found.source
    assert arithmetic_peak(MODEL_FACTS, GpuIdentity()) is None
    assert arithmetic_peak(replace(MODEL_FACTS, gfx="gfx942"), KNOWN) is None


def test_a_uuid_with_zero_bytes_is_whole() -> None:
    assert uuid_text(bytes([0x8A, 0, 0, 1, *range(12)])) == "8a000001-0001-0203-0405-060708090a0b"
    with pytest.raises(ValueError, match="16 bytes"):
        uuid_text(b"short")


def test_without_a_driver_there_is_no_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("pytest_bandwidth.devices.cuda.identity.ctypes.CDLL", missing)
    assert driver_uuid(0) is None


def test_a_driver_that_answers_gives_16_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        def __init__(self, _: str) -> None:
            pass

        def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802  # the driver's own name
            device._obj.value = index + 5
            return 0

        def cuDeviceGetUuid_v2(self, found: Any, device: Any) -> int:  # noqa: N802  # the driver's own name
            found._obj[:] = [device.value, *[0] * 15]
            return 0

    monkeypatch.setattr("pytest_bandwidth.devices.cuda.identity.ctypes.CDLL", Driver)
    assert driver_uuid(1) == "06000000-0000-0000-0000-000000000000"


PROPERTIES = {
    "name": b"NVIDIA T4",
    "totalGlobalMem": 16 << 30,
    "major": 7,
    "minor": 5,
    "multiProcessorCount": 40,
    "l2CacheSize": 4 << 20,
    "maxThreadsPerMultiProcessor": 1024,
    "integrated": 0,
}


def runtime(*, hip: bool = False, **more: Any) -> Any:
    return SimpleNamespace(
        is_hip=hip,
        getDeviceProperties=lambda _: {**PROPERTIES, **more},
        deviceGetPCIBusId=lambda _: "0000:00:1e.0",
        driverGetVersion=lambda: 12040,
        runtimeGetVersion=lambda: 12080,
        cudaDevAttrClockRate=13,
        deviceGetAttribute=lambda attribute, _: 1_590_000 if attribute == 13 else 0,
    )


def test_facts_are_read_from_cupys_runtime() -> None:
    nvrtc = SimpleNamespace(getVersion=lambda: (13, 5))
    found = read_facts(SimpleNamespace(__version__="14.2.0", cuda=SimpleNamespace(runtime=runtime(), nvrtc=nvrtc)), 0)
    assert found.nvrtc_version == "13.5"
    assert (found.name, found.major, found.minor, found.sm_count) == ("NVIDIA T4", 7, 5, 40)
    assert found.clock_mhz == 1590.0
    assert found.gfx is None


def test_a_gfx_name_loses_its_feature_flags() -> None:
    cupy = SimpleNamespace(
        __version__="14.2.0", cuda=SimpleNamespace(runtime=runtime(hip=True, gcnArchName=b"gfx90a:sramecc+:xnack-"))
    )
    assert read_facts(cupy, 0).gfx == "gfx90a"


def test_hips_clock_is_its_property_since_cupys_number_asks_for_something_else() -> None:
    asked = runtime(hip=True, gcnArchName=b"gfx942", clockRate=2_100_000)
    asked.cudaDevAttrClockRate = 11  # as CuPy has it; hipDeviceAttributeCooperativeMultiDeviceLaunch today
    asked.deviceGetAttribute = lambda *_: 1
    found = read_facts(SimpleNamespace(__version__="14.2.0", cuda=SimpleNamespace(runtime=asked)), 0)
    assert found.clock_mhz == 2100.0


def test_hips_versions_are_written_as_hip_counts_them() -> None:
    amd = replace(MODEL_FACTS, gfx="gfx942", driver_version=70051831, runtime_version=60443484)
    facts = join_identity(amd, GpuIdentity(), {}).facts
    assert (facts["hip_driver"], facts["hip_runtime"]) == ("7.0.51831", "6.4.43484")
