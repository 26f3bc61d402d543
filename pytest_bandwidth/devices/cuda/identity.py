"""Join the facts about a GPU from CUDA or HIP and the management library into one identity, and choose its peak.

The peak is the datasheet's, or else computed from NVML's figures; the user's comes before both (see `Measurer.peak`).
Otherwise it is unknown: a MIG slice or a vGPU does not get its parent's. A card without a datasheet gets a computed
peak only where the formula is known to hold.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from pytest_bandwidth.devices.cuda.management import GpuIdentity, text_of
from pytest_bandwidth.devices.datasheets import PRECISION_OF_DTYPE, Datasheet, datasheets
from pytest_bandwidth.domain.device import COMPILER_SETTING, DeviceIdentity, Fact, Peak

# The Infinity Cache lies between L2 and memory, and HIP reports the L2 only.
# Source: "AMD GPU specifications", ROCm documentation, column "L3 Cache (MiB)".
INFINITY_CACHE_BYTES = {"gfx942": 256 * 2**20, "gfx950": 256 * 2**20, "gfx1100": 96 * 2**20}


@dataclass(frozen=True, slots=True)
class CudaFacts:
    """Hold the facts from CUDA or HIP itself, versions in their own format. gfx: AMD's architecture, else None."""

    name: str
    memory_bytes: int
    major: int
    minor: int
    sm_count: int
    l2_bytes: int
    threads_per_sm: int
    integrated: bool
    pci_bus_id: str
    driver_version: int
    runtime_version: int
    cupy_version: str
    uuid: str | None = None
    gfx: str | None = None
    nvrtc_version: str | None = None

    @property
    def cache_bytes(self) -> int:
        """Return the size of the last cache before memory."""
        return max(self.l2_bytes, INFINITY_CACHE_BYTES.get(self.gfx or "", 0))


def read_facts(cupy: Any, index: int) -> CudaFacts:
    """Ask CuPy's runtime about one device."""
    runtime = cupy.cuda.runtime
    properties: Mapping[str, Any] = runtime.getDeviceProperties(index)
    arch, compiler = properties.get("gcnArchName"), None
    if not runtime.is_hip:
        with suppress(ImportError, RuntimeError):  # its library is missing, which the first compilation reports
            compiler = "{}.{}".format(*cupy.cuda.nvrtc.getVersion())
    return CudaFacts(
        name=text_of(properties["name"]) or "",
        memory_bytes=int(properties["totalGlobalMem"]),
        major=int(properties["major"]),
        minor=int(properties["minor"]),
        sm_count=int(properties["multiProcessorCount"]),
        l2_bytes=int(properties["l2CacheSize"]),
        threads_per_sm=int(properties["maxThreadsPerMultiProcessor"]),
        integrated=bool(properties.get("integrated", 0)),
        pci_bus_id=runtime.deviceGetPCIBusId(index),
        driver_version=runtime.driverGetVersion(),
        runtime_version=runtime.runtimeGetVersion(),
        cupy_version=str(cupy.__version__),
        uuid=None if runtime.is_hip else driver_uuid(index),
        gfx=(text_of(arch) or "").partition(":")[0] or None,
        nvrtc_version=compiler,
    )


def driver_uuid(index: int) -> str | None:
    """Ask the driver for the UUID of a device, or of the MIG slice that it is; None where it does not answer.

    CuPy's properties cut the 16 bytes off at the first zero byte. cuDeviceGetUuid_v2 gives the MIG UUID in MIG mode
    (CUDA Driver API, Device Management).
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        device, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if driver.cuDeviceGet(ctypes.byref(device), index) != 0:
            return None
        if driver.cuDeviceGetUuid_v2(ctypes.byref(found), device) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return str(UUID(bytes=bytes(found)))


def join_identity(facts: CudaFacts, known: GpuIdentity, extra: Mapping[str, Fact]) -> DeviceIdentity:
    """Join both into one identity. Settings hold what makes figures incomparable; everything else is a fact."""
    # "none" is also written: a setting that an entry lacks is not compared. A card passed through whole is as fast.
    settings = {"mig": known.mig, "ecc": known.ecc, "virtual": "vgpu" if known.virtual == "vgpu" else "none"}
    api, version = ("hip", _hip_version_text) if facts.gfx else ("cuda", version_text)
    found: dict[str, Fact] = {
        "gfx": facts.gfx,
        "compute_capability": None if facts.gfx else f"{facts.major}.{facts.minor}",
        "sm_count": facts.sm_count,
        "l2_bytes": facts.l2_bytes,
        "last_cache_bytes": facts.cache_bytes,
        "integrated": facts.integrated,
        "pci_bus_id": facts.pci_bus_id,
        "driver_version": known.driver_version,
        f"{api}_driver": version(facts.driver_version),
        f"{api}_runtime": version(facts.runtime_version),
        COMPILER_SETTING: facts.nvrtc_version,
        "cupy_version": facts.cupy_version,
    }
    others = {
        name: value for name, value in asdict(known).items() if name not in {*found, "name", "uuid", "mig", "ecc"}
    }
    return DeviceIdentity(
        kind="cuda",
        name=known.name or facts.name or facts.gfx or "GPU",
        memory_bytes=facts.memory_bytes,
        serial=known.uuid or (f"GPU-{facts.uuid}" if facts.uuid else f"PCI-{facts.pci_bus_id}"),
        settings=settings,
        facts={**{name: value for name, value in (found | others).items() if value is not None}, **extra},
        timed_on="gpu",
        variant=str(extra.get("index", "")),
    )


def version_text(version: int) -> str:
    """Format a version of CUDA: 13020 → 13.2."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _hip_version_text(version: int) -> str:
    """Format a version of HIP: 70051831 → 7.0.51831."""
    return f"{version // 10_000_000}.{version // 100_000 % 100}.{version % 100_000}"


# A driver keeps up to a few per cent of the memory for itself and ECC, so sizes are compared with this slack.
MEMORY_SLACK = 0.06
# Compute-capability majors on which 2 × maximum memory clock × bus width ÷ 8 gives the datasheet's figure.
# 10 (B200) is out: the bus width that NVML reports for it changed between drivers.
ARITHMETIC_HOLDS_FOR = frozenset({6, 7, 8, 9, 12})


def arithmetic_peak(facts: CudaFacts, nvml: GpuIdentity) -> Peak | None:
    """Compute 2 × maximum memory clock × bus width ÷ 8, in bytes/s; None where the formula is not known to hold.

    The factor 2: each line carries a bit on both edges of NVML's clock, for HBM and every GDDR.
    It must be the *maximum* clock: the current one is low on an idle GPU.
    """
    clock_mhz, bits = nvml.max_memory_clock_mhz, nvml.memory_bus_width_bits
    if facts.gfx or facts.integrated or facts.major not in ARITHMETIC_HOLDS_FOR or not clock_mhz or not bits:
        return None
    return Peak(
        2 * clock_mhz * 1e6 * bits / 8, f"NVML: 2 × {clock_mhz:.0f} MHz × {bits} bit ÷ 8 (no datasheet on file)"
    )


def is_slice(identity: DeviceIdentity) -> bool:
    """Return whether the device is a part of a GPU (MIG) or a share of one (vGPU): no peak of the whole applies."""
    mig = identity.settings.get("mig", "disabled")
    return mig not in ("disabled", "unsupported") or identity.settings.get("virtual") == "vgpu"


def find_datasheet(identity: DeviceIdentity) -> Datasheet | None:
    """Return the device's row, by full name (NVIDIA) or gfx name (AMD), and by memory size where rows differ in it."""
    if is_slice(identity):
        return None
    gfx, memory_gib = identity.facts.get("gfx"), (identity.memory_bytes or 0) / 2**30
    for row in datasheets():
        named = row.gfx == gfx if row.gfx is not None else re.fullmatch(row.name, identity.name, re.IGNORECASE)
        if named and (row.memory_gib is None or abs(memory_gib / row.memory_gib - 1) <= MEMORY_SLACK):
            return row
    return None


def choose_peak(identity: DeviceIdentity, computed: Peak | None = None) -> Peak | None:
    """Return the device's peak with its source: its datasheet's, or else the computed one; None where unknown."""
    row = find_datasheet(identity)
    if row is not None:
        return Peak(row.gbps * 1e9, row.source)
    return None if is_slice(identity) else computed


def datasheet_flops(identity: DeviceIdentity, precision: str) -> float | None:
    """Return dense FLOP/s of a precision (``fp32``, ``fp16-tensor`` …, or a dtype's name); None where not on file."""
    row = find_datasheet(identity)
    if row is None:
        return None
    tflops = row.tflops.get(PRECISION_OF_DTYPE.get(precision, precision))
    return None if tflops is None else tflops * 1e12
