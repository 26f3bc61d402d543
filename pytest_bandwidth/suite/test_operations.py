"""Each operation: right first, on fresh random input with poisoned output, then measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_bandwidth.domain.measurement import DeviceIdentity
from pytest_bandwidth.fixture import Bandwidth
from pytest_bandwidth.suite.operations import Case, KernelStep, poison, wrong_results
from pytest_bandwidth.suite.selection import Profile, Selected, selected, target_bytes

PRECISIONS = {"float64": "fp64", "float32": "fp32", "float16": "fp16"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    asked = metafunc.config.getoption("bandwidth_device") or "auto"
    kind = None if asked == "auto" else str(asked).partition(":")[0]
    tests = list(selected(_profile(metafunc.config), kind))
    metafunc.parametrize("chosen", tests, ids=[test.id for test in tests])


def _profile(config: pytest.Config) -> Profile:
    return "full" if config.getoption("bandwidth_suite") == "full" else "quick"


def test_operation(bandwidth: Bandwidth, chosen: Selected, request: pytest.FixtureRequest) -> None:
    operation, dtype = chosen.operation, chosen.dtype
    identity: DeviceIdentity = bandwidth.identity
    if identity.kind not in operation.devices:
        pytest.skip(f"{operation.title} needs one of: {', '.join(sorted(operation.devices))}")
    checked = operation.prepare(bandwidth, dtype, chosen.sizes or operation.small[-1])
    poison(checked)
    for step in _calls(bandwidth, checked):
        step()
    assert not wrong_results(checked)

    profile = _profile(request.config)
    sizes = chosen.sizes or operation.shapes(target_bytes(identity, profile), dtype)[chosen.shape]
    case = checked if chosen.sizes else operation.prepare(bandwidth, dtype, sizes)
    bandwidth.tags.update(
        operation=operation.name,
        version=operation.version,
        precision=PRECISIONS[dtype],
        **{name.upper() if name in ("m", "n", "k") else name: value for name, value in sizes.items()},
    )
    _measure(bandwidth, case, PRECISIONS[dtype])


def _calls(bandwidth: Bandwidth, case: Case) -> list[Callable[[], object]]:
    return [
        bandwidth.bind(bandwidth.kernel(step.file, step.kernel), step.grid, step.block, step.args)
        if isinstance(step, KernelStep)
        else step.call
        for step in case.steps
    ]


def _measure(bandwidth: Bandwidth, case: Case, precision: str) -> None:
    """One launch as a launch; several as one callable, or, where launches are looked into, each by itself."""
    if len(case.steps) == 1 and isinstance(case.steps[0], KernelStep):
        _launch(bandwidth, case.steps[0], case.traffic, precision, None)
    elif bandwidth.device == "traffic":
        for i, step in enumerate(case.steps, start=1):
            if isinstance(step, KernelStep):
                _launch(bandwidth, step, None, precision, f"step {i}")
    else:
        calls = _calls(bandwidth, case)

        def run() -> None:
            for call in calls:
                call()

        bandwidth(run, reads=case.traffic, precision=precision)


def _launch(bandwidth: Bandwidth, step: KernelStep, traffic: Any, precision: str, label: str | None) -> None:
    declared = {"reads": step.reads, "writes": step.writes} if traffic is None else {"reads": traffic}
    kernel = bandwidth.kernel(step.file, step.kernel)
    bandwidth.launch(kernel, step.grid, step.block, step.args, **declared, precision=precision, label=label)
