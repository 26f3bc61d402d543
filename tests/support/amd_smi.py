"""The real module amdsmi over a library that is none: what it asks of the driver is answered by Python functions.

The wheel's ctypes structures are filled as the driver would, so that units, "N/A" and names are its own.
"""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NOT_SUPPORTED = 2
LIBRARY = re.compile(r"_libraries\['libamd_smi\.so'\]\.(\w+)")


def load(folder: Path) -> None:
    """Import the real amdsmi. All of its library's functions say that they are not supported."""
    spec = importlib.util.find_spec("amdsmi")
    compiler = shutil.which("gcc")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("amdsmi is not installed: pip install amdsmi")
    if compiler is None:
        pytest.skip("no gcc to build a library for amdsmi: install gcc")
    wrapper = Path(spec.submodule_search_locations[0]) / "amdsmi_wrapper.py"
    names = sorted(set(LIBRARY.findall(wrapper.read_text())))
    (folder / "lib").mkdir()
    source = folder / "library.c"
    source.write_text("".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in names))
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", folder / "lib" / "libamd_smi.so", source], check=True)
    before = os.environ.get("ROCM_HOME")
    os.environ["ROCM_HOME"] = str(folder)
    try:
        importlib.import_module("amdsmi")
    finally:
        del os.environ["ROCM_HOME"]
        if before is not None:
            os.environ["ROCM_HOME"] = before


def answer(monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., None]) -> None:
    """Let a function of the library succeed: the given one gets what the arguments after the GPU's handle point to."""
    wrapper = importlib.import_module("amdsmi.amdsmi_wrapper")

    def succeed(*args: Any) -> int:
        function(*(getattr(argument, "_obj", argument) for argument in args[1:]))
        return 0

    assert hasattr(wrapper, name)
    monkeypatch.setattr(wrapper, name, succeed)


def fill(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    """Let a function of the library succeed, and fill these fields of its structure; ``a__b`` is a field of a field."""

    def write(*targets: Any) -> None:
        for path, value in fields.items():
            *outer, last = path.split("__")
            at = targets[-1]
            for part in outer:
                at = getattr(at, part)
            if not hasattr(at, last):
                raise AttributeError(f"{type(at).__name__} has no {last}")
            setattr(at, last, value)

    answer(monkeypatch, name, write)
