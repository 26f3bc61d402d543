"""Build a kernel's shared object with the C compiler that is there, once for each text, compiler and processor.

What a text holds is kept as well. So a process whose kernels are built already loads neither parser nor decoder, which
take half a second.
"""

from __future__ import annotations

import base64
import fcntl
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
_KERNEL_FLAGS = ("-Og", "-shared")
_ERRORS_SHOWN = 2000
_INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


class NoCompiler(Exception):
    """There is no C compiler, or it does not build what it is given."""


class NotSupported(Exception):
    """The kernel needs what the card does not model; the message names it and its line."""


@dataclass(frozen=True, slots=True)
class Variable:
    """Describe a ``__device__`` or ``__constant__`` variable; `initial` is what it holds once loaded, `size` bytes."""

    name: str
    size: int
    align: int
    initial: bytes


@dataclass(frozen=True, slots=True)
class Built:
    """Describe a built kernel; `card/kernel_abi.h` says how it is called.

    path: the shared object. parameters: offset and size of each, in bytes. registers: an estimate, from live values.
    """

    path: str
    parameters: tuple[tuple[int, int], ...]
    parameter_bytes: int
    static_shared_bytes: int
    local_bytes: int
    max_threads: int | None
    registers: int


def build(ptx_text: str, entry_name: str, arch: str) -> Built:
    """Build the kernel of one entry, or find it in the cache.

    Raises NotSupported for what is not modelled, KeyError for unknown entries, NoCompiler.
    """
    folder = cache_folder()
    key = _key_of(arch, entry_name, ptx_text)
    described, library = folder / f"{key}.json", folder / f"{key}.so"
    if described.exists():  # the last that is written
        return _read(described)
    folder.mkdir(parents=True, exist_ok=True)
    # Workers ask for the same kernels at once, and each takes a second. This waits without a look at the card's clock.
    with (folder / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _read(described) if described.exists() else _make(ptx_text, entry_name, described, library)


@cache
def variables_of(ptx_text: str) -> tuple[Variable, ...]:
    """List a module's variables. Raises KernelError for text that is not PTX, NotSupported."""
    kept = cache_folder() / f"{_key_of('variables', ptx_text)}.json"
    if not kept.exists():
        from emulated_card.kernels.module import declared  # on a miss only

        found = declared(ptx_text)
        _keep(kept, [(v.name, v.size, v.align, base64.b64encode(v.initial).decode()) for v in found])
    rows = json.loads(kept.read_text(encoding="utf-8"))
    return tuple(Variable(name, size, align, base64.b64decode(initial)) for name, size, align, initial in rows)


def _keep(file: Path, value: object) -> None:
    replaced(file, json.dumps(value).encode())


def replaced(file: Path, made: bytes) -> None:
    """Write a file, at once whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=file.parent, delete=False) as new:
        new.write(made)
    os.replace(new.name, file)


def _key_of(*what: str) -> str:
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
    for path in sorted([*_translator_sources(), *_c_sources()]):
        digest.update(path.read_bytes())
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    of_processor = Path("/proc/cpuinfo")
    lines = of_processor.read_text(encoding="utf-8").splitlines() if of_processor.exists() else []
    processor = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return "\0".join((digest.hexdigest(), compiler(), version, processor, *_FLAGS, *_RUNTIME_FLAGS, *_KERNEL_FLAGS))


def _translator_sources() -> list[Path]:
    """Return what makes C of PTX: this folder's modules, the package's parser and decoder."""
    decoder = Path(pytest_bandwidth.__file__).parent / "features" / "traffic" / "ptx"
    return [*HERE.rglob("*.py"), *decoder.rglob("*.py"), *decoder.rglob("*.lark")]


def _c_sources() -> list[Path]:
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


def _make(ptx_text: str, entry_name: str, described: Path, library: Path) -> Built:
    from emulated_card.kernels.module import decoded  # on a miss only
    from emulated_card.kernels.registers import live_registers
    from emulated_card.kernels.translate import parameter_bytes, translate

    kernel = decoded(ptx_text, entry_name)
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        source, made = Path(work, "kernel.c"), Path(work, "kernel.so")
        source.write_text(translate(kernel), encoding="utf-8")
        _compile(*_KERNEL_FLAGS, *_FLAGS, "-o", str(made), str(source), str(_runtime()), "-lm")
        os.replace(made, library)
    built = Built(
        str(library),
        tuple((p.offset, p.size) for p in kernel.parameters),
        parameter_bytes(kernel),
        kernel.static_shared_bytes,
        kernel.local_bytes,
        kernel.max_threads,
        live_registers(kernel),
    )
    _keep(described, asdict(built))
    return built


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
