"""Check a case before it is measured: fresh random input, poisoned output, against NumPy in higher precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_bandwidth.fixture.bandwidth import Bandwidth
from pytest_bandwidth.suite.operations import Case, KernelStep, Operation, Sizes, poison, wrong_results
from pytest_bandwidth.suite.operations.model import beside, on_host
from pytest_bandwidth.suite.selection import Profile

# References are worked out on the host in float64, which takes longer than any kernel: of work that moves more
# than this, the sizes of `Operation.small` are compared, and at the size itself that nothing was left unwritten.
COMPARED_BYTES: dict[Profile, int] = {"quick": 8 * 2**20, "full": 256 * 2**20}


def wrong_at_small_sizes(bandwidth: Bandwidth, operation: Operation, dtype: str) -> list[str]:
    """Return a line per result that is not its reference, at sizes that break kernels: 0, 1, odd, past a block."""
    lines = []
    for sizes in operation.small:
        case = operation.prepare(bandwidth, dtype, sizes)
        _run_poisoned(bandwidth, case)
        lines += [f"{_shown(sizes)}: {line}" for line in wrong_results(case)]
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
    poisoned_by_design = _kept_poison(bandwidth, operation, dtype)
    return [
        f"{name}: {count} of {array.size} elements were not written"
        for name, array in case.results.items()
        if name not in poisoned_by_design and (count := _count_nan(bandwidth, array))
    ]


def _count_nan(bandwidth: Bandwidth, array: Any) -> int:
    # What a copy from the device filled lies on the host, and CuPy takes no NumPy arrays.
    xp = np if isinstance(array, np.ndarray) else bandwidth.xp
    with beside(array):
        return int(xp.isnan(array).sum())


def calls_of(bandwidth: Bandwidth, case: Case) -> list[Callable[[], object]]:
    """Bind the steps of a case as callables, unmeasured."""
    return [
        bandwidth.bind(bandwidth.kernel(step.file, step.kernel), step.grid, step.block, step.args)
        if isinstance(step, KernelStep)
        else step.call
        for step in case.steps
    ]


def _run_poisoned(bandwidth: Bandwidth, case: Case) -> None:
    poison(case)
    for call in calls_of(bandwidth, case):
        call()


def _kept_poison(bandwidth: Bandwidth, operation: Operation, dtype: str) -> set[str]:
    """Name the results that keep poison by design: sink of a read, gaps of a strided write, other tokens of a cache."""
    expected = operation.prepare(bandwidth, dtype, operation.small[-1]).expected()
    return {name for name, reference in expected.items() if np.isnan(on_host(reference)).any()}


def _shown(sizes: Sizes) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())
