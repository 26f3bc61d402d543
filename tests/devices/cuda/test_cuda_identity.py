"""CUDA's facts and NVML's joined into one identity; whose word counts for the peak, and where nobody's does."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_model import MODEL_FACTS

from pytest_bandwidth.devices.cuda.identity import (
    arithmetic_peak,
    choose_peak,
    datasheet_flops,
    driver_uuid,
    find_datasheet,
    join_identity,
    read_facts,
)
from pytest_bandwidth.devices.cuda.management import GpuIdentity
from pytest_bandwidth.devices.datasheets import Datasheet, datasheets
from pytest_bandwidth.devices.host import identify
from pytest_bandwidth.domain.device import DeviceIdentity, Peak
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


def test_settings_hold_what_makes_figures_incomparable_and_facts_the_rest() -> None:
    identity = join_identity(MODEL_FACTS, KNOWN, {})
    assert identity.settings == {"mig": "disabled", "ecc": "on", "virtual": "none"}
    assert identity.kind == "cuda"
    assert (identity.name, identity.serial) == ("NVIDIA H100 80GB HBM3", "GPU-8a")
    assert identity.memory_gib == 8
    assert join_identity(MODEL_FACTS, replace(KNOWN, virtual="vgpu"), {}).settings["virtual"] == "vgpu"
    told = {"driver_version": "580.1", "cuda_runtime": "13.2", "compute_capability": "9.0", "persistence": "on"}
    told |= {"l2_bytes": MODEL_FACTS.l2_bytes, "nvml": "available"}
    facts = join_identity(MODEL_FACTS, KNOWN, {"nvml": "available"}).facts
    assert told.items() <= facts.items()
    assert None not in facts.values()


def test_what_runs_record_has_the_names_that_devices_give_it() -> None:
    full = replace(KNOWN, default_sm_clock_mhz=1755, power_limit_w=700.0)
    cuda, hip = (join_identity(facts, full, {}).facts for facts in (MODEL_FACTS, replace(MODEL_FACTS, gfx="gfx942")))
    host = identify(None).facts
    assert {*VERSION_FACTS, *SETTING_FACTS} <= {*cuda, *hip, *host}
    assert {name for name in cuda if name.endswith(("driver", "runtime", "driver_version"))} <= {*VERSION_FACTS}


def test_without_nvml_cuda_alone_must_do() -> None:
    identity = join_identity(replace(MODEL_FACTS, uuid="12-34"), GpuIdentity(), {})
    assert (identity.name, identity.serial) == ("NVIDIA Model", "GPU-12-34")
    assert join_identity(MODEL_FACTS, GpuIdentity(), {}).serial == "PCI-0000:01:00.0"


def test_without_a_driver_there_is_no_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("pytest_bandwidth.devices.cuda.identity.ctypes.CDLL", missing)
    assert driver_uuid(0) is None


def test_a_driver_that_answers_gives_16_bytes_zeros_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        def __init__(self, _: str) -> None:
            pass

        def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802  # the driver's own name
            device._obj.value = index + 5
            return 0

        def cuDeviceGetUuid_v2(self, found: Any, device: Any) -> int:  # noqa: N802  # the driver's own name
            found._obj[:] = [device.value, 0, 0, 1, *range(12)]
            return 0

    monkeypatch.setattr("pytest_bandwidth.devices.cuda.identity.ctypes.CDLL", Driver)
    assert driver_uuid(1) == "06000001-0001-0203-0405-060708090a0b"


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


def cupy(*, hip: bool = False, **more: Any) -> Any:
    runtime = SimpleNamespace(
        is_hip=hip,
        getDeviceProperties=lambda _: {**PROPERTIES, **more},
        deviceGetPCIBusId=lambda _: "0000:00:1e.0",
        driverGetVersion=lambda: 12040,
        runtimeGetVersion=lambda: 12080,
    )
    nvrtc = SimpleNamespace() if hip else SimpleNamespace(getVersion=lambda: (13, 5))
    return SimpleNamespace(__version__="14.2.0", cuda=SimpleNamespace(runtime=runtime, nvrtc=nvrtc))


def test_facts_are_read_from_cupys_runtime() -> None:
    found = read_facts(cupy(), 0)
    assert found.nvrtc_version == "13.5"
    assert (found.name, found.major, found.minor, found.sm_count) == ("NVIDIA T4", 7, 5, 40)
    assert found.gfx is None


def test_a_gfx_name_loses_its_feature_flags() -> None:
    assert read_facts(cupy(hip=True, gcnArchName=b"gfx90a:sramecc+:xnack-"), 0).gfx == "gfx90a"


def test_hips_versions_are_written_as_hip_counts_them() -> None:
    amd = replace(MODEL_FACTS, gfx="gfx942", driver_version=70051831, runtime_version=60443484)
    facts = join_identity(amd, GpuIdentity(), {}).facts
    assert (facts["hip_driver"], facts["hip_runtime"]) == ("7.0.51831", "6.4.43484")


GIB = 2**30


def gpu(
    name: str, memory_gib: float = 80, settings: dict[str, str] | None = None, gfx: str | None = None
) -> DeviceIdentity:
    return DeviceIdentity(
        "cuda",
        name,
        int(memory_gib * GIB),
        "GPU-0",
        settings={"mig": "disabled", "ecc": "on"} if settings is None else settings,
        facts={"gfx": gfx} if gfx else {},
        timed_on="gpu",
    )


def peak_of(identity: DeviceIdentity, arithmetic: Peak | None = None) -> Peak:
    peak = choose_peak(identity, arithmetic)
    assert peak is not None
    return peak


def computed(clock_mhz: int, width: int, major: int, integrated: bool = False) -> Peak | None:
    facts = replace(MODEL_FACTS, major=major, integrated=integrated)
    return arithmetic_peak(facts, GpuIdentity(max_memory_clock_mhz=clock_mhz, memory_bus_width_bits=width))


@pytest.mark.parametrize(
    ("name", "memory_gib", "gbps"),
    [
        ("NVIDIA A100-PCIE-40GB", 39.4, 1555),
        ("NVIDIA H200", 139.8, 4800),
        ("Tesla T4", 14.6, 320),
        ("NVIDIA B300 SXM6 AC", 270, 8000),
        ("gfx942", 191.98, 5300),
        ("gfx942", 128, 5300),
        ("gfx90a", 64, 1638.4),
    ],
)
def test_names_as_nvml_gives_them_and_amds_by_gfx_name_and_memory(name: str, memory_gib: float, gbps: float) -> None:
    amd = name.startswith("gfx")
    peak = peak_of(gpu("AMD Instinct", memory_gib, gfx=name) if amd else gpu(name, memory_gib))
    assert peak.gbps == pytest.approx(gbps)
    assert amd or any(named in peak.source for named in ("datasheet", "whitepaper", "specifications"))


@pytest.mark.parametrize(
    ("name", "memory_gib", "gfx"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16, None),
        ("NVIDIA H100", 80, None),
        ("NVIDIA GH200 480GB", 140, None),
        ("NVIDIA R300", 300, None),
        ("Tesla V100-SXM3-32GB", 32, None),  # faster than the sheet of the others: NVML's arithmetic
        ("AMD Instinct MI300X", 24, "gfx942"),  # a partition of one
        ("AMD Radeon", 8, "gfx9999"),
    ],
)
def test_variants_partitions_and_new_cards_stay_unknown(name: str, memory_gib: float, gfx: str | None) -> None:
    assert find_datasheet(gpu(name, memory_gib, gfx=gfx)) is None
    assert choose_peak(gpu(name, memory_gib, gfx=gfx)) is None


def test_the_datasheet_comes_before_arithmetic_and_that_where_a_card_has_no_row() -> None:
    peak = computed(3201, 6144, 9)
    assert peak_of(gpu("NVIDIA H200", 140), peak).gbps == pytest.approx(4800)
    chosen = peak_of(gpu("NVIDIA RTX 4000 Ada", 20), peak)
    assert chosen.gbps == pytest.approx(4917, abs=1)  # 2 × 3201 MHz × 6144 bit ÷ 8
    assert "2 × 3201 MHz × 6144 bit" in chosen.source
    v100 = replace(gpu("Tesla V100-SXM3-32GB", 32), settings={})  # of a DGX-2
    assert peak_of(v100, computed(958, 4096, 7)).gbps == pytest.approx(981, abs=0.5)


@pytest.mark.parametrize(
    "peak",
    [
        computed(3996, 8192, 10),  # B200: the width changed between drivers
        computed(3996, 8192, 13),  # what comes after what is known
        computed(8533, 256, 12, integrated=True),
        computed(0, 256, 8),
        computed(5001, 0, 8),
        arithmetic_peak(MODEL_FACTS, GpuIdentity()),
        arithmetic_peak(replace(MODEL_FACTS, gfx="gfx942"), KNOWN),
    ],
)
def test_arithmetic_is_not_used_where_it_is_not_known_to_hold(peak: Peak | None) -> None:
    assert choose_peak(gpu("NVIDIA new", 100), peak) is None


@pytest.mark.parametrize(
    ("memory_gib", "settings"),
    [(5, {"mig": "1g.5gb"}), (5, {"mig": "enabled"}), (39.4, {"mig": "unsupported", "virtual": "vgpu"})],
)
def test_a_slice_or_a_vgpu_does_not_get_the_peak_of_the_whole(memory_gib: float, settings: dict[str, str]) -> None:
    assert choose_peak(gpu("NVIDIA A100-SXM4-40GB", memory_gib, settings), computed(1215, 5120, 8)) is None


def test_flops_by_precision_or_dtype() -> None:
    assert datasheet_flops(gpu("NVIDIA A100-SXM4-80GB"), "fp16-tensor") == 312e12
    assert datasheet_flops(gpu("NVIDIA A100-SXM4-80GB"), "float32") == 19.5e12
    assert datasheet_flops(gpu("NVIDIA A100-SXM4-80GB"), "fp3") is None
    assert datasheet_flops(gpu("NVIDIA unheard of"), "fp32") is None


def test_every_row_has_a_source_and_plausible_figures() -> None:
    for row in datasheets():
        assert len(row.source) > 10
        assert 100 < row.gbps < 20_000
        assert all(0 < tflops < 20_000 for tflops in row.tflops.values())
        assert bool(row.name) != bool(row.gfx)
        re.compile(row.name)


def test_no_two_rows_claim_one_card(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in datasheets():
        monkeypatch.setattr("pytest_bandwidth.devices.cuda.identity.datasheets", lambda one=row: (one,))
        assert [other for other in datasheets() for one in _examples(other) if find_datasheet(one)] == [row]


def _examples(row: Datasheet) -> list[DeviceIdentity]:
    if row.gfx is not None:
        assert row.memory_gib is not None
        return [gpu("AMD", row.memory_gib, gfx=row.gfx)]
    plain = row.name.replace("(NVIDIA )?", "").replace("(Max-Q )?", "").partition("|NVIDIA T4")[0]
    plain = plain.replace("(NVIDIA|Tesla)", "Tesla").replace("(SXM4|PCIE)", "SXM4")
    plain = plain.replace("[23]", "2").replace("(16|32)", "16")
    assert re.fullmatch(row.name, plain)
    return [replace(gpu(plain), memory_bytes=int((row.memory_gib or 80) * GIB))]
