"""Make this process one that has the emulated card: its libraries, its clock, its kernels, its cudart."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from emulated_card import clock, cudart, thrust, translator


def start(libraries: Path) -> None:
    """Load the libraries under the names that CuPy and nvidia-ml-py ask for, and stand in for the rest.

    libraries: the folder that `built_libraries` gives. Without libnvidia-ml where EMULATED_CARD_NVML is ``absent``,
    without cuBLAS where EMULATED_CARD_CUBLAS is.
    """
    cuda = ctypes.CDLL(str(libraries / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
    if os.environ.get("EMULATED_CARD_NVML") != "absent":
        ctypes.CDLL(str(libraries / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    if os.environ.get("EMULATED_CARD_CUBLAS") != "absent":
        for library in libraries.glob("libcublas*.so.*"):
            ctypes.CDLL(str(library))
    clock.install(cuda)
    translator.install(cuda)
    cudart.install(cuda)
    thrust.install()
