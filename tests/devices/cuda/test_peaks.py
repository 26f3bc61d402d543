"""Whose word counts for the peak, and where nobody's does."""

import re
from dataclasses import replace

import pytest
from gpu_model import MODEL_FACTS

from pytest_bandwidth.devices.cuda import identity
from pytest_bandwidth.devices.cuda.identity import (
    arithmetic_peak,
    choose_peak,
    datasheet_flops,
    find_datasheet,
)
from pytest_bandwidth.devices.cuda.management import GpuIdentity
from pytest_bandwidth.devices.datasheets import DATASHEETS, Datasheet
from pytest_bandwidth.domain.device import DeviceIdentity, Peak

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


H200 = gpu("NVIDIA H200", 140)


def computed(clock_mhz: int, width: int, major: int, integrated: bool = False) -> Peak | None:
    facts = replace(MODEL_FACTS, major=major, integrated=integrated)
    return arithmetic_peak(facts, GpuIdentity(max_memory_clock_mhz=clock_mhz, memory_bus_width_bits=width))


@pytest.mark.parametrize(
    ("name", "memory_gib", "gbps"),
    [
        ("NVIDIA A100-SXM4-40GB", 39.4, 1555),
        ("NVIDIA A100-PCIE-40GB", 39.4, 1555),
        ("NVIDIA A100-SXM4-80GB", 79.2, 2039),
        ("NVIDIA A100 80GB PCIe", 79.2, 1935),
        ("NVIDIA H100 80GB HBM3", 79.2, 3350),
        ("NVIDIA H200", 139.8, 4800),
        ("NVIDIA GeForce RTX 4090", 23.6, 1008),
        ("Tesla T4", 14.6, 320),
    ],
)
def test_names_as_nvml_gives_them(name: str, memory_gib: float, gbps: float) -> None:
    peak = choose_peak(gpu(name, memory_gib))
    assert peak is not None
    assert peak.gbps == pytest.approx(gbps)
    assert "datasheet" in peak.source or "whitepaper" in peak.source


@pytest.mark.parametrize(
    ("gfx", "memory_gib", "gbps"),
    [
        ("gfx942", 191.98, 5300),
        ("gfx942", 255.98, 6000),
        ("gfx942", 128, 5300),
        ("gfx1100", 19.98, 800),
        ("gfx90a", 64, 1638.4),
    ],
)
def test_amd_by_gfx_name_and_memory(gfx: str, memory_gib: float, gbps: float) -> None:
    peak = choose_peak(gpu("AMD Instinct", memory_gib, gfx=gfx))
    assert peak is not None
    assert peak.gbps == pytest.approx(gbps)


@pytest.mark.parametrize(
    ("name", "memory_gib", "gfx"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16, None),
        ("NVIDIA H100", 80, None),
        ("NVIDIA GH200 480GB", 140, None),
        ("NVIDIA R300", 300, None),
        ("AMD Instinct MI300X", 24, "gfx942"),  # a partition of one
        ("AMD Radeon", 8, "gfx9999"),
    ],
)
def test_variants_partitions_and_new_cards_stay_unknown(name: str, memory_gib: float, gfx: str | None) -> None:
    assert find_datasheet(gpu(name, memory_gib, gfx=gfx)) is None
    assert choose_peak(gpu(name, memory_gib, gfx=gfx)) is None


def test_the_datasheet_comes_before_arithmetic() -> None:
    chosen = choose_peak(H200, computed(3201, 6144, 9))
    assert chosen is not None
    assert chosen.gbps == pytest.approx(4800)
    peak = computed(3201, 6144, 9)
    assert peak is not None
    assert peak.gbps == pytest.approx(4917, abs=1)  # 2 × 3201 MHz × 6144 bit ÷ 8


@pytest.mark.parametrize(
    ("clock_mhz", "width", "datasheet_gbps"),
    [
        (1215, 5120, 1555),
        (1593, 5120, 2039),
        (2619, 5120, 3350),
        (10501, 384, 1008),
        (14001, 512, 1792),
        (5001, 256, 320),
    ],
)
def test_arithmetic_gives_datasheet_figures_where_it_is_trusted(
    clock_mhz: int, width: int, datasheet_gbps: float
) -> None:
    peak = computed(clock_mhz, width, 8)
    assert peak is not None
    assert peak.gbps == pytest.approx(datasheet_gbps, rel=0.002)


def test_a_card_without_a_row_gets_arithmetic_and_says_so() -> None:
    peak = choose_peak(gpu("NVIDIA RTX 4000 Ada", 20), computed(9001, 160, 8))
    assert peak is not None
    assert "2 × 9001 MHz × 160 bit" in peak.source


@pytest.mark.parametrize(
    "peak",
    [
        computed(3996, 8192, 10),  # B200: the width changed between drivers
        computed(3996, 8192, 13),  # what comes after what is known
        computed(8533, 256, 12, integrated=True),
        computed(0, 256, 8),
        computed(5001, 0, 8),
    ],
)
def test_arithmetic_is_not_used_where_it_is_not_known_to_hold(peak: Peak | None) -> None:
    assert choose_peak(gpu("NVIDIA new", 100), peak) is None


@pytest.mark.parametrize("mig", ["1g.5gb", "enabled"])
def test_a_slice_does_not_get_its_parents_peak(mig: str) -> None:
    identity = gpu("NVIDIA A100-SXM4-40GB", 5, {"mig": mig})
    assert choose_peak(identity, computed(1215, 5120, 8)) is None


def test_a_vgpu_does_not_get_its_hosts_peak() -> None:
    identity = gpu("NVIDIA A100-SXM4-40GB", 39.4, {"mig": "unsupported", "virtual": "vgpu"})
    assert choose_peak(identity, computed(1215, 5120, 8)) is None


def test_flops_by_precision_or_dtype() -> None:
    assert datasheet_flops(gpu("NVIDIA A100-SXM4-80GB"), "fp16-tensor") == 312e12
    assert datasheet_flops(gpu("NVIDIA A100-SXM4-80GB"), "float32") == 19.5e12
    assert datasheet_flops(gpu("NVIDIA A100-SXM4-80GB"), "fp3") is None
    assert datasheet_flops(gpu("NVIDIA unheard of"), "fp32") is None


def test_the_ridge_points_of_the_field_follow() -> None:
    flops = datasheet_flops(gpu("NVIDIA A100-SXM4-80GB"), "fp16-tensor")
    peak = choose_peak(gpu("NVIDIA A100-SXM4-80GB"))
    assert flops is not None
    assert peak is not None
    assert flops / peak.bytes_per_second == pytest.approx(153, abs=0.5)


def test_every_row_has_a_source_and_plausible_figures() -> None:
    for row in DATASHEETS:
        assert len(row.source) > 10
        assert 100 < row.gbps < 20_000
        assert all(0 < tflops < 20_000 for tflops in row.tflops.values())
        assert bool(row.name) != bool(row.gfx)
        re.compile(row.name)


def test_no_two_rows_claim_one_card(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in DATASHEETS:
        monkeypatch.setattr(identity, "DATASHEETS", (row,))
        assert [other for other in DATASHEETS for one in _examples(other) if find_datasheet(one)] == [row]


def _examples(row: Datasheet) -> list[DeviceIdentity]:
    if row.gfx is not None:
        assert row.memory_gib is not None
        return [gpu("AMD", row.memory_gib, gfx=row.gfx)]
    plain = row.name.replace("(NVIDIA )?", "").replace("(Max-Q )?", "").partition("|NVIDIA T4")[0]
    plain = plain.replace("(NVIDIA|Tesla)", "Tesla").replace("(SXM4|PCIE)", "SXM4")
    plain = plain.replace("[23]", "2").replace("(16|32)", "16")
    assert re.fullmatch(row.name, plain)
    return [replace(gpu(plain), memory_bytes=int((row.memory_gib or 80) * GIB))]


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("NVIDIA B200", 8000),
        ("NVIDIA B300 SXM6 AC", 8000),
        ("Tesla V100-SXM2-32GB", 900),
        ("Tesla V100-SXM3-32GB", None),  # faster than the sheet of the others: NVML's arithmetic
    ],
)
def test_rows_that_were_mended(name: str, gbps: float | None) -> None:
    row = find_datasheet(DeviceIdentity("cuda", name, 32 << 30, "GPU-0", timed_on="gpu"))
    assert (row.gbps if row else None) == gbps


def test_a_v100_of_a_dgx_2_gets_what_nvml_computes() -> None:
    v100 = DeviceIdentity("cuda", "Tesla V100-SXM3-32GB", 32 << 30, "GPU-0", timed_on="gpu")
    peak = choose_peak(v100, computed(958, 4096, 7))
    assert peak is not None
    assert peak.gbps == pytest.approx(981, abs=0.5)
