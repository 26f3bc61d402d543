"""What each operation moves and computes, as text: for tables, and for tests that hold the models to it.

Names are the sizes of the operation; s is the bytes of an element, i those of an index. Python expressions, so that
they can be worked out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.traffic import bytes_per_element
from pytest_bandwidth.suite.operations.model import Sizes


@dataclass(frozen=True, slots=True)
class Formula:
    """bytes_moved and flop of one run; `besides`: what the model counts beyond the formula, being small."""

    bytes_moved: str
    flop: str
    besides: str = ""

    def at(self, sizes: Sizes, dtype: Any, *, index_bytes: int = 0) -> tuple[float, float]:
        """Bytes moved and FLOP at these sizes, without what is `besides`. Needs no array of them."""
        names = {**sizes, "s": bytes_per_element(dtype), "i": index_bytes}
        moved, flop = (eval(text, {"__builtins__": {}}, names) for text in (self.bytes_moved, self.flop))
        return moved, flop


_ATTENTION_FLOP = "4*batch*heads*n**2*d"
_DECODE = Formula(
    "2*batch*tokens*kv_heads*d*s + 2*batch*query_heads*d*s",
    "4*batch*tokens*query_heads*d",
)
_PARTIALS = "partial results"

# By name, or by title where the versions of a name differ.
FORMULAS: dict[str, Formula] = {
    "read": Formula("n*s", "0"),
    "write": Formula("n*s", "0"),
    "copy": Formula("2*n*s", "0"),
    "scale": Formula("2*n*s", "n"),
    "add": Formula("3*n*s", "n"),
    "triad": Formula("3*n*s", "2*n"),
    "sum": Formula("n*s", "n", _PARTIALS),
    "dot": Formula("2*n*s", "2*n", _PARTIALS),
    "bias_relu_dropout-unfused": Formula("6*n*s", "3*n"),
    "bias_relu_dropout-fused": Formula("2*n*s", "3*n"),
    "cos_cos-unfused": Formula("4*n*s", "2*n"),
    "cos_cos-fused": Formula("2*n*s", "2*n"),
    "intensity_fma": Formula("2*n*s", "2*repeats*n"),
    "intensity_add": Formula("2*n*s", "repeats*n"),
    "strided_read": Formula("2*n*s", "0"),
    "strided_write": Formula("2*n*s", "0"),
    "misaligned": Formula("2*n*s", "0"),
    "broadcast": Formula("n*s + s", "0"),
    "gather": Formula("2*n*s + n*i", "0"),
    "transpose": Formula("2*rows*cols*s", "0"),
    "softmax": Formula("2*rows*cols*s", "5*rows*cols"),
    "layer_norm": Formula("2*rows*cols*s + 2*cols*s", "10*rows*cols"),
    "logsumexp-fused": Formula("rows*cols*s + rows*s", "3*rows*cols"),
    "logsumexp-unfused": Formula("4*rows*cols*s + 4*rows*s", "3*rows*cols"),
    "gemm": Formula("(m*k + k*n + m*n)*s", "2*m*n*k"),
    "attention-standard": Formula("4*batch*heads*n*d*s + 4*batch*heads*n**2*s", _ATTENTION_FLOP),
    "attention-flash": Formula("4*batch*heads*n*d*s", _ATTENTION_FLOP),
    "kv_append": Formula("4*batch*tokens*kv_heads*d*s", "0"),
    "kv_decode-plain": _DECODE,
    "kv_decode-split": Formula(_DECODE.bytes_moved, _DECODE.flop, _PARTIALS),
    "q4_0_dequantize": Formula("n*18/32 + n*s", "n"),
    "q4_0_gemv-fused": Formula("k*n*18/32 + (m*k + m*n)*s", "2*m*n*k"),
    "q4_0_gemv-separate": Formula("k*n*18/32 + 2*k*n*s + (m*k + m*n)*s", "2*m*n*k"),
    "q4_0_gemm-fused": Formula("k*n*18/32 + (m*k + m*n)*s", "2*m*n*k"),
    "q4_0_gemm-separate": Formula("k*n*18/32 + 2*k*n*s + (m*k + m*n)*s", "2*m*n*k"),
    "host_to_device": Formula("n*s", "0"),
    "device_to_host": Formula("n*s", "0"),
    "device_to_device": Formula("2*n*s", "0"),
    "peer_to_peer": Formula("n*s", "0"),
}


def formula_of(name: str, version: str) -> Formula:
    """The formula of one version of an operation. Raises KeyError for an operation that has none."""
    title = f"{name}-{version}"
    return FORMULAS[title] if title in FORMULAS else FORMULAS[name]
