"""Every kernel of cuda_src/ by the interpreter and as built code: same bytes, same counts."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

if not all(map(importlib.util.find_spec, ("cuda", "numba", "lark"))):
    pytest.skip("translating kernels needs: pip install 'pytest-bandwidth[traffic]'", allow_module_level=True)

from interpreted import CUDA_SRC, FreshArrays

from emulated_card.kernels.comparing import needs_compiler, run_both
from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.operations.model import KernelStep

pytestmark = needs_compiler

ARCH = "sm_90"
SMALL_BYTES = 1 << 14
# One of each kind: plain, strided, tiled in shared memory, a tree of shuffles, tensors of halves.
QUICK = {
    ("triad-plain", "float32"),
    ("copy-wide", "float16"),
    ("strided_read-plain", "float32"),
    ("transpose-tiled", "float32"),
    ("sum-wide", "float32"),
    ("softmax-naive", "float16"),
}
ATTENTION = {"batch": 1, "heads": 2, "n": 70, "d": 64}
# Copies that launch no kernel.
BY_THE_RUNTIME = {"host_to_device", "device_to_host", "peer_to_peer"}
# exp2 is an approximation: NumPy's and the C library's differ by a place or two, and what is computed of it with them.
APPROXIMATE = 1e-5


@functools.cache
def module(file: str) -> ptx.PtxModule:
    return ptx.compile_ptx((CUDA_SRC / file).read_text(encoding="utf-8"), arch=ARCH, filename=file)


def cases() -> Iterator[Any]:
    for operation in OPERATIONS:
        if operation.name in BY_THE_RUNTIME:
            continue
        for dtype in operation.dtypes:
            sizes = next(iter(operation.shapes(SMALL_BYTES, dtype)))
            if operation.name == "attention":
                # A model's size, whatever the bytes: half a minute each. This one has tiles, and a part of one.
                sizes = ATTENTION
            quick = (operation.title, dtype) in QUICK
            marks = () if quick else (pytest.mark.slow,)
            yield pytest.param(operation, dtype, sizes, id=f"{operation.title}-{dtype}", marks=marks)


@pytest.mark.parametrize(("operation", "dtype", "sizes"), [*cases()])
def test_an_operation_does_the_same_both_ways(operation: Any, dtype: str, sizes: Any) -> None:
    try:
        case = operation.prepare(FreshArrays(1), dtype, sizes)
    except NotImplementedError:
        pytest.skip("runs on the device's library alone")
    launches = [step for step in case.steps if isinstance(step, KernelStep)]
    for step in launches:
        run_both(module(step.file), step.kernel, step.grid, step.block, step.args, relative=APPROXIMATE)


def test_every_quick_case_exists() -> None:
    assert {(o.title, dtype) for o in OPERATIONS for dtype in o.dtypes} >= QUICK
