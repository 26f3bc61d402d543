"""Execute CUDA kernels on the CPU, from the PTX that NVRTC emits, and count their memory requests.

`compile_ptx` compiles CUDA C++ to PTX, `Program` makes it runnable, `execute` runs a launch. Needs no GPU or driver.
The figures are requests of a functional model without caches: never DRAM bytes, never time.
"""

from pytest_bandwidth.features.traffic.ptx.counts import ArrayCounts as ArrayCounts
from pytest_bandwidth.features.traffic.ptx.counts import Execution as Execution
from pytest_bandwidth.features.traffic.ptx.decode import Program as Program
from pytest_bandwidth.features.traffic.ptx.faults import fill_untouched as fill_untouched
from pytest_bandwidth.features.traffic.ptx.launch import execute as execute
from pytest_bandwidth.features.traffic.ptx.nvrtc import PtxModule as PtxModule
from pytest_bandwidth.features.traffic.ptx.nvrtc import compile_cubin as compile_cubin
from pytest_bandwidth.features.traffic.ptx.nvrtc import compile_ptx as compile_ptx
from pytest_bandwidth.features.traffic.ptx.nvrtc import nvrtc_version as nvrtc_version
