"""Make what an entry of five runs knows: a kernel at 90 % of probes of 100 GB/s, unless said otherwise."""

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.judging.device_change import bounds_of
from pytest_bandwidth.domain.judging.reference import prior_spread, reference_of


def known(*probes, share=0.9, tolerance=0.05):
    runs = tuple(Run(gbps=share * probe, probe_gbps=probe) for probe in probes or (100.0,) * 5)
    entry = Entry("t", runs=runs)
    gbps, relative = (reference_of(entry, which, prior_spread(which, on_host=False)) for which in ("gbps", "relative"))
    found = bounds_of(entry, gbps, relative, tolerance)
    assert found is not None
    return found
