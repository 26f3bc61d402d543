"""Work twice as large, to tell whether a run waits for its data or for its launch."""

from __future__ import annotations

from pytest_bandwidth.session.fixture import Bandwidth
from pytest_bandwidth.suite.operations import Case, Operation, Sizes

# A GPU moves so much in a few microseconds, which is what a launch takes; larger work never waits for its launch.
DOUBLED_BYTES = 8 * 2**20
# By which size the whole work doubles, whichever comes first: a product's rows would share its weights.
_BATCHES = ("batch", "rows", "n")
# What comes besides (a shared vector, partial results) need not double.
DOUBLES_AT_LEAST = 1.8


def doubled_case(bandwidth: Bandwidth, operation: Operation, dtype: str, sizes: Sizes, case: Case) -> Case | None:
    """A case of twice the work; None where that is no question (`DOUBLED_BYTES`), or where no size doubles it all."""
    if bandwidth.device == "traffic" or case.traffic.bytes_moved > DOUBLED_BYTES:
        return None
    name = next(name for name in _BATCHES if name in sizes)
    doubled = operation.prepare(bandwidth, dtype, {**sizes, name: 2 * sizes[name]})
    if doubled.traffic.bytes_moved < DOUBLES_AT_LEAST * case.traffic.bytes_moved:
        return None
    return doubled
