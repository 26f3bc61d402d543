"""Make entries of one test whose runs stand beside a probe of 100 GB/s, and figures to judge by them."""

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.judging.stored import reference_of


def entry(*relatives, **more):
    runs = tuple(Run(gbps=100 * r, probe_gbps=100.0) for r in relatives)
    return Entry("t.py::t", gbps=100.0, runs=runs, **more)


def reference(*relatives, figure="relative"):
    found = reference_of(entry(*relatives), figure, on_host=False)
    assert found is not None
    return found


def at(share):
    return Metrics(gbps=100 * share, relative=share, probe_gbps=100.0)
