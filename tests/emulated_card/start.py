"""Make this process one that has the emulated card: its libraries, its clock, its kernels, its cudart."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from emulated_card import clock, cudart, nvrtc, thrust, translator


class _NoMlDtypes:
    """Find no ml_dtypes: CuPy does without it then."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "ml_dtypes":
            raise ModuleNotFoundError("No module named 'ml_dtypes'", name=name)


def start(libraries: Path) -> None:
    """Load the libraries under the names that CuPy and nvidia-ml-py ask for, and stand in for the rest.

    libraries: the folder that `built_libraries` gives. Without libnvidia-ml where EMULATED_CARD_NVML is ``absent``,
    without cuBLAS where EMULATED_CARD_CUBLAS is, and without ml_dtypes where EMULATED_CARD_ML_DTYPES is.
    """
    if os.environ.get("EMULATED_CARD_ML_DTYPES") == "absent":
        sys.meta_path.insert(0, _NoMlDtypes())
    cuda = ctypes.CDLL(str(libraries / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
    if os.environ.get("EMULATED_CARD_NVML") != "absent":
        ctypes.CDLL(str(libraries / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    if os.environ.get("EMULATED_CARD_CUBLAS") != "absent":
        for library in libraries.glob("libcublas*.so.*"):
            ctypes.CDLL(str(library))
    clock.install(cuda)
    translator.install(cuda)
    cudart.install(cuda)
    nvrtc.install()
    thrust.install()
