"""What is found after the samples, of work that samples did not show."""

import pytest

from pytest_bandwidth.features.honest import watch

pytestmark = pytest.mark.in_process

SKIPS_EACH_FOURTH_CALL = """
import itertools
import numpy as np
import pytest

@pytest.mark.bandwidth(honest=True)
@pytest.mark.parametrize("skipped", range(4))
def test_square(bandwidth, skipped):
    calls, last = itertools.count(), []
    def work(x):
        if next(calls) % 4 != skipped or not last:
            last[:] = [x * x]
        return last[0]
    bandwidth(work, bandwidth.random(100_000), reads="args", writes="result")
"""


def test_work_that_leaves_out_each_fourth_call_is_found_however_little_time_is_left(project, monkeypatch):
    # As on a machine so busy that few samples are looked at, and all time for more runs is over at once.
    for name, value in (("ALWAYS_LOOKED_AT", 1), ("LOOKING_SHARE", 0), ("FEWEST_CHANGES", 1)):
        monkeypatch.setattr(watch, name, value)
    monkeypatch.setattr(watch, "MIXED_TRIALS", watch.WHOLE_PERIOD)
    project.file("test_square.py", SKIPS_EACH_FOURTH_CALL)
    result = project.run_here()
    result.assert_outcomes(failed=4)
    assert result.stdout.str().count("MISMATCH  stale result") == 4
