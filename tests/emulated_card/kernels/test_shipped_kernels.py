"""Kernels of cuda_src/ by the interpreter and as built code: same bytes, same counts.

That all of them compute what NumPy does: tests/kernels/test_kernel_numerics.py; in one type each: card/test_suite.py.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

if not all(map(importlib.util.find_spec, ("cuda", "numba", "lark"))):
    pytest.skip("translating kernels needs: pip install 'pytest-bandwidth[traffic]'", allow_module_level=True)

import kernel_resources
from interpreted import FreshArrays

from emulated_card.kernels.comparing import needs_compiler, run_both
from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.operations.model import KernelStep

pytestmark = needs_compiler

ARCH = "sm_90"
SMALL_BYTES = 1 << 14
# One of each kind: plain, strided, tiled, a tree of shuffles, halves, rows in registers, indices, packed
# weights, products, tensor cores.
KINDS = {
    ("triad-plain", "float32"),
    ("copy-wide", "float16"),
    ("strided_read-plain", "float32"),
    ("transpose-tiled", "float32"),
    ("nchw_to_nhwc-wide", "float16"),
    ("sum-wide", "float32"),
    ("softmax-naive", "float16"),
    ("softmax-registers", "float32"),
    ("rms_norm_residual-registers", "float16"),
    ("logsumexp-registers", "float32"),
    ("quantize_int8-registers", "float16"),
    ("quantize_fp8-registers", "float32"),
    ("quantize_fp8-plain", "float32"),
    ("quantize_mxfp8-registers", "float16"),
    ("dequantize_fp8-wide", "float16"),
    ("bias_relu_dropout-wide", "float32"),
    ("rope-wide", "float16"),
    ("scale-wide", "bfloat16"),
    ("layer_norm-staged", "float32"),
    ("gemm-tiled", "float32"),
    ("gather-int32", "float32"),
    ("embedding-wide", "float16"),
    ("topk-wide", "float32"),
    ("q4_0_gemv-fused", "float32"),
    ("q4_0_gemm-planar", "float16"),
    ("gemm-pipelined", "float16"),
    ("gemm-split-k", "float32"),
    ("gemm_int8-pipelined", "float16"),
    ("gemm_int8-plain", "float32"),
    ("kv_decode_paged-grouped", "float16"),
    ("kv_append_fp8-wide", "float16"),
    ("kv_decode_fp8-grouped", "float32"),
}
# exp2 is an approximation: NumPy's and the C library's differ by a place or two, and what is computed of it with them.
APPROXIMATE = 1e-5


CASES = [
    (operation, dtype) for operation in OPERATIONS for dtype in operation.dtypes if (operation.title, dtype) in KINDS
]


@pytest.mark.parametrize(
    ("operation", "dtype"), [pytest.param(*case, id=f"{case[0].title}-{case[1]}") for case in CASES]
)
def test_an_operation_does_the_same_both_ways(operation: Any, dtype: str) -> None:
    case = operation.prepare(FreshArrays(1), dtype, next(iter(operation.shapes(SMALL_BYTES, dtype))))
    launches = [step for step in case.steps if isinstance(step, KernelStep)]
    for step in launches:
        run_both(
            kernel_resources.ptx(step.file, ARCH), step.kernel, step.grid, step.block, step.args, relative=APPROXIMATE
        )


def test_every_kind_is_there() -> None:
    assert len(CASES) == len(KINDS)
