"""Which results are a pair, and which are a sweep."""

from dataclasses import replace

import pytest
import run_documents

from pytest_bandwidth.reports.related import precision_of, precision_pairs, size_sweeps

OUTCOME = run_documents.outcomes(1)[0]


def tagged(nodeid="t.py::test_a", bytes_read=8, **tags):
    return replace(OUTCOME, nodeid=nodeid, key=nodeid, tags=tags, precision=None, bytes_read=bytes_read)


MEANT = {"fp32": "fp32", "float32": "fp32", "FP16": "fp16", "half": "fp16", "fp16-tensor": "fp16", "bf16": "bf16"}


@pytest.mark.parametrize("written", MEANT)
def test_precisions_by_their_usual_names(written):
    assert precision_of(tagged(precision=written)) == MEANT[written]


@pytest.mark.parametrize(
    ("outcomes", "names"),
    [
        (
            [tagged(operation="gemm", precision=p, M=m, N=2, K=3) for m in (1, 32) for p in ("fp32", "fp16")],
            ["gemm 1×2×3", "gemm 32×2×3"],
        ),
        ([tagged(operation="gemm", precision=p, M=m, bytes_read=10**m) for p, m in (("fp32", 1), ("fp16", 12))], []),
        ([tagged(operation="copy", precision=p, variant=v) for p, v in (("fp32", "plain"), ("fp16", "float4"))], []),
        ([tagged(f"t.py::test_copy[{p}-64]", precision=p) for p in ("float32", "float16")], ["t.py::test_copy[*-64]"]),
        ([tagged(operation="copy", precision=p) for p in ("fp32", "fp32", "fp16")], []),
        ([replace(tagged(operation="copy", precision=p, n=1), gbps=None) for p in ("fp32", "fp16")], []),
    ],
    ids=["one shape", "another shape", "another variant", "by their ids without tags", "ambiguous", "not timed"],
)
def test_the_same_work_in_both_precisions_is_a_pair(outcomes, names):
    assert [pair.name for pair in precision_pairs(outcomes)] == names


def test_as_many_bytes_of_one_version_are_a_pair_without_a_ratio_of_times():
    def sized(precision, n, nbytes, version="plain"):
        one = tagged(operation="copy", version=version, precision=precision, N=n, bytes_read=nbytes)
        return replace(one, bytes_written=0, gbps=10.0, seconds=1e-3)

    (pair,) = precision_pairs([sized("fp32", 100, 1000), sized("fp16", 199, 995)])
    assert (pair.name, pair.bandwidth_ratio, pair.time_ratio) == ("copy plain", 1.0, None)
    assert precision_pairs([sized("fp32", 100, 1000), sized("fp16", 195, 980)]) == []
    assert precision_pairs([sized("fp32", 100, 1000), sized("fp16", 200, 1000, "float4")]) == []
    assert precision_pairs([sized("fp32", 100, 1000), sized("fp16", 200, 1000), sized("fp16", 201, 1005)]) == []
    (pair,) = precision_pairs([sized("fp32", 100, 1000), sized("fp16", 200, 1000), sized("fp16", 100, 500)])
    assert pair.same_shape


def sizes(operation, *read):
    return [tagged(operation=operation, precision="fp32", n=n, bytes_read=n) for n in read]


@pytest.mark.parametrize(
    ("outcomes", "found"),
    [
        ([*sizes("copy", 400, 100, 200), *sizes("add", 100, 200)], [("copy", "fp32", [100, 200, 400])]),
        (
            [tagged(f"tests/t.py::test_copy[{n}]", bytes_read=n) for n in (100, 200, 400)],
            [("t.py::test_copy", "", [100, 200, 400])],
        ),
        ([replace(one, gbps=None) for one in sizes("copy", 1, 2, 3)], []),
    ],
    ids=["three sizes", "a parametrised test without tags", "not timed"],
)
def test_one_operation_over_three_sizes_is_a_sweep(outcomes, found):
    seen = [(s.name, s.precision, [o.bytes_read for o in s.outcomes]) for s in size_sweeps(outcomes)]
    assert seen == found
