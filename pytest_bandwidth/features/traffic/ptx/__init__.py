"""Execute CUDA kernels on the CPU, from the PTX that NVRTC emits, and count what they ask of memory.

`compile_ptx` makes PTX of CUDA C++, `load` makes it runnable, `execute` runs a launch. Needs no GPU and no driver.
The figures are requests of a functional model without caches: never bytes that a DRAM moved, never time.
"""

from pytest_bandwidth.features.traffic.ptx.checkers.initialisation import fill_untouched
from pytest_bandwidth.features.traffic.ptx.counts import (
    AccessCounts,
    AccessFault,
    ArrayCounts,
    Counts,
    Execution,
    LineCounts,
    LocalCounts,
    SharedCounts,
)
from pytest_bandwidth.features.traffic.ptx.launch import execute
from pytest_bandwidth.features.traffic.ptx.loading import Program, load
from pytest_bandwidth.features.traffic.ptx.nvrtc.compile import (
    CubinModule,
    PtxModule,
    compile_cubin,
    compile_ptx,
    nvrtc_version,
    supported_architectures,
)

__all__ = [
    "AccessCounts",
    "AccessFault",
    "ArrayCounts",
    "Counts",
    "CubinModule",
    "Execution",
    "LineCounts",
    "LocalCounts",
    "Program",
    "PtxModule",
    "SharedCounts",
    "compile_cubin",
    "compile_ptx",
    "execute",
    "fill_untouched",
    "load",
    "nvrtc_version",
    "supported_architectures",
]
