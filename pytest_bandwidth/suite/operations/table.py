"""List the built-in operations with their bytes and FLOP: ``python -m pytest_bandwidth.suite.operations.table``.

Prints Markdown. Sizes of a test are chosen by the same formulas, and tests compare the traffic models with them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np

from pytest_bandwidth.domain.traffic import bytes_per_element
from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.operations.model import KernelStep, Operation, Sizes

_HEADER = ("operation", "version", "kernels", "dtypes", "bytes moved", "FLOP")


@dataclass(frozen=True, slots=True)
class Formula:
    """Hold the bytes moved and the FLOP of one run, each a sum of products: ``2·n·s + n·i``.

    Factors are integers, 18/32 (a block of q4_0: bytes of so many elements), sizes of the operation, s (bytes of an
    element) and i (those of an index), any of them squared. besides: further, small terms of the model.
    """

    bytes_moved: str
    flop: str
    besides: str = ""

    def at(self, sizes: Sizes, dtype: Any, *, index_bytes: int = 0) -> tuple[float, float]:
        """Compute bytes moved and FLOP at these sizes, without `besides`, and without making any array."""
        names = {**sizes, "s": bytes_per_element(dtype), "i": index_bytes}
        return _sum_of_products(self.bytes_moved, names), _sum_of_products(self.flop, names)


def _sum_of_products(text: str, names: Mapping[str, int]) -> float:
    """Compute a formula's text. Raises KeyError for a name that has no value."""
    found = Fraction(0)
    for term in text.split(" + "):
        product = Fraction(1)
        for factor in term.split("·"):
            name = factor.removesuffix("²")
            value = Fraction(factor) if factor[0].isdigit() else Fraction(names[name])
            product *= value if name == factor else value**2
        found += product
    return float(found)


_ATTENTION_FLOP = "4·batch·heads·n²·d"
_DECODE = Formula("2·batch·tokens·kv_heads·d·s + 2·batch·query_heads·d·s", "4·batch·tokens·query_heads·d")
_DECODE_FP8 = Formula("2·batch·tokens·kv_heads·d + 8·batch·tokens·kv_heads + 2·batch·query_heads·d·s", _DECODE.flop)
_PARTIALS, _PAGES = "partial results", "page numbers"
_IN_8_BITS = "rows·cols·s + rows·cols + 4·rows"
_FUSED = Formula("k·n·18/32 + m·k·s + m·n·s", "2·m·n·k")
_SEPARATE = Formula("k·n·18/32 + 2·k·n·s + m·k·s + m·n·s", "2·m·n·k")

# By name, or by title where the versions of a name differ.
FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("read", "write", "host_to_device", "device_to_host", "peer_to_peer"), Formula("n·s", "0")),
    **dict.fromkeys(("copy", "strided_read", "strided_write", "misaligned", "device_to_device"), Formula("2·n·s", "0")),
    "scale": Formula("2·n·s", "n"),
    "add": Formula("3·n·s", "n"),
    "triad": Formula("3·n·s", "2·n"),
    "sum": Formula("n·s", "n", _PARTIALS),
    "dot": Formula("2·n·s", "2·n", _PARTIALS),
    "bias_relu_dropout-unfused": Formula("6·n·s", "3·n"),
    **dict.fromkeys(("bias_relu_dropout-fused", "bias_relu_dropout-wide"), Formula("2·n·s", "3·n")),
    "cos_cos-unfused": Formula("4·n·s", "2·n"),
    **dict.fromkeys(("cos_cos-fused", "cos_cos-wide"), Formula("2·n·s", "2·n")),
    "swiglu": Formula("3·n·s", "5·n"),
    "intensity_fma": Formula("2·n·s", "2·repeats·n"),
    "intensity_add": Formula("2·n·s", "repeats·n"),
    "broadcast": Formula("n·s + s", "0"),
    "gather": Formula("2·n·s + n·i", "0"),
    "embedding": Formula("2·rows·cols·s + 4·rows", "0"),
    "transpose": Formula("2·rows·cols·s", "0"),
    **dict.fromkeys(("nchw_to_nhwc", "nhwc_to_nchw"), Formula("2·batch·channels·pixels·s", "0")),
    "softmax": Formula("2·rows·cols·s", "5·rows·cols"),
    "layer_norm": Formula("2·rows·cols·s + 2·cols·s", "10·rows·cols"),
    "rms_norm_residual": Formula("4·rows·cols·s + cols·s", "5·rows·cols"),
    **dict.fromkeys(("logsumexp-fused", "logsumexp-registers"), Formula("rows·cols·s + rows·s", "3·rows·cols")),
    "logsumexp-unfused": Formula("4·rows·cols·s + 4·rows·s", "3·rows·cols"),
    "topk": Formula("rows·cols·s + rows·k·s + 4·rows·k", "rows·cols"),
    "rope": Formula("2·tokens·heads·d·s + 4·tokens·d", "3·tokens·heads·d"),
    **dict.fromkeys(("quantize_int8", "quantize_fp8"), Formula(_IN_8_BITS, "3·rows·cols")),
    "quantize_mxfp8": Formula("32·rows·blocks·s + 33·rows·blocks", "96·rows·blocks"),
    **dict.fromkeys(("dequantize_int8", "dequantize_fp8"), Formula(_IN_8_BITS, "rows·cols")),
    "gemm": Formula("m·k·s + k·n·s + m·n·s", "2·m·n·k"),
    "gemv": Formula("n·k·s + k·s + n·s", "2·n·k"),
    "gemm_int8": Formula("m·k + k·n + 4·m + 4·n + m·n·s", "2·m·n·k"),
    "attention-standard": Formula("4·batch·heads·n·d·s + 4·batch·heads·n²·s", _ATTENTION_FLOP),
    **dict.fromkeys(("attention-flash", "attention-flash2"), Formula("4·batch·heads·n·d·s", _ATTENTION_FLOP)),
    "kv_append": Formula("4·batch·tokens·kv_heads·d·s", "0"),
    "kv_append_fp8": Formula(
        "2·batch·tokens·kv_heads·d·s + 2·batch·tokens·kv_heads·d + 8·batch·tokens·kv_heads", "6·batch·tokens·kv_heads·d"
    ),
    "kv_decode-plain": _DECODE,
    **dict.fromkeys(("kv_decode-split", "kv_decode-grouped"), Formula(_DECODE.bytes_moved, _DECODE.flop, _PARTIALS)),
    "kv_decode_fp8-plain": _DECODE_FP8,
    "kv_decode_fp8-grouped": Formula(_DECODE_FP8.bytes_moved, _DECODE.flop, _PARTIALS),
    "kv_decode_paged-plain": Formula(_DECODE.bytes_moved, _DECODE.flop, _PAGES),
    "kv_decode_paged-grouped": Formula(_DECODE.bytes_moved, _DECODE.flop, f"{_PARTIALS} and {_PAGES}"),
    "q4_0_dequantize": Formula("n·18/32 + n·s", "n"),
    **dict.fromkeys((f"q4_0_{shape}-{v}" for shape in ("gemv", "gemm") for v in ("planar", "fused")), _FUSED),
    **dict.fromkeys(("q4_0_gemv-separate", "q4_0_gemm-separate"), _SEPARATE),
}


def formula_of(name: str, version: str) -> Formula:
    """Return the formula of one version of an operation. Raises KeyError for an operation that has none."""
    title = f"{name}-{version}"
    return FORMULAS[title] if title in FORMULAS else FORMULAS[name]


def markdown_table() -> str:
    """Return one row per version of each operation, in the suite's order."""
    by_title: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        by_title.setdefault(operation.title, []).append(operation)
    rows: list[tuple[str, ...]] = [_HEADER, ("---",) * len(_HEADER)]
    for same in by_title.values():
        operation, formula = same[0], formula_of(same[0].name, same[0].version)
        dtypes = [dtype for other in same for dtype in other.dtypes]
        moved = formula.bytes_moved + (f", and {formula.besides}" if formula.besides else "")
        named = (operation.name, operation.version, _kernels(operation))
        rows.append((*named, ", ".join(dtypes), moved, formula.flop))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _kernels(operation: Operation) -> str:
    """Return the launches' kernels in order, for the first dtype; the array library's own where nothing is launched."""
    if "traffic" not in operation.devices:
        return "array library"
    arrays: Any = SimpleNamespace(xp=np, random=np.ones, empty=np.ones)  # only the kernels' names are wanted
    case = operation.prepare(arrays, operation.dtypes[0], operation.small[-1])
    steps = [step for step in case.steps if isinstance(step, KernelStep)]
    groups = []
    for file, launches in groupby(steps, key=lambda step: step.file):
        names = dict.fromkeys(step.kernel for step in launches)
        groups.append(f"{', '.join(f'`{name}`' for name in names)} in {file}")
    return ", ".join(groups)


if __name__ == "__main__":
    sys.stdout.write(markdown_table() + "\n")
