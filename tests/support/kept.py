"""Keep what NVIDIA's compilers make, as the emulated card keeps its kernels: once for each content of their source.

Loaded by `small_machine` in each process that tests start, and by tests/conftest.py: it imports nothing that is slow.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import Any

# Names the cache folder. Without this variable a process compiles everything.
VARIABLE = "KEPT_COMPILED"
INCLUDING = ("-I", "--include-path", "-include", "--pre-include")
INCLUDED, OTHERWISE = r"#\s*include\s*<([^>]*)", r"#\s*include\s*[^<\s]"
NVRTC = "pytest_bandwidth.features.traffic.ptx.nvrtc"
_STAND_INS = Path(__file__).parents[2] / "pytest_bandwidth" / "devices" / "headers"


def folder() -> Path:
    """Return where it is, unless the variable names another place."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(VARIABLE) or Path(cache, "pytest-bandwidth", "compiled"))


@functools.cache
def _compilers() -> list[str]:
    """Name the packages of compilers and of headers, each with its version and its place; the stand-ins by content."""
    found = (file for place in sys.path for name in ("cuda", "nvidia") for file in Path(place).glob(f"{name}*-info"))
    return [*sorted({str(file) for file in found}), *(path.read_text() for path in sorted(_STAND_INS.iterdir()))]


def file_of(given: object) -> Path:
    """Return the cache file for an input; its `repr` has to hold all that the result depends on."""
    return folder() / hashlib.sha256(repr((_compilers(), given)).encode()).hexdigest()


def _keep(file: Path, made: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f"{file.name}.{os.getpid()}.{get_ident()}")
    beside.write_bytes(made)
    os.replace(beside, file)  # whole, whoever else makes the same


def kept(given: object, make: Callable[[], bytes]) -> bytes:
    """Return what was made of something, now or in a process before."""
    file = file_of(given)
    if not file.exists():
        _keep(file, make())
    return file.read_bytes()


def _whole(request: dict[str, Any], folders: list[str]) -> dict[str, Any] | None:
    """Return all that decides what NVRTC makes, but for headers of NVIDIA's packages; None where files do as well."""
    if "text" not in request:
        return request
    if re.search(OTHERWISE, request["text"]):
        return None
    included = re.findall(INCLUDED, request["text"])
    own = {option[2:] for option in request["options"] if option.startswith("-I")}
    others = [
        option for option in request["options"] if option[2:] not in own and option.partition("=")[2] not in folders
    ]
    if any(option.startswith(INCLUDING) for option in others):
        return None
    # A source's folder matters only where the source includes a file of it.
    if any(Path(folder, name).exists() for folder in own for name in included):
        return None
    return {**request, "options": others}


class CompiledOnce:
    """As a finder of modules: have NVRTC compile what it has not compiled before, once its module is loaded."""

    @classmethod
    def install(cls) -> None:
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.insert(0, cls())

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if sys.meta_path[0] is not self:  # behind pytest, which loads this module for itself
            sys.meta_path[:] = [self, *(finder for finder in sys.meta_path if finder is not self)]
        if name != NVRTC:
            return None
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in sys.meta_path[1:])))
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> None:
        del spec

    def exec_module(self, nvrtc: Any) -> None:
        self._loader.exec_module(nvrtc)
        ask = nvrtc.ask

        def answer(request: dict[str, Any], seconds: float = math.inf) -> Any:
            whole = (
                None if VARIABLE not in os.environ else _whole(request, nvrtc._about()["folders"] if request else [])
            )
            file = None if whole is None else file_of(whole)
            if file is not None and file.exists():
                return json.loads(file.read_bytes())
            answered = ask(request, seconds)
            if file is not None:
                _keep(file, json.dumps(answered).encode())
            return answered

        # What it raises names the last place outside of the package.
        answer.__code__ = answer.__code__.replace(co_filename=nvrtc.__file__)
        nvrtc.ask = answer
