"""Tell CuPy's functions by the versions of what computes them: CuPy, its compiler, cuBLAS, the driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from ctypes.util import find_library
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# cuBLAS tells its version only to who has started it, which takes long. Every one that may be found is named.
_PACKAGES = ("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
_FILES = "libcublas*.so.*"


def library_versions(cupy: Any, driver: str | None) -> dict[str, str]:
    """Return what CuPy's functions are known by, by the name of its module; empty where that is not known.

    driver: its exact version.
    """
    if driver is None or cupy.cuda.runtime.is_hip:
        return {}
    told = (cupy.__version__, cupy.cuda.runtime.runtimeGetVersion(), cupy.cuda.nvrtc.getVersion(), driver)
    return {"cupy": f"{told} {sorted(_packages())} {sorted(_files())}"}


def _packages() -> Iterator[str]:
    for name in _PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue


def _files() -> Iterator[str]:
    """Yield the names of a toolkit's libraries, which end in their full version."""
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if (root := os.environ.get(variable)) is not None:
            yield from (path.resolve().name for path in (Path(root) / "lib64").glob(_FILES))
    if (found := find_library("cublas")) is not None:
        yield found
