"""Measure what the compiler gives each shipped kernel, and write and read resources.yaml.

Run as a script it rewrites the file: ``python tests/support/kernel_resources.py``. Review the diff before committing.
Needs NVRTC, no GPU.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from pytest_bandwidth.domain.errors import KernelError
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.features.traffic.ptx.nvrtc import (
    CubinModule,
    PtxModule,
    compile_cubin,
    compile_ptx,
    nvrtc_version,
)

ROOT = Path(__file__).parents[2]
CUDA_SRC = ROOT / "cuda_src"
RECORD = Path(__file__).with_name("resources.yaml")
# Turing, Ampere (A100; RTX 30), Hopper, Blackwell (data centre; RTX 50). Ada's sm_89 gave what sm_86 does, but for FP8.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
# What tests compile for whether a source has changed or not.
ALWAYS = "sm_90"
FIELDS = ("registers", "shared_bytes", "local_bytes")
REWRITE = "python tests/support/kernel_resources.py"

PerArchitecture = dict[str, KernelResources]


def kernel_files() -> list[Path]:
    return sorted(CUDA_SRC.glob("*.cu"))


@functools.cache
def cubin(text: str, filename: str, arch: str) -> CubinModule:
    """Compile to machine code. Raises KernelError, also for a warning.

    As the traffic device compiles: what either has compiled, the other does not compile again (`kept`).
    """
    made = compile_cubin(text, arch=arch, filename=filename)
    if made.ptx.log:
        raise KernelError(made.ptx.log)
    return made


@functools.cache
def ptx(filename: str, arch: str) -> PtxModule:
    """Return a shipped source's PTX: of the compilation to machine code, where that is made anyway."""
    text = (CUDA_SRC / filename).read_text(encoding="utf-8")
    return cubin(text, filename, arch).ptx if arch == ALWAYS else compile_ptx(text, arch=arch, filename=filename)


def compiled(text: str, filename: str, architectures: Sequence[str] = ARCHITECTURES) -> dict[str, PerArchitecture]:
    """Return the resources of each kernel of a source text, by kernel and architecture.

    Raises KernelError with the compiler's log where it does not compile, or compiles with a warning.
    """

    # NVRTC works outside of the interpreter's lock, so that two threads take half the time.
    with ThreadPoolExecutor(max_workers=2) as pool:
        made = pool.map(lambda arch: cubin(text, filename, arch).resources, architectures)
        found = dict(zip(architectures, made, strict=True))
    names = sorted({name for kernels in found.values() for name in kernels})
    return {name: {arch: found[arch][name] for arch in architectures} for name in names}


def recorded(filename: str) -> dict[str, PerArchitecture]:
    """Return the recorded resources of one file's kernels; empty where the file is not in the record."""
    record = _record()
    return {
        name: {
            arch: KernelResources(**{field: _figure(figures[field], index) for field in FIELDS})
            for index, arch in enumerate(record["architectures"])
        }
        for name, figures in (record["kernels"].get(filename) or {}).items()
    }


def recorded_files() -> list[str]:
    return list(_record()["kernels"])


def is_recorded(text: str, filename: str) -> bool:
    """Return whether the record was made from this text, by this compiler: what it says would be made again."""
    return recorded_nvrtc() == nvrtc_version() and _record()["sources"].get(filename) == _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded_nvrtc() -> str:
    return str(_record()["nvrtc"])


def rewrite() -> None:
    lines = [
        "# What ptxas gives each kernel: registers a thread, static shared memory a block, local memory (stack and",
        "# spills) a thread. One figure where all architectures agree, else one per architecture in the order below.",
        f"# Rewritten by: {REWRITE}",
        f'nvrtc: "{nvrtc_version()}"',
        f"architectures: [{', '.join(ARCHITECTURES)}]",
        "sources:",
        *(f"  {file.name}: {_digest(file.read_text(encoding='utf-8'))!r}" for file in kernel_files()),
        "kernels:",
    ]
    for file in kernel_files():
        lines.append(f"  {file.name}:")
        for name, found in compiled(file.read_text(encoding="utf-8"), file.name).items():
            figures = ", ".join(f"{field}: {_short([getattr(r, field) for r in found.values()])}" for field in FIELDS)
            lines.append(f"    {name}: {{{figures}}}")
    RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")


@functools.cache
def _record() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(RECORD.read_text(encoding="utf-8"))
    return loaded


def _short(figures: list[int]) -> str:
    return str(figures[0]) if len(set(figures)) == 1 else f"[{', '.join(map(str, figures))}]"


def _figure(figures: int | list[int], index: int) -> int:
    return figures[index] if isinstance(figures, list) else figures


if __name__ == "__main__":
    rewrite()
    sys.stdout.write(f"{RECORD} rewritten with NVRTC {nvrtc_version()}; look at `git diff` before committing\n")
