"""Compile CUDA C++ to PTX, and to cubin with ptxas' resource report, through NVRTC. Needs no GPU and no driver.

Compilers run in processes of their own (`nvrtc_server.py`), which end at Ctrl-C, past their time and with this process.
"""

from __future__ import annotations

import atexit
import base64
import functools
import json
import math
import os
import queue
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_bandwidth.devices.code.cubin import resources_of
from pytest_bandwidth.devices.kernel_source import STAND_INS
from pytest_bandwidth.domain.errors import DeviceUnavailable, KernelError, NotOnThisDevice
from pytest_bandwidth.domain.measured.measurement import KernelResources

_LINE_INFORMATION = ("-lineinfo", "--generate-line-info")


@dataclass(frozen=True, slots=True)
class PtxModule:
    """Hold NVRTC's PTX for one source text.

    nvrtc_version: ``13.4``; the PTX text changes with it, so baselines record it.
    lowered: mangled kernel name of each name expression (``scale<float>`` → ``_Z5scaleIfEvPT_``).
    filename: the name of the source text in messages and source lines.
    log: the compiler's output, may be empty. source: the text of `filename`. parameters: the names of the kernel's
    parameters, where it is not CUDA's. foreign_folder: the folder of files that are not the user's; None: all files but
    `filename`. for_blocks: whether the source is for whole blocks, like Triton's: its compiler lets several threads
    read an element that one of them writes. file: the PTX file, for errors.
    """

    ptx: str
    nvrtc_version: str
    arch: str
    lowered: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    filename: str = "kernel.cu"
    source: str = ""
    parameters: tuple[str, ...] = ()
    foreign_folder: str | None = None
    for_blocks: bool = False
    file: str = ""


@dataclass(frozen=True)
class CubinModule:
    """Hold the machine code of one source text, an ELF file. ptx: the PTX that it was assembled from."""

    data: bytes
    ptx: PtxModule

    @functools.cached_property
    def resources(self) -> dict[str, KernelResources]:
        """Return the resources of each kernel by its mangled name."""
        return {name.partition(" ")[0]: found for name, found in resources_of(self.data).items()}


def compile_ptx(
    text: str,
    *,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    filename: str = "kernel.cu",
    max_seconds: float = math.inf,
) -> PtxModule:
    """Compile CUDA C++ `text` for `arch` (``sm_75`` …) with line information, CUDA's own headers on the include path.

    options: further NVRTC options, such as ``-DTILE=32`` or ``--use_fast_math``.
    name_expressions: template kernels to instantiate, such as ``scale<float>``.
    Raises KernelError with the compiler's log or after `max_seconds`, DeviceUnavailable where NVRTC is not installed,
    NotOnThisDevice without the headers of wmma, and for instructions of another architecture.
    """
    virtual = arch.replace("sm_", "compute_", 1)
    return _ptx_of(
        _compile(text, arch, virtual, options, name_expressions, filename, max_seconds), text, arch, filename
    )


def compile_cubin(
    text: str,
    *,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    filename: str = "kernel.cu",
    max_seconds: float = math.inf,
) -> CubinModule:
    """Compile to machine code, and to PTX as `compile_ptx` does, which is half of the compiler's work.

    It has the same arguments and raises the same errors.
    """
    readable = filename.replace('"', "'")  # ptxas ends a file's name at a quote
    answer = _compile(text, arch, arch, options, name_expressions, readable, max_seconds)
    return CubinModule(base64.b64decode(answer["cubin"]), _ptx_of(answer, text, arch, filename))


def _ptx_of(answer: dict[str, Any], text: str, arch: str, filename: str) -> PtxModule:
    lowered = MappingProxyType(dict(answer["lowered"]))
    return PtxModule(answer["ptx"], nvrtc_version(), arch, lowered, answer["log"], filename, text)


def nvrtc_version() -> str:
    """Return the version of NVRTC, ``major.minor``. Raises DeviceUnavailable without NVRTC."""
    return str(_about()["version"])


def supported_architectures() -> tuple[str, ...]:
    """List the architectures that this NVRTC compiles for, ``sm_75`` first. Raises DeviceUnavailable without NVRTC."""
    return tuple(_about()["architectures"])


@functools.cache
def _about() -> dict[str, Any]:
    about = ask({})
    return {**about, "folders": [*about["folders"], str(STAND_INS)]}


def _compile(
    text: str,
    arch: str,
    target: str,
    options: Sequence[str],
    name_expressions: Sequence[str],
    filename: str,
    max_seconds: float,
) -> dict[str, Any]:
    """Compile for a target: the architecture, or PTX alone (``compute_90``)."""
    own = [option for option in options if option not in _LINE_INFORMATION]
    folders = (f"--include-path={folder}" for folder in _about()["folders"])
    request = {
        "text": text,
        "filename": filename,
        "names": list(name_expressions),
        "options": [f"--gpu-architecture={target}", "-lineinfo", *own, *folders],
    }
    answer = ask(request, max_seconds)
    if "failed" in answer:
        known, log = supported_architectures(), answer["log"].replace("\0", "").strip()
        if arch.rstrip("af") not in known:
            raise KernelError(
                f"{filename}: NVRTC {nvrtc_version()} does not know {arch}; it compiles for {', '.join(known)}"
            )
        _explain_missing_header(filename, log, text)
        errors = re.findall(r"^ptxas .*\berror *: (.*)", log, re.MULTILINE)
        if errors and all(_OF_OTHER_ARCHITECTURES.search(error) for error in errors):
            raise NotOnThisDevice(f"{filename} needs another architecture than {arch}: {errors[0]}")
        raise KernelError(
            f"{filename} does not compile for {arch} ({answer['failed']}):\n{log or 'the compiler gave no log'}"
        )
    return answer


# "Instruction 'wgmma.fence' not supported on .target 'sm_80'", "Feature 'fma.f32x2' requires .target sm_100 or higher".
_OF_OTHER_ARCHITECTURES = re.compile(r"(not supported on|requires) \.target |cannot be compiled for architecture ")
_MISSING = re.compile(r'cannot open source file "([^"]+)"')


def _explain_missing_header(filename: str, log: str, text: str) -> None:
    """Raise a helpful error for a missing header: NVRTC does not have the host's headers. text: the source."""
    found = _MISSING.search(log)
    if found is None:
        return
    header = found[1]
    if header in ("mma.h", "crt/mma.h"):
        raise NotOnThisDevice(
            f"{filename} includes <{header}>, which is not installed: run pip install nvidia-cuda-crt"
        )
    if re.search(rf'#\s*include\s*"{re.escape(header)}"', text):
        raise KernelError(
            f'{filename} includes "{header}", expected it in the folder of that file, or in one of options=("-I…",), '
            f"relative to where pytest was started\n{log}"
        )
    raise KernelError(
        f"{filename} includes <{header}>, and NVRTC, which compiles for the device alone, has no headers of the host; "
        "include its part in <cuda/std/…>, if there is one, copy the parts that the kernel needs, or keep it from "
        f"NVRTC with #ifndef __CUDACC_RTC__\n{log}"
    )


# ---- compiler processes ----------------------------------------------------------------------------------------------

INSTALL_HINT = "install it with: pip install 'pytest-bandwidth[traffic]'"
_SERVER = Path(__file__).with_name("nvrtc_server.py")
# With -I a child searches for modules in its installation first, and only then in this process's folders: it must not
# load a json.py of the current folder.
_BOOTSTRAP = "import sys, runpy; sys.path += sys.argv[2:]; runpy.run_path(sys.argv[1], run_name='__main__')"
# So long after a request's time limit, a compiler whose parent has gone ends itself.
_ORPHANED_SECONDS = 5


def ask(request: dict[str, Any], seconds: float = math.inf) -> dict[str, Any]:
    """Return a compiler's answer to one request.

    Raises KernelError past `seconds`, or where the compiler ends; DeviceUnavailable where NVRTC is not installed.
    """
    child = idle_child()
    try:
        answer = child.ask(
            {**request, "alarm": 0 if math.isinf(seconds) else int(seconds) + _ORPHANED_SECONDS}, seconds
        )
    except BaseException:  # Ctrl-C as well: its result is not needed any more
        child.end()
        raise
    _IDLE[os.getpid()].append(child)
    if "unavailable" in answer:
        reason = str(answer["unavailable"]).strip().splitlines()[0][:200]
        raise DeviceUnavailable(f"NVRTC, which the traffic device needs, cannot be loaded ({reason}); {INSTALL_HINT}")
    if "refused" in answer:
        raise KernelError(f"NVRTC refused a request ({answer['refused']}); check kernel names and options")
    return answer


class _Child:
    def __init__(self) -> None:
        command = [sys.executable, "-I", "-c", _BOOTSTRAP, str(_SERVER), *sys.path]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Put lines in the queue, an empty one at the end: a read of the pipe itself has no time limit."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        filename = request.get("filename", "NVRTC")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=None if math.isinf(seconds) else seconds)
        except queue.Empty:
            raise KernelError(
                f"{filename} still compiles after {seconds:g} s; give the compiler less to do, or raise "
                "--bandwidth-traffic-timeout"
            ) from None
        except OSError:
            line = ""
        if not line:
            raise KernelError(
                f"the compiler ended while it read {filename} (status {self._process.wait()}); "
                "it may have run out of the 4 GiB that it may take: give it less to do"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        self._process.kill()
        with suppress(OSError), self._process:  # a request that it has not read cannot be flushed
            pass


# Idle compilers by the process that started them: after a fork they are the parent's.
_IDLE: defaultdict[int, list[_Child]] = defaultdict(list)


def idle_child() -> _Child:
    """Return an idle compiler; start another where all are busy, as with several threads."""
    idle = _IDLE[os.getpid()]
    while idle:
        child = idle.pop()
        if child.is_alive():
            return child
        child.end()
    return _Child()


@atexit.register
def _end_idle() -> None:
    for child in _IDLE[os.getpid()]:
        child.end()
