"""Build a kernel's shared object with the C compiler that is there, once for each text, compiler and processor."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pytest_bandwidth

HERE = Path(__file__).parent
CARD = HERE.parent / "card"
CACHE_VARIABLE = "EMULATED_CARD_CACHE"
_FLAGS = (
    *("-std=gnu11", "-march=native", "-fPIC", "-fvisibility=hidden", "-w"),
    # PTX's arithmetic: integers wrap, floats round once an operation, nobody looks at errno or at traps.
    *("-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing"),
)
# What lies there counts, not where: all clones of this repository share what was built.
_INCLUDED_FROM = (f"-I{HERE / 'c'}", f"-I{CARD}")
# What every kernel shares is worth optimising; to build a kernel, -O2 takes four times as long as -O1, -Og half.
_RUNTIME_FLAGS = ("-O2", "-ftree-vectorize", "-r", "-nostdlib")
_KERNEL_FLAGS = ("-Og", "-ftree-loop-vectorize", "-shared")
_ERRORS_SHOWN = 2000
_INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


class NoCompiler(Exception):
    """There is no C compiler, or it does not build what it is given."""


@dataclass(frozen=True, slots=True)
class Built:
    """Describe a built kernel; `card/kernel_abi.h` says how it is called.

    path: the shared object. parameters: offset and size of each, in bytes. registers: an estimate, from live values.
    polls: whether it has volatile, relaxed or acquire loads, by which it may wait for the host.
    """

    path: str
    parameters: tuple[tuple[int, int], ...]
    parameter_bytes: int
    static_shared_bytes: int
    local_bytes: int
    max_threads: int | None
    registers: int
    polls: bool


def build(ptx_text: str, entry_name: str, arch: str) -> Built:
    """Build the kernel of one entry, or find it in the cache.

    Raises NotSupported for what is not modelled, KeyError for unknown entries, NoCompiler.
    """
    folder = cache_folder()
    key = key_of(arch, entry_name, ptx_text)
    described, library = folder / f"{key}.json", folder / f"{key}.so"
    if described.exists():  # the last that is written
        return _read(described)
    from filelock import FileLock  # on a miss only, as the parser

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{key}.lock"):  # workers ask for the same kernels at once, and each takes a second
        return _read(described) if described.exists() else _make(ptx_text, entry_name, described, library)


def key_of(*what: str) -> str:
    """Return what something made of PTX is kept by: it is made anew after any change of what makes it."""
    return hashlib.sha256("\0".join((_environment(), *what)).encode()).hexdigest()[:32]


def cache_folder() -> Path:
    """Return the folder of built kernels, which may not exist yet."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytest-bandwidth" / "emulated-card"


@cache
def compiler() -> str:
    """Return the C compiler's path. Raises NoCompiler."""
    found = shutil.which(os.environ.get("CC", "gcc")) or shutil.which("cc")
    if found is None:
        raise NoCompiler("no C compiler was found (gcc or cc); install one, or name it in CC")
    return found


@cache
def _environment() -> str:
    """Name everything besides the PTX that the machine code depends on."""
    digest = hashlib.sha256()
    for path in sorted([*translator_sources(), *c_sources()]):
        digest.update(path.read_bytes())
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    processor = next((line for line in _processor() if line.startswith(("flags", "Features"))), "")
    return "\0".join((digest.hexdigest(), compiler(), version, processor, *_FLAGS, *_RUNTIME_FLAGS, *_KERNEL_FLAGS))


def translator_sources() -> list[Path]:
    """Return what makes C of PTX: this folder's modules, the package's parser and decoder."""
    decoder = Path(pytest_bandwidth.__file__).parent / "features" / "traffic" / "ptx"
    ours = [path for path in HERE.rglob("*.py") if not path.name.startswith("test_")]
    return [*ours, *decoder.rglob("*.py"), *decoder.rglob("*.lark")]


def c_sources() -> list[Path]:
    """Return what of ours any kernel is compiled from: all of c/, and what it includes of the card's."""
    found: set[Path] = set()
    todo = list((HERE / "c").glob("*.[ch]"))
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            names = _INCLUDED.findall(path.read_text(encoding="utf-8"))
            todo += [folder / name for name in names for folder in (HERE / "c", CARD) if (folder / name).exists()]
    return sorted(found)


def _processor() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _make(ptx_text: str, entry_name: str, described: Path, library: Path) -> Built:
    from emulated_card.kernels.module import decoded  # on a miss only: parser and decoder take half a second to import
    from emulated_card.kernels.registers import live_registers
    from emulated_card.kernels.translate import parameter_bytes, translate, waits_for_host

    kernel = decoded(ptx_text, entry_name)
    text = translate(kernel)
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        made = compile_c(text, Path(work))
        built = Built(
            str(library),
            tuple((p.offset, p.size) for p in kernel.parameters),
            parameter_bytes(kernel),
            kernel.static_shared_bytes,
            kernel.local_bytes,
            kernel.max_threads,
            live_registers(kernel),
            waits_for_host(kernel),
        )
        record = Path(work) / "kernel.json"
        record.write_text(json.dumps(asdict(built)), encoding="utf-8")
        os.replace(made, library)
        os.replace(record, described)
    return built


def compile_c(text: str, folder: Path) -> Path:
    """Compile a translated kernel in a folder of its own; returns the shared object there. Raises NoCompiler."""
    source, made = folder / "kernel.c", folder / "kernel.so"
    source.write_text(text, encoding="utf-8")
    _compile(*_KERNEL_FLAGS, *_FLAGS, "-o", str(made), str(source), str(_runtime()), "-lm")
    return made


def _runtime() -> Path:
    """Build what all kernels share, once."""
    found = cache_folder() / f"runtime-{hashlib.sha256(_environment().encode()).hexdigest()[:32]}.o"
    if not found.exists():
        found.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.parent) as work:
            made = Path(work) / "runtime.o"
            _compile(*_RUNTIME_FLAGS, *_FLAGS, "-o", str(made), *map(str, sorted((HERE / "c").glob("*.c"))))
            os.replace(made, found)
    return found


def _compile(*arguments: str) -> None:
    done = subprocess.run([compiler(), *_INCLUDED_FROM, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCompiler(f"{compiler()} does not build a translated kernel:\n{done.stderr[:_ERRORS_SHOWN]}")


def _read(described: Path) -> Built:
    values = json.loads(described.read_text(encoding="utf-8"))
    values["parameters"] = tuple((offset, size) for offset, size in values["parameters"])
    return Built(**values)
