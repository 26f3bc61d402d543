"""Keep what NVIDIA's compilers make, as the emulated card keeps its kernels: once for each content of their source."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.devices.kernel_source import STAND_INS

# Where it is before tests have homes of their own.
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytest-bandwidth" / "compiled"
INCLUDING = ("-I", "--include-path", "-include", "--pre-include")
QUOTED = r'#\s*include\s*"'
NVRTC = "pytest_bandwidth.features.traffic.ptx.nvrtc"


@functools.cache
def _compilers() -> list[tuple[str, str]]:
    """Return the packages of compilers and of headers, each with its version, and the stand-ins for headers."""
    found = ((str(one.metadata["Name"]), one.version) for one in distributions())
    packages = sorted(one for one in found if one[0].startswith(("cuda", "nvidia")))
    return packages + [(path.name, path.read_text()) for path in sorted(STAND_INS.iterdir())]


def kept(given: object, make: Callable[[], bytes]) -> bytes:
    """Return what was made of something, all of which its `repr` tells, now or in a process before."""
    file = FOLDER / hashlib.sha256(repr((_compilers(), given)).encode()).hexdigest()
    if not file.exists():
        made = make()
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=FOLDER, delete=False) as beside:
            beside.write(made)
        os.replace(beside.name, file)  # whole, whoever else makes the same
    return file.read_bytes()


def _is_whole(request: dict[str, Any], folders: list[str]) -> bool:
    """Return whether a request of NVRTC holds all that is compiled, but for headers of NVIDIA's packages."""
    own = [option for option in request["options"] if option.partition("=")[2] not in folders]
    return not any(option.startswith(INCLUDING) for option in own) and not re.search(QUOTED, request["text"])


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    """Have NVRTC compile what it has not compiled before."""
    nvrtc = sys.modules.get(NVRTC)  # which a module that compiles imports
    with pytest.MonkeyPatch.context() as patch:
        if nvrtc is not None:
            ask = nvrtc.ask

            def answer(request: dict[str, Any], seconds: float = math.inf) -> Any:
                if not request or not _is_whole(request, nvrtc._about()["folders"]):
                    return ask(request, seconds)
                return json.loads(kept(request, lambda: json.dumps(ask(request, seconds)).encode()))

            patch.setattr(nvrtc, "ask", answer)
        yield
