"""Have NVRTC compile once what CuPy asks it for in each of a hundred processes; keep the PTX of each cubin.

A cubin is executed as the PTX that NVRTC made with it, which `assembled` finds by the hash of the machine code.
"""

from __future__ import annotations

import importlib.util
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from emulated_card.importing import Watched

MODULE = "cupy_backends.cuda.libs.nvrtc"
_KEPT = Path(__file__).parents[1] / "support" / "kept.py"


def install() -> None:
    """Watch for the import of CuPy's NVRTC module."""
    Watched(MODULE, run=_replace)


@dataclass
class Program:
    """Hold a program of NVRTC's: `made` once it is compiled, `real` where this process has compiled it."""

    source: tuple[Any, ...]
    names: list[str] = field(default_factory=list)
    made: dict[str, Any] = field(default_factory=dict)
    real: Any = None


def _replace(nvrtc: ModuleType) -> None:
    real = dict(vars(nvrtc))

    def compile_program(program: Program, options: Sequence[str] = ()) -> None:
        file = _file_of(program, options)
        if file is not None and file.exists():
            program.made = pickle.loads(file.read_bytes())
            return
        program.real = real["createProgram"](*program.source)
        for name in program.names:
            real["addNameExpression"](program.real, name)
        real["compileProgram"](program.real, options)
        program.made = {
            **{name: real[name](program.real) for name in ("getPTX", "getProgramLog")},
            "getCUBIN": b"" if _is_virtual(options) else real["getCUBIN"](program.real),
            "getLoweredName": {name: real["getLoweredName"](program.real, name) for name in program.names},
        }
        if file is not None:
            _write(file, pickle.dumps(program.made))

    def cubin(program: Program) -> bytes:
        found: bytes = program.made["getCUBIN"]
        if found and not (file := assembled(found + b"\0")).exists():  # CuPy hands out all but the last byte
            _write(file, program.made["getPTX"].rstrip(b"\0"))
        return found

    def log(program: Program) -> str:
        return str(program.made["getProgramLog"] if program.made else real["getProgramLog"](program.real))

    replaced: dict[str, Callable[..., Any]] = {
        "createProgram": lambda *source: Program(source),
        "addNameExpression": lambda program, name: program.names.append(name),
        "compileProgram": compile_program,
        "getPTX": lambda program: program.made["getPTX"],
        "getCUBIN": cubin,
        "getLoweredName": lambda program, name: program.made["getLoweredName"][name],
        "getProgramLog": log,
        "destroyProgram": lambda program: program.real is not None and real["destroyProgram"](program.real),
    }
    vars(nvrtc).update(replaced)


def _is_virtual(options: Sequence[str]) -> bool:
    return any(re.search(r"arch=compute_", option) for option in options)


def _file_of(program: Program, options: Sequence[str]) -> Path | None:
    """Return where the compiled program is kept; None where files decide, too, that may change."""
    from emulated_card.kernels.build import cache_folder

    kept = _kept()
    text, *others = program.source
    # Headers of packages change with their versions, and the plugin's own count by their content.
    of_packages = {option for option in options if "site-packages" in option or option[2:] == str(kept._STAND_INS)}
    more = (others, program.names, sorted(of_packages), metadata.version("cupy-cuda13x"))
    whole = kept._whole({"text": text, "options": [o for o in options if o not in of_packages], "more": more}, [])
    return None if whole is None else cache_folder() / "compiled" / kept.file_of(whole).name


def _kept() -> ModuleType:
    """Return the module that knows what else a compilation depends on; loaded by its file, as `sitecustomize.py` is."""
    spec = importlib.util.spec_from_file_location("kept", _KEPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _write(file: Path, made: bytes) -> None:
    from emulated_card.kernels.build import replaced

    replaced(file, made)


def assembled(cubin: bytes) -> Path:
    """Return where the PTX of a cubin is kept; baselines name a cubin's file by the same hash."""
    from emulated_card.kernels.build import cache_folder
    from pytest_bandwidth.domain.code.identity import digest

    return cache_folder() / "assembled" / f"{digest(cubin)}.ptx"
