"""Which of a measurement's two figures is judged."""

import pytest
from judged_kernels import at, entry

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.measured.metrics import choose_metric, metrics_of_run


def test_figure_is_relative_where_the_probe_shares_the_kernels_fate():
    assert choose_metric(None, None, at(0.9), None) == "relative"
    assert choose_metric(None, None, at(0.1), None) == "gbps"
    assert choose_metric(None, None, at(0.9), "compute-bound") == "gbps"
    assert choose_metric("gbps", None, at(0.9), None) == "gbps"
    assert choose_metric(None, None, at(2.0), None) == "relative"
    assert choose_metric(None, None, at(2.01), None) == "gbps"
    assert choose_metric(None, entry(1.0, judged_on="gbps"), at(0.9), None) == "gbps"
    # A line written by hand knows GB/s only.
    assert choose_metric(None, Entry("t", gbps=10.0), at(0.9), None) == "gbps"


@pytest.mark.parametrize(
    ("run", "share"),
    [
        (Run(gbps=80.0, probe_gbps=100.0, relative=0.7), 0.7),  # the median of ratios is not the ratio of medians
        (Run(gbps=80.0, probe_gbps=100.0), 0.8),
        (Run(gbps=80.0), None),
    ],
)
def test_a_run_that_leaves_out_its_share_has_the_one_of_the_probes_bandwidth(run, share):
    assert metrics_of_run(run).relative == share
    assert metrics_of_run(run).gbps == 80.0
