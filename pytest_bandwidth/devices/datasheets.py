"""List datasheet figures: memory bandwidth and dense FLOP/s, one row per card, each with its source.

Names are what NVML reports and are matched whole, so that a laptop part or a variant never gets the desktop card's
row. Tensor figures are dense: vendors print sparse ones, which are twice these. Each row names the document that its
figures are from. Precisions left open are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Datasheet:
    """Describe one card. name: regular expression for the whole device name; gfx: AMD's architecture, used instead.

    gbps in GB/s (10⁹ bytes/s); tflops in 10¹² FLOP/s by precision; memory_gib where cards of one name differ in it.
    """

    name: str
    gbps: float
    source: str
    tflops: Mapping[str, float] = field(default_factory=dict)
    gfx: str | None = None
    memory_gib: float | None = None


def _rates(half_tensor: float | None = None, **tflops: float) -> Mapping[str, float]:
    """Return dense 10¹² FLOP/s by precision: `fp32` is fp32, `fp8_tensor` fp8-tensor; operations/s of `int8_tensor`.

    half_tensor: of fp16-tensor and bf16-tensor, which are as fast on most cards.
    """
    if half_tensor is not None:
        tflops |= {"fp16_tensor": half_tensor, "bf16_tensor": half_tensor}
    return {name.replace("_", "-"): rate for name, rate in tflops.items()}


_A100 = _rates(
    fp64=9.7, fp64_tensor=19.5, fp32=19.5, fp16=78.0, bf16=39.0, tf32_tensor=156.0, half_tensor=312.0, int8_tensor=624.0
)
_HOPPER_SXM = _rates(
    fp64=34.0,
    fp64_tensor=67.0,
    fp32=67.0,
    fp16=133.8,
    bf16=133.8,
    tf32_tensor=494.7,
    half_tensor=989.4,
    fp8_tensor=1978.9,
    int8_tensor=1978.9,
)
_HOPPER_PCIE = _rates(
    fp64=26.0, fp64_tensor=51.0, fp32=51.0, tf32_tensor=378.0, half_tensor=756.5, fp8_tensor=1513.0, int8_tensor=1513.0
)
_HOPPER_NVL = _rates(
    fp64=30.0, fp64_tensor=60.0, fp32=60.0, tf32_tensor=417.5, half_tensor=835.5, fp8_tensor=1670.5, int8_tensor=1670.5
)
_MI300X = _rates(fp64=81.7, fp32=163.4, tf32_tensor=653.7, half_tensor=1307.4, fp8_tensor=2614.9)
_A100_SHEET = "NVIDIA A100 datasheet, nvidia-a100-datasheet-us-nvidia-1758950-r4"
_H100_SHEET = "NVIDIA H100 datasheet, nvidia.com/en-us/data-center/h100"
_H200_SHEET = "NVIDIA H200 datasheet, nvidia.com/en-us/data-center/h200"
_HGX_SHEET = "NVIDIA HGX B200 / GB200 NVL72 specifications, Blackwell datasheet"
_V100_SHEET = "NVIDIA V100 datasheet, nvidia.com/en-us/data-center/v100"
_GA102_PAPER = "NVIDIA Ampere GA102 GPU Architecture whitepaper V2.0"
_GEFORCE_50 = "NVIDIA GeForce RTX 50 series specifications, nvidia.com/en-us/geforce/graphics-cards/50-series"
_CDNA3 = "AMD Instinct MI300 series data sheets, amd.com/en/products/accelerators/instinct"
_CDNA2 = "AMD Instinct MI200 series data sheets, amd.com/en/products/accelerators/instinct"
_RDNA3 = "AMD Radeon RX 7000 series specifications, amd.com/en/products/graphics"

DATASHEETS: tuple[Datasheet, ...] = (
    Datasheet(r"NVIDIA A100-(SXM4|PCIE)-40GB", 1555, _A100_SHEET, _A100),
    Datasheet(r"NVIDIA A100-SXM4-80GB", 2039, _A100_SHEET, _A100),
    Datasheet(r"NVIDIA A100 80GB PCIe", 1935, _A100_SHEET, _A100),
    Datasheet(r"NVIDIA H100 80GB HBM3", 3350, _H100_SHEET, _HOPPER_SXM),
    Datasheet(r"NVIDIA H100 PCIe", 2000, _H100_SHEET, _HOPPER_PCIE),
    Datasheet(r"NVIDIA H100 NVL", 3900, _H100_SHEET, _HOPPER_NVL),
    Datasheet(r"NVIDIA H200", 4800, _H200_SHEET, _HOPPER_SXM),
    Datasheet(r"NVIDIA H200 NVL", 4800, _H200_SHEET, _HOPPER_NVL),
    Datasheet(r"NVIDIA GH200 480GB", 4000, "NVIDIA GH200 datasheet (96 GB HBM3)", _HOPPER_SXM, memory_gib=95),
    Datasheet(r"NVIDIA GH200 144G HBM3e", 4900, "NVIDIA GH200 datasheet (144 GB HBM3e)", _HOPPER_SXM),
    # Drivers since 2026 report 7680 bit × 3996 MHz, which is 7.67 TB/s, those before 8192 bit (pytorch/ao#4002). The
    # sheet's stays: a peak too low calls good runs MISMATCH, one 4 % too high only shows them 4 % lower.
    Datasheet(
        r"NVIDIA B200",
        8000,
        "NVIDIA DGX B200 datasheet (64 TB/s for eight, so 8 each)",
        _rates(fp64=37.0, fp32=75.0, tf32_tensor=1100.0, half_tensor=2250.0),
    ),
    Datasheet(r"NVIDIA GB200", 8000, _HGX_SHEET, _rates(fp64=40.0, fp32=80.0, tf32_tensor=1250.0, half_tensor=2500.0)),
    # No FLOP/s: the tensor figures on file are of FP4.
    Datasheet(r"NVIDIA B300 SXM6 AC", 8000, "NVIDIA DGX B300 and HGX B300 specifications (288 GB HBM3e, 8 TB/s)"),
    # Not SXM3: DGX-2's modules have faster memory than this sheet says, which NVML's arithmetic gives.
    Datasheet(r"(NVIDIA|Tesla) V100-SXM2-(16|32)GB", 900, _V100_SHEET, _rates(fp64=7.8, fp32=15.7, fp16_tensor=125.0)),
    Datasheet(r"(NVIDIA|Tesla) V100-PCIE-(16|32)GB", 900, _V100_SHEET, _rates(fp64=7.0, fp32=14.0, fp16_tensor=112.0)),
    Datasheet(
        r"(NVIDIA )?Tesla T4|NVIDIA T4",
        320,
        "NVIDIA T4 datasheet (320+ GB/s)",
        _rates(fp32=8.1, fp16_tensor=65.0, int8_tensor=130.0),
    ),
    Datasheet(
        r"NVIDIA A30",
        933,
        "NVIDIA A30 datasheet, nvidia.com/en-us/data-center/products/a30-gpu",
        _rates(fp64=5.2, fp32=10.3, tf32_tensor=82.0, half_tensor=165.0, int8_tensor=330.0),
    ),
    Datasheet(
        r"NVIDIA A10",
        600,
        "NVIDIA A10 datasheet, nvidia.com/en-us/data-center/products/a10-gpu",
        _rates(fp32=31.2, tf32_tensor=62.5, half_tensor=125.0, int8_tensor=250.0),
    ),
    Datasheet(r"NVIDIA A10G", 600, "Amazon EC2 G5 instances: A10G, 24 GB, 600 GB/s"),
    Datasheet(
        r"NVIDIA A40", 696, _GA102_PAPER, _rates(fp32=37.4, tf32_tensor=74.8, half_tensor=149.7, int8_tensor=299.3)
    ),
    Datasheet(
        r"NVIDIA RTX A6000",
        768,
        _GA102_PAPER,
        _rates(fp32=38.7, tf32_tensor=77.4, half_tensor=154.8, int8_tensor=309.7),
    ),
    Datasheet(
        r"NVIDIA L4",
        300,
        "NVIDIA L4 datasheet, nvidia.com/en-us/data-center/l4",
        _rates(fp32=30.3, tf32_tensor=60.0, half_tensor=121.0, fp8_tensor=242.5, int8_tensor=242.5),
    ),
    Datasheet(
        r"NVIDIA L40",
        864,
        "NVIDIA L40 datasheet, nvidia.com/en-us/data-center/l40",
        _rates(fp32=90.5, tf32_tensor=90.5, half_tensor=181.05, fp8_tensor=362.0, int8_tensor=362.0),
    ),
    Datasheet(
        r"NVIDIA L40S",
        864,
        "NVIDIA L40S datasheet, nvidia.com/en-us/data-center/l40s",
        _rates(fp32=91.6, tf32_tensor=183.0, half_tensor=362.05, fp8_tensor=733.0, int8_tensor=733.0),
    ),
    Datasheet(r"NVIDIA RTX 6000 Ada Generation", 960, "NVIDIA RTX 6000 Ada Generation datasheet", _rates(fp32=91.1)),
    Datasheet(
        r"NVIDIA RTX PRO 6000 Blackwell (Max-Q )?Workstation Edition", 1792, "NVIDIA RTX PRO 6000 Blackwell datasheet"
    ),
    Datasheet(r"NVIDIA GeForce RTX 3090", 936, _GA102_PAPER, _rates(fp32=35.6, half_tensor=71.0)),
    Datasheet(
        r"NVIDIA GeForce RTX 4090",
        1008,
        "NVIDIA Ada GPU Architecture whitepaper",
        _rates(fp32=82.6, fp16=82.6, half_tensor=165.2),
    ),
    Datasheet(r"NVIDIA GeForce RTX 5090", 1792, _GEFORCE_50, _rates(fp32=104.8)),
    Datasheet(r"NVIDIA GeForce RTX 5080", 960, _GEFORCE_50),
    Datasheet(r"NVIDIA GeForce RTX 5070 Ti", 896, _GEFORCE_50),
    # AMD: several products share a gfx name, so the memory size tells them apart; a partition matches none.
    Datasheet(r"", 5300, f"{_CDNA3}: MI300X", _MI300X, gfx="gfx942", memory_gib=192),
    Datasheet(r"", 6000, f"{_CDNA3}: MI325X", _MI300X, gfx="gfx942", memory_gib=256),
    Datasheet(
        r"", 5300, f"{_CDNA3}: MI300A", _rates(fp64=61.3, fp32=122.6, half_tensor=980.6), gfx="gfx942", memory_gib=128
    ),
    Datasheet(r"", 8000, "AMD Instinct MI350 series data sheets: MI350X and MI355X", gfx="gfx950", memory_gib=288),
    # MI210, and one of the two dies of an MI250 or MI250X (3.2768 TB/s for both): each is one device to HIP.
    Datasheet(r"", 1638.4, f"{_CDNA2}: MI210, or one die of MI250/MI250X", gfx="gfx90a", memory_gib=64),
    Datasheet(r"", 1228.8, "AMD Instinct MI100 data sheet", gfx="gfx908", memory_gib=32),
    Datasheet(r"", 800, f"{_RDNA3}: RX 7900 XT (20 GB, 320 bit, 20 Gbit/s)", gfx="gfx1100", memory_gib=20),
    Datasheet(r"", 960, f"{_RDNA3}: RX 7900 XTX (24 GB, 384 bit, 20 Gbit/s)", gfx="gfx1100", memory_gib=24),
    Datasheet(r"", 864, "AMD Radeon PRO W7900 data sheet", gfx="gfx1100", memory_gib=48),
)


def precisions() -> tuple[str, ...]:
    """Return the precisions of which some card's FLOP/s are on file."""
    return tuple(sorted({precision for sheet in DATASHEETS for precision in sheet.tflops}))
