"""Which tests the suite has: every row of the operations' list, precisions as pairs of equal sizes."""

import math

import numpy as np
import pytest
from test_operations_table import HostArrays

from pytest_bandwidth.devices.open import timed_on
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.suite.host_kernels import HOST_KERNELS
from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.operations.model import KernelStep
from pytest_bandwidth.suite.selection import (
    NOT_QUICK_OPERATIONS,
    QUICK_BFLOAT16,
    SAME_ON_HOST,
    SHAPE_EFFECTS,
    selected,
    target_bytes,
)

KINDS = ("cpu", "traffic", "cuda")
IDENTITIES = {
    kind: DeviceIdentity(kind, kind, 80 * 2**30, "0", facts={"l2_bytes": 50 * 2**20}, timed_on=timed_on(kind))
    for kind in KINDS
}
each_device_and_profile = pytest.mark.parametrize(
    ("kind", "profile"), [(kind, profile) for kind in KINDS for profile in ("quick", "full")]
)


@each_device_and_profile
def test_every_operation_is_selected_on_the_devices_that_can_run_it(kind, profile):
    tests = list(selected(profile, kind))
    assert len({test.id for test in tests}) == len(tests)
    # By title in a full run, by name in a quick one, which leaves some operations and versions out.
    asked, left_out = ("title", frozenset()) if profile == "full" else ("name", NOT_QUICK_OPERATIONS)
    runnable = {getattr(operation, asked) for operation in OPERATIONS if kind in operation.devices}
    assert {getattr(test.operation, asked) for test in tests} == runnable - left_out


def test_a_quick_run_on_a_gpu_has_the_best_versions_in_every_type():
    quick = {(test.operation.title, test.dtype) for test in selected("quick", "cuda")}
    assert {(title, dtype) for title in QUICK_BFLOAT16 for dtype in ("float32", "float16", "bfloat16")} <= quick
    assert not any(test.dtype == "bfloat16" for kind in ("traffic", "cpu") for test in selected("quick", kind))


def test_a_quick_run_on_a_host_measures_no_function_of_an_operation_twice(monkeypatch):
    monkeypatch.setattr("pytest_bandwidth.suite.selection.SAME_ON_HOST", frozenset())
    measured, same = set(), set()
    for test in selected("quick", "cpu"):
        sizes = test.sizes or test.sizes_on(IDENTITIES["traffic"], "quick")
        steps = test.operation.prepare(HostArrays(), test.dtype, sizes).steps
        if not all(isinstance(step, KernelStep) for step in steps):
            continue
        functions = tuple(HOST_KERNELS[step.kernel].function for step in steps)
        what = (test.operation.name, test.dtype, test.shape, tuple((test.sizes or {}).items()), functions)
        if what in measured:
            same.add(test.operation.title)
        measured.add(what)
    assert same == SAME_ON_HOST


@pytest.mark.parametrize(("kind", "profile"), [("cpu", "quick"), ("cuda", "full")])
def test_what_is_selected_is_collected(pytester, kind, profile):
    found = pytester.runpytest_inprocess(
        *("--pyargs", "pytest_bandwidth.suite", "--collect-only", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"),
        *(f"--bandwidth-device={kind}", f"--bandwidth-suite={profile}"),
    )
    assert found.ret == 0
    ids = [line.partition("[")[2].rstrip("]") for line in found.outlines if "::test_operation[" in line]
    assert ids == [test.id for test in selected(profile, kind)]


@each_device_and_profile
def test_each_half_precision_test_has_its_single_precision_twin_of_the_same_sizes(kind, profile):
    sizes: dict[str, list] = {"float32": [], "float16": []}
    for test in selected(profile, kind):
        if test.dtype in sizes:
            sizes[test.dtype].append((test.operation.title, dict(test.sizes_on(IDENTITIES[kind], profile))))
    assert sizes["float16"]
    assert [half for half in sizes["float16"] if half not in sizes["float32"]] == []
    if profile == "full":
        only_single = [one for one in sizes["float32"] if one not in sizes["float16"]]
        # The host's array library has no product of halves.
        assert {title for title, _ in only_single} == ({"gemm-library"} if kind == "cpu" else set())


@pytest.mark.parametrize("test", list(selected("quick", "traffic")), ids=lambda test: test.id)
def test_what_is_executed_thread_by_thread_is_small_but_more_than_a_block(test):
    case = test.operation.prepare(HostArrays(), test.dtype, test.sizes_on(IDENTITIES["traffic"], "quick"))
    assert case.traffic.bytes_moved <= 64 * 2**20
    assert (case.traffic.flop or 0) <= 256 * 2**20
    assert max(math.prod(step.grid) for step in case.steps) > 1


@pytest.mark.parametrize(
    ("kind", "names"),
    [("traffic", {"gemm", "q4_0_gemv", "attention"}), ("cuda", {"bias_relu_dropout", "cos_cos", "logsumexp"})],
)
def test_versions_of_one_operation_have_equal_sizes(kind, names):
    sizes: dict[str, list] = {}
    for test in selected("quick", kind):
        if test.operation.name in names and (kind == "cuda" or test.sizes):
            sizes.setdefault(test.operation.name, []).append(dict(test.sizes_on(IDENTITIES[kind], "quick")))
    assert set(sizes) == names
    assert all(len(found) > 1 and found.count(found[0]) == len(found) for found in sizes.values())


def test_shapes_that_are_too_large_to_execute_are_no_tests_of_the_traffic_device():
    timed, executed = ({test.id for test in selected("full", kind)} for kind in ("cuda", "traffic"))
    assert {"gemm-naive-float32-m2048-n2048-k2048", "q4_0_gemv-fused-float32-m1-n8192-k8192"} <= timed - executed
    assert {"gemm-naive-float32-m128-n896-k896", "q4_0_gemv-fused-float32-m1-n4864-k896"} <= timed & executed


def test_shape_effects_are_pairs_one_element_apart():
    assert set(SHAPE_EFFECTS) <= {operation.title for operation in OPERATIONS}
    pairs = [pair for sizes in SHAPE_EFFECTS.values() for pair in zip(sizes[::2], sizes[1::2], strict=True)]
    for even, odd in pairs:
        steps = {odd[name] - even[name] for name in even}
        assert steps <= {0, 1}
        assert 1 in steps


@pytest.mark.parametrize(
    ("kind", "cache_mib", "memory_gib", "profile", "expected_mib"),
    [
        ("cpu", 1, 1024, "quick", 64),  # never less, however small the cache
        ("cpu", 32, 1024, "quick", 160),  # five caches
        ("cpu", 1024, 1024, "quick", 192),  # but a quick run stays quick
        ("cpu", 1, 1, "quick", 1024 * 0.05),  # and never more than a share of memory
        # On a GPU sixteen caches, as far as its memory goes.
        ("cuda", 4, 16, "quick", 64),
        ("cuda", 50, 141, "quick", 800),  # an H200
        ("cuda", 126, 180, "quick", 2016),  # a B200: no cap but the memory's share
        ("cuda", 48, 8, "quick", 8 * 1024 * 0.05),
        ("cuda", 50, 141, "full", 4096),
        ("cuda", 126, 24, "full", 24 * 1024 * 0.05),
    ],
)
def test_sizes_follow_caches_and_memory(kind, cache_mib, memory_gib, profile, expected_mib):
    gpu = kind == "cuda"
    facts = {"l2_bytes": 2**20, "last_cache_bytes" if gpu else "l3_bytes": cache_mib * 2**20}
    timed_on = "gpu" if gpu else "host"
    identity = DeviceIdentity(kind, "any", memory_gib * 2**30, "0", facts=facts, timed_on=timed_on)
    assert target_bytes(identity, profile) == int(expected_mib * 2**20)


L2 = 50 * 2**20
MIB = 2**20


class Unwritten(np.ndarray):
    """An array that takes no memory and is not written."""

    def __isub__(self, other):
        return self

    __imul__ = __isub__


class Shapes:
    xp = np

    def random(self, shape, dtype):
        return np.broadcast_to(np.zeros(1, dtype), shape).view(Unwritten)

    empty = random


SIZED_CHAINS = [
    test
    for test in selected("quick", "cuda")
    if test.sizes is None and test.operation.name in ("bias_relu_dropout", "cos_cos", "logsumexp")
]


@pytest.mark.parametrize("test", SIZED_CHAINS, ids=lambda test: test.id)
def test_no_result_between_two_launches_is_read_from_the_cache(test):
    case = test.operation.prepare(Shapes(), test.dtype, test.sizes_on(IDENTITIES["cuda"], "quick"))
    written = {id(array) for step in case.steps for array in step.writes}
    between = [array.nbytes for step in case.steps for array in step.reads if id(array) in written]
    # One value for each row is meant to be small.
    assert [size for size in between if MIB < size < 5 * L2] == []


@pytest.mark.parametrize(
    ("title", "dtype", "precision"),
    [
        ("gemm-library", "float16", "fp16-tensor"),  # cuBLAS multiplies halves on tensor cores
        ("gemm-library", "float32", "fp32"),
        ("gemm-blocked", "float16", "fp32"),  # computes in float
        ("gemm-pipelined", "float16", "fp16-tensor"),
        ("gemm-pipelined", "bfloat16", "bf16-tensor"),
        ("attention-flash2", "float32", "fp32"),
        ("kv_decode-grouped", "bfloat16", "fp32"),
        ("intensity_fma-fma", "float16", "fp16"),  # two halves to an instruction
        ("intensity_fma-fma", "float64", "fp64"),
    ],
)
def test_the_ridge_point_is_that_of_what_the_kernel_computes_in(title, dtype, precision):
    operation = next(o for o in OPERATIONS if o.title == title and dtype in o.dtypes)
    assert operation.precision(dtype) == precision
