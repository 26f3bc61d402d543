"""Compile with NVRTC in a process of its own: requests come in and replies go out as lines of JSON.

A compiler cannot be interrupted, and its memory has no limit; a process can be killed, and has limits. This file is run
by its path, not imported, so that it loads only the standard library and cuda.bindings, not the package.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import sys
from typing import Any

# 2²¹ template instances took 1.8 GB and still compile. At this limit NVRTC runs out of memory, but not the machine.
MEMORY_BYTES = 4 * 2**30


class Refused(Exception):
    """Raised where NVRTC refuses a request; the text has the reason."""


def main() -> None:
    """Answer requests until their pipe is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries must not mix with answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    _bound_memory()
    for line in sys.stdin:
        try:
            answer = _answer(json.loads(line))
        except Refused as error:
            answer = {"refused": str(error)}
        except (ImportError, RuntimeError) as error:  # RuntimeError: bindings without libnvrtc
            answer = {"unavailable": str(error) or type(error).__name__}
        except MemoryError:
            answer = {"refused": "NVRTC ran out of memory"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _bound_memory() -> None:
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    bound = MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (bound, most))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from cuda.bindings import nvrtc

    if "text" not in request:
        return _about(nvrtc)
    signal.alarm(request["alarm"])  # ends this process if the parent has gone
    try:
        return _compiled(nvrtc, request)
    finally:
        signal.alarm(0)


def _about(nvrtc: Any) -> dict[str, Any]:
    from cuda.pathfinder import find_nvidia_header_directory

    status, major, minor = nvrtc.nvrtcVersion()
    if int(status) != 0:
        raise Refused(f"NVRTC does not give its version (status {int(status)})")
    status, count = nvrtc.nvrtcGetNumSupportedArchs()
    numbers = nvrtc.nvrtcGetSupportedArchs()[1] if int(status) == 0 and count else ()
    # CUDA's headers, and the parts of the standard library that cooperative_groups.h includes.
    folders = map(find_nvidia_header_directory, ("cudart", "cccl"))
    return {
        "version": f"{major}.{minor}",
        "architectures": [f"sm_{number}" for number in numbers],
        "folders": [folder for folder in folders if folder is not None],
    }


def _compiled(nvrtc: Any, request: dict[str, Any]) -> dict[str, Any]:
    text, filename = request["text"].encode(), request["filename"].encode()
    handle = _checked(nvrtc, nvrtc.nvrtcCreateProgram(text, filename, 0, [], []))
    try:
        for name in request["names"]:
            _checked(nvrtc, nvrtc.nvrtcAddNameExpression(handle, name.encode()))
        options = [option.encode() for option in request["options"]]
        (status,) = nvrtc.nvrtcCompileProgram(handle, len(options), options)
        log = _text(nvrtc, handle, "nvrtcGetProgramLog").strip()
        if int(status) != 0:
            return {"failed": nvrtc.nvrtcGetErrorString(status)[1].decode(), "log": log}
        lowered = {
            name: str(_checked(nvrtc, nvrtc.nvrtcGetLoweredName(handle, name.encode())), "utf-8")
            for name in request["names"]
        }
        # There is no machine code for a virtual architecture.
        cubin = base64.b64encode(_bytes(nvrtc, handle, "nvrtcGetCUBIN")).decode("ascii")
        return {"ptx": _text(nvrtc, handle, "nvrtcGetPTX"), "cubin": cubin, "lowered": lowered, "log": log}
    finally:
        nvrtc.nvrtcDestroyProgram(handle)


def _text(nvrtc: Any, handle: Any, call: str) -> str:
    return str(_bytes(nvrtc, handle, call).rstrip(b"\0"), "utf-8", "replace")


def _bytes(nvrtc: Any, handle: Any, call: str) -> bytearray:
    size = _checked(nvrtc, getattr(nvrtc, f"{call}Size")(handle))
    # No `bytes`: an empty log has one byte, and Python shares one object for all `bytes` of that length.
    buffer = bytearray(size)
    _checked(nvrtc, getattr(nvrtc, call)(handle, buffer))
    return buffer


def _checked(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    if int(answer[0]) != 0:
        raise Refused(nvrtc.nvrtcGetErrorString(answer[0])[1].decode())
    return answer[1] if len(answer) > 1 else None


if __name__ == "__main__":
    main()
