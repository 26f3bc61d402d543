"""Which tests the suite has: every row of the operations' list, precisions as pairs of equal sizes."""

import math

import numpy as np
import pytest

from pytest_bandwidth.devices.numpy_arrays import RandomSource, empty_array
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.selection import SHAPE_EFFECTS, Selected, selected, target_bytes

# One line for each operation that the suite promises, with the versions that stand side by side.
ROWS = {
    "read and write": ("read-", "write-"),
    "copy": ("copy-plain",),
    "scale": ("scale-",),
    "add": ("add-",),
    "triad": ("triad-",),
    "dot and sum": ("dot-", "sum-"),
    "fused and unfused chains": ("bias_relu_dropout-fused", "bias_relu_dropout-unfused", "cos_cos-fused"),
    "intensity sweep": ("intensity_fma-",),
    "strided, misaligned, gather": ("strided_read-", "misaligned-", "gather-"),
    "transpose, naive and tiled": ("transpose-naive", "transpose-tiled"),
    "softmax": ("softmax-",),
    "layer norm": ("layer_norm-",),
    "logsumexp, fused and not": ("logsumexp-fused", "logsumexp-unfused"),
    "GEMM": ("gemm-naive", "gemm-blocked"),
    "GEMM of inference": ("gemm-blocked-float32-m128-n896-k896", "gemm-blocked-float16-m128-n896-k896"),
    "attention, standard and flash": ("attention-standard", "attention-flash"),
    "KV cache append": ("kv_append-",),
    "KV cache read": ("kv_decode-",),
    "Q4_0 dequantise": ("q4_0_dequantize-",),
    "Q4_0 product, fused and separate": ("q4_0_gemv-fused", "q4_0_gemv-separate"),
}
# What needs the array library's own kernels, or a link.
TIMED = {"the library's product": ("gemm-library",), "copies within a memory": ("device_to_device-",)}
LINKS = {"copies over a link": ("host_to_device-pinned", "device_to_host-pinned", "peer_to_peer-")}
INFERENCE = ("m1-n896-k896", "m32-n896-k896", "m128-n896-k896", "m128-n4864-k896")
ON = {"cpu": ROWS | TIMED, "traffic": ROWS, "cuda": ROWS | TIMED | LINKS}
IDENTITIES = {kind: DeviceIdentity(kind, kind, 80 * 2**30, "0", facts={"l2_bytes": 50 * 2**20}) for kind in ON}


@pytest.mark.parametrize("profile", ["quick", "full"])
@pytest.mark.parametrize("kind", list(ON))
def test_collecting_finds_every_row_on_the_devices_that_can_run_it(pytester, kind, profile):
    found = pytester.runpytest_inprocess(
        *("--pyargs", "pytest_bandwidth.suite", "--collect-only", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"),
        *(f"--bandwidth-device={kind}", f"--bandwidth-suite={profile}"),
    )
    assert found.ret == 0
    ids = [line.partition("[")[2] for line in found.outlines if "::test_operation[" in line]
    missing = {row: start for row, starts in ON[kind].items() for start in starts if not _any_starts(ids, start)}
    assert missing == {}
    other = {start for starts in LINKS.values() for start in starts if kind != "cuda" and _any_starts(ids, start)}
    assert other == set(), "only what the device can run is collected"


def _any_starts(ids: list[str], start: str) -> bool:
    return any(name.startswith(start) for name in ids)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_full_profile_has_every_shape_of_inference_in_both_precisions(dtype):
    ids = {test.id for test in selected("full", "cuda")}
    assert {f"gemm-{version}-{dtype}-{shape}" for version in ("blocked", "library") for shape in INFERENCE} <= ids


@pytest.mark.parametrize("profile", ["quick", "full"])
@pytest.mark.parametrize("kind", list(ON))
def test_names_are_unique_and_what_the_device_can_run(kind, profile):
    tests = list(selected(profile, kind))
    assert len({test.id for test in tests}) == len(tests)
    assert all(kind in test.operation.devices for test in tests)


@pytest.mark.parametrize("profile", ["quick", "full"])
@pytest.mark.parametrize("kind", list(ON))
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


class HostArrays:
    xp = np
    random = RandomSource(1).array
    empty = staticmethod(empty_array)


@pytest.mark.parametrize("test", list(selected("quick", "traffic")), ids=lambda test: test.id)
def test_what_is_executed_thread_by_thread_is_small_but_more_than_a_block(test):
    case = test.operation.prepare(HostArrays(), test.dtype, test.sizes_on(IDENTITIES["traffic"], "quick"))
    assert case.traffic.bytes_moved <= 64 * 2**20
    assert (case.traffic.flop or 0) <= 256 * 2**20
    assert max(math.prod(step.grid) for step in case.steps) > 1


def test_versions_of_one_operation_are_executed_at_equal_sizes():
    sizes: dict[str, list] = {}
    for test in selected("quick", "traffic"):
        if test.sizes:
            sizes.setdefault(test.operation.name, []).append(test.sizes)
    assert set(sizes) == {"gemm", "q4_0_gemv", "attention"}
    assert all(len(found) > 1 and found.count(found[0]) == len(found) for found in sizes.values())


def test_shapes_that_are_too_large_to_execute_are_no_tests_of_the_traffic_device():
    timed, executed = ({test.id for test in selected("full", kind)} for kind in ("cuda", "traffic"))
    assert {"gemm-naive-float32-m2048-n2048-k2048", "q4_0_gemv-fused-float32-m1-n8192-k8192"} <= timed - executed
    assert {"gemm-naive-float32-m128-n896-k896", "q4_0_gemv-fused-float32-m1-n4864-k896"} <= timed & executed


def test_the_full_profile_has_every_operation_and_shape():
    tests = list(selected("full", None))
    assert {test.operation.title for test in tests} == {operation.title for operation in OPERATIONS}
    assert {test.operation.title for test in tests if test.sizes in SHAPE_EFFECTS["transpose-tiled"]} >= {
        "transpose-tiled"
    }


def test_shape_effects_are_pairs_one_element_apart():
    assert set(SHAPE_EFFECTS) <= {operation.title for operation in OPERATIONS}
    for even, odd in SHAPE_EFFECTS.values():
        steps = {odd[name] - even[name] for name in even}
        assert steps <= {0, 1}
        assert 1 in steps


@pytest.mark.parametrize(
    ("l3", "memory", "profile", "expected"),
    [
        (2**20, 2**40, "quick", 64 * 2**20),  # never less, however small the cache
        (32 * 2**20, 2**40, "quick", 160 * 2**20),  # five caches
        (2**30, 2**40, "quick", 192 * 2**20),  # but a quick run stays quick
        (2**20, 2**30, "quick", int(2**30 * 0.05)),  # and never more than a share of memory
        (2**20, 2**40, "full", 2**30),
    ],
)
def test_sizes_follow_caches_and_memory(l3, memory, profile, expected):
    identity = DeviceIdentity("cpu", "host", memory, "0", facts={"l3_bytes": l3})
    assert target_bytes(identity, profile) == expected


def test_a_fixed_size_is_taken_as_it_is():
    operation = next(o for o in OPERATIONS if o.title == "copy-plain")
    assert Selected(operation, "float32", 0, {"n": 7}).sizes_on(IDENTITIES["cpu"], "quick") == {"n": 7}
