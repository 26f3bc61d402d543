"""Check each operation on fresh input with poisoned output, against NumPy in higher precision; then measure it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.measured.roofline import BOTTLENECK_FOUND, access_sentence
from pytest_bandwidth.domain.traffic import bytes_per_element, tiles
from pytest_bandwidth.domain.units import format_percent
from pytest_bandwidth.fixture.bandwidth import Bandwidth
from pytest_bandwidth.suite.operations.matmul import GEMM_TILE, split_depth
from pytest_bandwidth.suite.operations.model import (
    Case,
    KernelStep,
    Operation,
    Sizes,
    on_device_of,
    poison,
    poisoned,
    wrong_results,
)
from pytest_bandwidth.suite.selection import Profile, Selected, selected
from pytest_bandwidth.suite.traffic_models import warp_sectors

# The precision of the arrays, by which results are paired; `Operation.precision` is the kernel's for computing.
PRECISIONS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
# A GPU moves so many bytes in a few microseconds, the time of a launch; larger work never waits for its launch.
DOUBLED_BYTES = 8 * 2**20
# Work that a GPU's peaks do in less time is timed from a graph: a single launch would mostly time its start and events.
SHORT_SECONDS = 50e-6
# Sizes that double the whole work, the first one that exists: a product's rows would share its weights.
_BATCHES = ("batch", "rows", "n", "tokens")
# Further data (a shared vector, partial results) need not double.
DOUBLES_AT_LEAST = 1.8


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    asked = metafunc.config.getoption("bandwidth_device") or "auto"
    kind = None if asked == "auto" else str(asked).partition(":")[0]
    tests = list(selected(_profile(metafunc.config), kind))
    metafunc.parametrize("chosen", tests, ids=[test.id for test in tests])


def _profile(config: pytest.Config) -> Profile:
    return "full" if config.getoption("bandwidth_suite") == "full" else "quick"


def test_operation(bandwidth: Bandwidth, chosen: Selected, request: pytest.FixtureRequest) -> None:
    operation, dtype, profile = chosen.operation, chosen.dtype, _profile(request.config)
    if bandwidth.device not in operation.devices:
        needed = ", ".join(sorted(operation.devices))
        pytest.skip(f"{operation.title} cannot run on {bandwidth.device}: it needs one of {needed}")
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 needs the package ml_dtypes: pip install ml_dtypes")
    assert not wrong_at_small_sizes(bandwidth, operation, dtype)
    sizes = chosen.sizes_on(bandwidth.identity, profile)
    case = operation.prepare(bandwidth, dtype, sizes)
    assert not wrong_at_full_size(bandwidth, operation, dtype, case, profile)

    bandwidth.tags.update(
        operation=operation.name,
        version=operation.version,
        precision=PRECISIONS[dtype],
        **{name.upper() if name in ("m", "n", "k") else name: value for name, value in sizes.items()},
    )
    twice = doubled_case(bandwidth, operation, dtype, sizes, case)
    doubled = None if twice is None else _as_one(calls_of(bandwidth, twice))
    precision, device = operation.precision(dtype), bandwidth._measurer.device
    graph = is_short(case, device.identity, bandwidth._measurer.peak, device.peak_flops(precision))
    # One launch is measured as a launch; several as one callable, or each by itself where launches are looked into.
    if len(case.steps) == 1 and isinstance(case.steps[0], KernelStep):
        further = {"graph": True} if graph else {"doubled": doubled}  # a graph of launches cannot hold the double
        _launch(bandwidth, case.steps[0], case.traffic, precision, **further)
    elif bandwidth.device == "traffic":
        for i, step in enumerate(case.steps, start=1):
            if isinstance(step, KernelStep):
                _launch(bandwidth, step, None, precision, label=f"step {i}")
    else:
        call = _as_one(calls_of(bandwidth, case))
        bandwidth(call, reads=case.traffic, precision=precision, doubled=doubled, graph=graph)
    # The suite's finding on the operation's order of accesses, or on its waves.
    found = bottleneck_finding(operation.name, operation.version, dtype, sizes, bandwidth.device)
    found = found or wave_finding(operation.name, operation.version, sizes, bandwidth.identity)
    if found is not None:
        for label, measurement in bandwidth.measurements.items():
            bandwidth.measurements[label] = measurement.with_finding(found)


def is_short(case: Case, identity: DeviceIdentity, peak: Peak | None, flops: float | None) -> bool:
    """Return whether to time a case from a graph: it is short at the peaks, and all launches, on NVIDIA's GPUs.

    flops: the device's peak FLOP/s; without it, only bytes count.
    Calls of an array library may be such that CUDA does not capture them. CuPy captures nothing under HIP.
    """
    if not identity.on_gpu or "gfx" in identity.facts or peak is None:
        return False
    launches_alone = all(isinstance(step, KernelStep) for step in case.steps)
    by_bytes, by_flop = case.traffic.bytes_moved / peak.bytes_per_second, case.traffic.flop / (flops or math.inf)
    return launches_alone and max(by_bytes, by_flop) < SHORT_SECONDS


def doubled_case(bandwidth: Bandwidth, operation: Operation, dtype: str, sizes: Sizes, case: Case) -> Case | None:
    """Prepare a case of twice the work, to find out whether a run waits for its data or for its launch.

    Returns None where that is certain (`DOUBLED_BYTES`), or where no size doubles all of the work.
    """
    if bandwidth.device == "traffic" or case.traffic.bytes_moved > DOUBLED_BYTES:
        return None
    name = next(name for name in _BATCHES if name in sizes)
    doubled = operation.prepare(bandwidth, dtype, {**sizes, name: 2 * sizes[name]})
    if doubled.traffic.bytes_moved < DOUBLES_AT_LEAST * case.traffic.bytes_moved:
        return None
    return doubled


def _launch(bandwidth: Bandwidth, step: KernelStep, traffic: Any, precision: str, **more: Any) -> None:
    declared = {"reads": step.reads, "writes": step.writes} if traffic is None else {"reads": traffic}
    kernel = bandwidth.kernel(step.file, step.kernel)
    bandwidth.launch(kernel, step.grid, step.block, step.args, **declared, precision=precision, **more)


def _as_one(calls: list[Callable[[], object]]) -> Callable[[], object]:
    def run() -> None:
        for call in calls:
            call()

    return run


# ---- checking --------------------------------------------------------------------------------------------------------

# References are worked out on the host in float64, which takes longer than any kernel: of work that moves more
# than this, the sizes of `Operation.small` are compared, and at the size itself that nothing was left unwritten.
COMPARED_BYTES: dict[Profile, int] = {"quick": 8 * 2**20, "full": 256 * 2**20}


def wrong_at_small_sizes(bandwidth: Bandwidth, operation: Operation, dtype: str) -> list[str]:
    """Return a line per result that is not its reference, at sizes that break kernels: 0, 1, odd, past a block."""
    lines = []
    for sizes in operation.small:
        case = operation.prepare(bandwidth, dtype, sizes)
        _run_poisoned(bandwidth, case)
        shown = ", ".join(f"{name} = {value}" for name, value in sizes.items())
        lines += [f"{shown}: {line}" for line in wrong_results(case)]
    return lines


def wrong_at_full_size(
    bandwidth: Bandwidth, operation: Operation, dtype: str, case: Case, profile: Profile
) -> list[str]:
    """Return one line per wrong result of the case that is going to be measured; see `COMPARED_BYTES`.

    Nothing on the traffic device, where executing a case is measuring it.
    """
    if bandwidth.device == "traffic":
        return []
    _run_poisoned(bandwidth, case)
    if case.traffic.bytes_moved <= COMPARED_BYTES[profile]:
        return wrong_results(case)
    # The sink of a read, gaps of a strided write and other tokens of a cache keep poison by design.
    expected = operation.prepare(bandwidth, dtype, operation.small[-1]).expected()
    lines = []
    for name, array in case.results.items():
        if poisoned(np, expected[name]).any():
            continue
        # The result of a copy from the device is on the host, and CuPy takes no NumPy arrays.
        xp = np if isinstance(array, np.ndarray) else bandwidth.xp
        with on_device_of(array):
            count = int(poisoned(xp, array).sum())
        if count:
            lines.append(f"{name}: {count} of {array.size} elements were not written")
    return lines


def calls_of(bandwidth: Bandwidth, case: Case) -> list[Callable[[], object]]:
    """Bind the steps of a case as callables, unmeasured."""
    return [
        bandwidth.bind(bandwidth.kernel(step.file, step.kernel), step.grid, step.block, step.args)
        if isinstance(step, KernelStep)
        else step
        for step in case.steps
    ]


def _run_poisoned(bandwidth: Bandwidth, case: Case) -> None:
    poison(case)
    for call in calls_of(bandwidth, case):
        call()


# ---- the order of accesses, by a model; the traffic device counts instead --------------------------------------------

# The bytes that a processor fetches at a time (x86-64 and most Arm servers).
LINE_BYTES = 64
# A permutation puts neighbours anywhere: as far apart as lanes of a large stride.
FAR_APART = 4096
# Which side of an operation is out of order, and the word for it.
_SIDES = {
    "strided_read": ("reads", "strided"),
    "strided_write": ("writes", "strided"),
    "misaligned": ("reads", "misaligned"),
    "gather": ("reads", "random"),
    "transpose": ("writes", "strided"),
}
# On the host a cache completes the lines of other operations: the next rows fill the lines of a transpose.
_SIDES_ON_THE_HOST = ("strided_read", "strided_write", "gather")


def bottleneck_finding(name: str, version: str, dtype: str, sizes: Sizes, device_kind: str) -> Finding | None:
    """Return the finding of an operation whose accesses ask for more than they need; None for all others.

    On a GPU by the sectors of a warp request, on the host by cache lines.
    """
    if name not in _SIDES or version in ("tiled", "wide"):
        return None
    verb, pattern = _SIDES[name]
    # In elements, of the accesses of a warp's lanes.
    stride, offset = sizes.get("stride", FAR_APART), 0
    if name == "misaligned":
        stride, offset = 1, sizes["offset"]
    elif name == "transpose":
        stride = sizes["rows"]
    sentence = None
    if device_kind == "cuda":
        factor = warp_sectors(dtype, stride=stride, offset=offset) / warp_sectors(dtype)
        sentence = access_sentence(verb, pattern, factor)
    elif device_kind == "cpu" and name in _SIDES_ON_THE_HOST:
        factor = min(stride, LINE_BYTES // bytes_per_element(dtype))
        sentence = access_sentence(verb, pattern, factor, "bytes")
    return None if sentence is None else Finding(BOTTLENECK_FOUND, sentence)


# ---- tiles and waves -------------------------------------------------------------------------------------------------


def wave_finding(name: str, version: str, sizes: Sizes, identity: DeviceIdentity) -> Finding | None:
    """Return the finding of a product whose tiles an NVIDIA GPU's multiprocessors (SMs) process in waves.

    For an odd size, it also names the waves of its even neighbour. None elsewhere, and for unknown tiles.
    """
    processors, tile = identity.facts.get("sm_count"), GEMM_TILE.get(version)
    if name != "gemm" or version == "naive" or tile is None or "gfx" in identity.facts:
        return None
    if not isinstance(processors, int) or not sizes["m"] * sizes["n"]:
        return None
    sides = (*tile, split_depth(**sizes, processor_count=processors)) if version == "split-k" else tile
    count, waves = _tiles_and_waves(sizes, sides, processors)
    last = (count - (waves - 1) * processors) / processors
    of_waves = f"{waves} wave{'s' if waves > 1 else ''}"
    sentence = (
        f"{count} tile{'s' if count > 1 else ''} of {'×'.join(map(str, sides))} on {processors} SMs make {of_waves}, "
        f"and {format_percent(last)} of the SMs work in the last"
    )
    m, n = (size - size % 2 or size for size in (sizes["m"], sizes["n"]))
    if (m, n) != (sizes["m"], sizes["n"]):
        even_count, even_waves = _tiles_and_waves({**sizes, "m": m, "n": n}, sides, processors)
        more, time = format_percent(count / even_count - 1), format_percent(waves / even_waves - 1)
        sentence += f"; the even size has {even_count} tiles in {even_waves}: {more} more tiles, {time} more waves"
    return Finding(BOTTLENECK_FOUND, sentence)


def _tiles_and_waves(sizes: Sizes, sides: tuple[int, ...], processors: int) -> tuple[int, int]:
    count = math.prod(tiles(sizes[name], side) for name, side in zip("mnk", sides, strict=False))
    return count, tiles(count, processors)
