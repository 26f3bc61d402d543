"""Give the driver's modules their kernels: C calls here with PTX, and is given what `emulated_card.kernels` builds.

The card executes PTX: for machine code, the PTX that `nvrtc.py` kept of it. A cubin that no NVRTC of the card's
processes has made does not load.
"""

from __future__ import annotations

import ctypes
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

from emulated_card.nvrtc import assembled

INVALID_IMAGE, NOT_FOUND, NOT_SUPPORTED, UNKNOWN = 200, 500, 801, 999
_DESCRIBE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_BUILD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
_DISASSEMBLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
_MOST_THREADS = 1024
_kept: list[Any] = []  # C has their addresses


def install(cuda: ctypes.CDLL) -> None:
    """Register the callbacks."""
    set_disassembled = cuda.card_set_disassembled
    set_disassembled.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    add_variable, add_function = cuda.card_add_variable, cuda.card_add_function
    add_variable.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p)
    numbers = ctypes.POINTER(ctypes.c_uint32)
    add_function.argtypes = (
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, numbers, numbers),
        *(ctypes.c_uint32, ctypes.POINTER(ctypes.c_int)),
    )

    def describe(module: int, text: bytes) -> int:
        from emulated_card.kernels import variables_of

        for variable in variables_of(text.decode()):
            status = add_variable(module, variable.name.encode(), variable.size, variable.align, variable.initial)
            if status:
                return int(status)
        return 0

    def build(module: int, text: bytes, entry: bytes) -> int:
        from emulated_card.kernels import build

        target = re.search(rb"^\.target\s+(\w+)", text, re.MULTILINE)
        found = build(text.decode(), entry.decode(), target[1].decode() if target else "sm_90")
        count = len(found.parameters)
        array = ctypes.c_uint32 * max(count, 1)
        attributes = (found.static_shared_bytes, found.local_bytes, found.max_threads or _MOST_THREADS, found.registers)
        return int(
            add_function(
                module,
                entry,
                found.path.encode(),
                count,
                array(*(offset for offset, _ in found.parameters)),
                array(*(size for _, size in found.parameters)),
                found.parameter_bytes,
                (ctypes.c_int * 4)(*attributes),
            )
        )

    def disassemble(module: int, cubin: int, size: int) -> int:
        kept = assembled(ctypes.string_at(cubin, size))
        if not kept.exists():
            print(f"emulated card: no NVRTC here has made the cubin {kept.stem}", file=sys.stderr)
            return INVALID_IMAGE
        set_disassembled(module, kept.read_bytes(), kept.stem.encode())
        return 0

    callbacks = _DESCRIBE(_reported(describe)), _BUILD(_reported(build)), _DISASSEMBLE(_reported(disassemble))
    _kept.extend(callbacks)
    cuda.card_register_translator(*callbacks)


def _reported(callback: Callable[..., int]) -> Callable[..., int]:
    """Turn exceptions, which C cannot take, into CUDA's errors and a line on stderr."""

    def call(*given: Any) -> int:
        from emulated_card.kernels import NotSupported

        try:
            return callback(*given)
        except KeyError:
            return NOT_FOUND
        except NotSupported as error:
            print(f"emulated card: {error}", file=sys.stderr)
            return NOT_SUPPORTED
        except Exception:  # noqa: BLE001 - C cannot take any
            traceback.print_exc()
            return UNKNOWN

    return call
