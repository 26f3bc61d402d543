"""Check each operation on fresh random input with poisoned output, then measure it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.fixture.bandwidth import Bandwidth
from pytest_bandwidth.suite.access_cost import bottleneck_finding
from pytest_bandwidth.suite.correctness import calls_of, wrong_at_full_size, wrong_at_small_sizes
from pytest_bandwidth.suite.operations import Case, KernelStep, Operation, Sizes
from pytest_bandwidth.suite.selection import Profile, Selected, selected

# What the arrays hold, by which results are paired; `Operation.precision` is what the kernel computes in.
PRECISIONS = {"float64": "fp64", "float32": "fp32", "float16": "fp16"}
# A GPU moves so much in a few microseconds, which is what a launch takes; larger work never waits for its launch.
DOUBLED_BYTES = 8 * 2**20
# By which size the whole work doubles, whichever comes first: a product's rows would share its weights.
_BATCHES = ("batch", "rows", "n")
# What comes besides (a shared vector, partial results) need not double.
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
    doubled = doubled_case(bandwidth, operation, dtype, sizes, case)
    _measure(
        bandwidth, case, operation.precision(dtype), None if doubled is None else _as_one(calls_of(bandwidth, doubled))
    )
    _tell(bandwidth, chosen, sizes)


def doubled_case(bandwidth: Bandwidth, operation: Operation, dtype: str, sizes: Sizes, case: Case) -> Case | None:
    """Prepare a case of twice the work, to tell whether a run waits for its data or for its launch.

    Returns None where that is no question (`DOUBLED_BYTES`), or where no size doubles it all.
    """
    if bandwidth.device == "traffic" or case.traffic.bytes_moved > DOUBLED_BYTES:
        return None
    name = next(name for name in _BATCHES if name in sizes)
    doubled = operation.prepare(bandwidth, dtype, {**sizes, name: 2 * sizes[name]})
    if doubled.traffic.bytes_moved < DOUBLES_AT_LEAST * case.traffic.bytes_moved:
        return None
    return doubled


def _measure(bandwidth: Bandwidth, case: Case, precision: str, doubled: Callable[[], object] | None) -> None:
    """Measure one launch as a launch; several as one callable, or each by itself where launches are looked into."""
    if len(case.steps) == 1 and isinstance(case.steps[0], KernelStep):
        _launch(bandwidth, case.steps[0], case.traffic, precision, doubled=doubled)
    elif bandwidth.device == "traffic":
        for i, step in enumerate(case.steps, start=1):
            if isinstance(step, KernelStep):
                _launch(bandwidth, step, None, precision, label=f"step {i}")
    else:
        run = _as_one(calls_of(bandwidth, case))
        bandwidth(run, reads=case.traffic, precision=precision, doubled=doubled)


def _launch(bandwidth: Bandwidth, step: KernelStep, traffic: Any, precision: str, **more: Any) -> None:
    declared = {"reads": step.reads, "writes": step.writes} if traffic is None else {"reads": traffic}
    kernel = bandwidth.kernel(step.file, step.kernel)
    bandwidth.launch(kernel, step.grid, step.block, step.args, **declared, precision=precision, **more)


def _as_one(calls: list[Callable[[], object]]) -> Callable[[], object]:
    def run() -> None:
        for call in calls:
            call()

    return run


def _tell(bandwidth: Bandwidth, chosen: Selected, sizes: Sizes) -> None:
    """Add to each measurement what the suite knows of the operation's order of accesses."""
    operation = chosen.operation
    found: Finding | None = bottleneck_finding(operation.name, operation.version, chosen.dtype, sizes, bandwidth.device)
    if found is not None:
        for label, measurement in bandwidth.measurements.items():
            bandwidth.measurements[label] = measurement.with_finding(found)
