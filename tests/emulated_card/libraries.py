"""Build the card's libraries with the compiler that is there, once for each content of their sources."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from emulated_card.kernels.build import cache_folder, compiler

SOURCES = Path(__file__).parent / "card"
NVML_SOURCES = ("nvml.c", "nvml_processes.c")
CUBLAS, CUBLAS_LT = "libcublas.so.13", "libcublasLt.so.13"
CUBLAS_SOURCE = SOURCES / "cublas.c"
FLAGS = ("-std=gnu11", "-O2", "-g1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result")


def built_libraries() -> Path:
    """Return the folder of the libraries, built if need be. Raises NoCompiler, ModuleNotFoundError, RuntimeError."""
    sources = [Path(__file__), *sorted(SOURCES.rglob("*.[ch]"))]
    others = _cublas_not_done()
    digest = hashlib.sha256(repr((compiler(), FLAGS, others)).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    folder = cache_folder() / f"libraries-{digest.hexdigest()[:24]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        _build(Path(made), others)
        try:
            os.rename(made, folder)
        except OSError:  # another process was quicker
            if not folder.is_dir():
                raise
        else:
            os.mkdir(made)  # for the end of the with
    return folder


def _build(folder: Path, cublas_not_done: str) -> None:
    include = (f"-I{SOURCES}", f"-I{cuda_headers()}")  # in this order: crt/ of ours goes first
    others = (*NVML_SOURCES, CUBLAS_SOURCE.name)
    cuda = [path for path in sorted(SOURCES.glob("*.c")) if path.name not in others]
    _run(folder / "libcuda.so.1", *include, *cuda, "-lpthread", "-ldl", "-lm")
    nvml = [SOURCES / name for name in NVML_SOURCES]
    _run(folder / "libnvidia-ml.so.1", *include, *nvml, folder / "libcuda.so.1")
    not_done, nothing, versions = (folder / name for name in ("cublas_not_done.c", "nothing.c", "cublas.map"))
    not_done.write_text(cublas_not_done, encoding="utf-8")
    nothing.write_text("", encoding="utf-8")
    versions.write_text(f"{CUBLAS} {{ global: *; }};", encoding="utf-8")
    _run(folder / CUBLAS_LT, nothing)  # it has to be there, and nothing of it is called
    by_version = f"-Wl,--version-script={versions}"
    _run(folder / CUBLAS, *include, CUBLAS_SOURCE, not_done, by_version, folder / "libcuda.so.1", "-lm")


def _cublas_not_done() -> str:
    """Return C of the entries of cuBLAS that CuPy's module asks for, and `CUBLAS_SOURCE` does not have."""
    spec = find_spec("cupy_backends")
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise ModuleNotFoundError("the emulated card is made for CuPy, which is not installed")
    (module,) = (Path(folders[0]) / "cuda" / "libs").glob("cublas.*.so")
    done = CUBLAS_SOURCE.read_text(encoding="utf-8")
    names = {name.decode() for name in re.findall(rb"\0(cublas\w+)(?=\0)", module.read_bytes())}
    missing = sorted(name for name in names if f"int {name}(" not in done)
    lines = [f'int {name}(void) {{ card_not_done("{name}"); return 15; }}' for name in missing]
    return "\n".join(["int card_not_done(const char *name);", *lines, ""])


def _run(target: Path, *args: str | Path) -> None:
    command = [compiler(), *FLAGS, f"-Wl,-soname,{target.name}", "-o", str(target), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{target.name} does not build:\n{done.stderr}")


def cuda_headers() -> str:
    """Return the folder of cuda.h. Raises ModuleNotFoundError where nvidia-cuda-runtime is not installed."""
    from cuda.pathfinder import find_nvidia_header_directory

    folder = find_nvidia_header_directory("cudart")
    if folder is None:
        raise ModuleNotFoundError("the emulated card is built with CUDA's headers: pip install nvidia-cuda-runtime")
    return str(folder)
