"""Build the card's two libraries with the compiler that is there, once for each content of their sources."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from emulated_card.kernels.build import NoCompiler, cache_folder, compiler

SOURCES = Path(__file__).parent / "card"
NVML_SOURCES = ("nvml.c", "nvml_processes.c")
FLAGS = ("-std=gnu11", "-O2", "-g1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result")


def built_libraries() -> Path:
    """Return the folder of both libraries, built if need be. Raises NoCompiler, ModuleNotFoundError."""
    sources = sorted(SOURCES.rglob("*.[ch]"))
    digest = hashlib.sha256(repr((compiler(), FLAGS)).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    folder = cache_folder() / f"libraries-{digest.hexdigest()[:24]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        _build(Path(made))
        try:
            os.rename(made, folder)
        except OSError:  # another process was quicker
            if not folder.is_dir():
                raise
        else:
            os.mkdir(made)  # for the end of the with
    return folder


def _build(folder: Path) -> None:
    include = (f"-I{SOURCES}", f"-I{cuda_headers()}")  # in this order: crt/ of ours goes first
    cuda = [path for path in sorted(SOURCES.glob("*.c")) if path.name not in NVML_SOURCES]
    _run(folder / "libcuda.so.1", *include, *cuda, "-lpthread", "-ldl", "-lm")
    nvml = [SOURCES / name for name in NVML_SOURCES]
    _run(folder / "libnvidia-ml.so.1", *include, *nvml, folder / "libcuda.so.1")


def _run(target: Path, *args: str | Path) -> None:
    command = [compiler(), *FLAGS, f"-Wl,-soname,{target.name}", "-o", str(target), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoCompiler(f"{target.name} does not build:\n{done.stderr}")


def cuda_headers() -> str:
    """Return the folder of cuda.h. Raises ModuleNotFoundError where nvidia-cuda-runtime is not installed."""
    from cuda.pathfinder import find_nvidia_header_directory

    folder = find_nvidia_header_directory("cudart")
    if folder is None:
        raise ModuleNotFoundError("the emulated card is built with CUDA's headers: pip install nvidia-cuda-runtime")
    return str(folder)
