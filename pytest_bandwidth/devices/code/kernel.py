"""Identify a kernel by what a compiler made of it."""

from __future__ import annotations

import functools

from pytest_bandwidth.devices.code.cubin import machine_code
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest
from pytest_bandwidth.domain.code.ptx_normal_form import normal_form, ptx_digest

KERNELS_KEPT = 256


@functools.lru_cache(KERNELS_KEPT)
def kernel_code(ptx: str, cubin: bytes, kernel: str) -> MeasuredCode:
    """Identify a kernel, by its name in the PTX, without a launch; unknown where the compiler's output cannot be read.

    cubin: empty where the driver compiles the PTX itself.
    """
    module = normal_form(ptx, kernel)
    if module is None:
        return MeasuredCode()
    code = machine_code(cubin, kernel, module.said)
    # What variables hold is code's as well, and lies where a cubin does not tell which kernel reads it.
    sass = None if code is None else digest(*code, *module.data)
    return MeasuredCode(CodeIdentity(ptx_digest(module.text), sass), module.text)
