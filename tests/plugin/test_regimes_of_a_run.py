"""Regime, class and bottleneck of what a user's tests measure, as the run's document tells them."""

import pytest
from command_runner import LINK

from pytest_bandwidth.domain.values import classes

TEST = """
import numpy as np
import pytest

N = 1 << 18

def test_launch(bandwidth):
    x, y = bandwidth.random(N, "float32"), bandwidth.empty(N, "float32")
    scale = bandwidth.kernel("stream.cu", "scale_f32")
    bandwidth.launch(scale, N // 256, 256, (y, x, np.float32(2), np.int64(N)), reads=x, writes=y, flop=N)

def test_undeclared(bandwidth):
    x, y = bandwidth.random(16, "float32"), bandwidth.empty(16, "float32")
    bandwidth(np.cos, x, y, reads=x, writes=y)

def test_declared(bandwidth):
    x = bandwidth.random(N, "float32")
    bandwidth(np.dot, x, x, reads=x, flop=10**9 * N)
"""


def test_each_regime_has_its_evidence_and_classes_have_the_bounds_of_the_ini_file(project):
    project.file("test_regimes.py", TEST)
    bounds = "bandwidth_utilization_classes=0.1% 0.01% 0.001%"
    rows = {row["nodeid"].partition("::test_")[2]: row for row in project.document("-o", bounds)["results"]}
    assert rows["launch"]["ridge_point"] > 0
    assert rows["launch"]["detail"]["dispatch_seconds"] > 0
    assert rows["launch"]["regime"] in ("memory-bound", "overhead-bound")
    assert rows["launch"]["regime_evidence"]
    # More FLOP than any processor does in a year: whatever the rates measured are, this is over their ridge.
    assert rows["declared"]["regime"] == "compute-bound"
    assert "over the ridge point at" in rows["declared"]["regime_evidence"]
    assert "computes nothing" not in (rows["undeclared"]["regime_evidence"] or ""), "nobody said what it computes"
    assert rows["launch"]["utilization_class"] == "excellent"
    assert rows["launch"]["bottleneck"] is None


@pytest.mark.in_process
def test_bounds_that_are_none_are_refused(project):
    expected = "expected three falling shares such as '80% 60% 35%'"
    for text in ("80%", "80% 60%", "35% 60% 80%", "80% 60% 0"):
        with pytest.raises(ValueError, match=expected):
            classes(text)
    result = project.run_here("--co", "-o", "bandwidth_utilization_classes=much more less")
    assert result.ret != 0
    result.stderr.fnmatch_lines([f"*bandwidth_utilization_classes: *{expected}{LINK}"])
