"""Which results are a pair, and which are a sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import run_documents

from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.related import precision_of, precision_pairs, size_sweeps

OUTCOME = run_documents.outcomes(1)[0]


def tagged(nodeid: str = "t.py::test_a", bytes_read: int = 8, **tags: Any) -> Outcome:
    return replace(OUTCOME, nodeid=nodeid, key=nodeid, tags=tags, precision=None, bytes_read=bytes_read)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("fp32", "fp32"),
        ("float32", "fp32"),
        ("FP16", "fp16"),
        ("half", "fp16"),
        ("fp16-tensor", "fp16"),
        ("bf16", "bf16"),
    ],
)
def test_precisions_by_their_usual_names(written: str, meant: str) -> None:
    assert precision_of(tagged(precision=written)) == meant


def test_the_same_shape_in_both_precisions_is_a_pair() -> None:
    outcomes = [tagged(operation="gemm", precision=p, M=m, N=2, K=3) for m in (1, 32) for p in ("fp32", "fp16")]
    assert [pair.name for pair in precision_pairs(outcomes)] == ["gemm 1×2×3", "gemm 32×2×3"]


def test_another_shape_or_variant_is_no_pair() -> None:
    outcomes = [
        tagged(operation="gemm", precision="fp32", M=1),
        tagged(operation="gemm", precision="fp16", M=2, bytes_read=10**12),
        tagged(operation="copy", precision="fp32", variant="plain"),
        tagged(operation="copy", precision="fp16", variant="float4"),
    ]
    assert precision_pairs(outcomes) == []


def test_as_many_bytes_of_one_version_are_a_pair_without_a_ratio_of_times() -> None:
    def sized(precision: str, n: int, nbytes: int, version: str = "plain") -> Outcome:
        one = tagged(operation="copy", version=version, precision=precision, N=n, bytes_read=nbytes)
        return replace(one, bytes_written=0, gbps=10.0, seconds=1e-3)

    (pair,) = precision_pairs([sized("fp32", 100, 1000), sized("fp16", 199, 995)])
    assert (pair.name, pair.bandwidth_ratio, pair.time_ratio) == ("copy plain", 1.0, None)
    assert precision_pairs([sized("fp32", 100, 1000), sized("fp16", 195, 980)]) == []
    assert precision_pairs([sized("fp32", 100, 1000), sized("fp16", 200, 1000, "float4")]) == []
    assert precision_pairs([sized("fp32", 100, 1000), sized("fp16", 200, 1000), sized("fp16", 201, 1005)]) == []
    (pair,) = precision_pairs([sized("fp32", 100, 1000), sized("fp16", 200, 1000), sized("fp16", 100, 500)])
    assert pair.same_shape


def test_without_tags_the_ids_pair_by_their_precision() -> None:
    outcomes = [
        tagged("t.py::test_copy[float32-64]", precision="fp32"),
        tagged("t.py::test_copy[float16-64]", precision="fp16"),
    ]
    assert [pair.name for pair in precision_pairs(outcomes)] == ["t.py::test_copy[*-64]"]


def test_what_is_ambiguous_is_left_out() -> None:
    outcomes = [tagged(operation="copy", precision=p) for p in ("fp32", "fp32", "fp16")]
    assert precision_pairs(outcomes) == []


def test_ratios_are_fp16_over_fp32() -> None:
    slow = replace(tagged(operation="copy", precision="fp32"), gbps=100.0, seconds=2.0)
    fast = replace(tagged(operation="copy", precision="fp16"), gbps=150.0, seconds=0.5)
    pair = precision_pairs([fast, slow])[0]
    assert (pair.bandwidth_ratio, pair.time_ratio) == (1.5, 0.25)


def test_three_sizes_are_a_sweep_and_two_are_none() -> None:
    three = [tagged(operation="copy", precision="fp32", n=n, bytes_read=n) for n in (400, 100, 200)]
    two = [tagged(operation="add", precision="fp32", n=n, bytes_read=n) for n in (100, 200)]
    sweeps = size_sweeps([*three, *two])
    assert [(s.name, s.precision, [o.bytes_read for o in s.outcomes]) for s in sweeps] == [
        ("copy", "fp32", [100, 200, 400])
    ]


def test_without_tags_a_parametrised_test_is_a_sweep() -> None:
    outcomes = [tagged(f"tests/t.py::test_copy[{n}]", bytes_read=n) for n in (100, 200, 400)]
    assert [s.name for s in size_sweeps(outcomes)] == ["t.py::test_copy"]


def test_what_was_not_timed_is_in_no_sweep_and_no_pair() -> None:
    outcomes = [
        replace(tagged(operation="copy", precision=p, n=n, bytes_read=n), gbps=None)
        for p in ("fp32", "fp16")
        for n in (1, 2, 3)
    ]
    assert size_sweeps(outcomes) == []
    assert precision_pairs(outcomes) == []
