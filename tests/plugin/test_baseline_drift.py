"""A baseline that crept away from its anchor, from the outside."""

import re

import pytest

pytestmark = pytest.mark.in_process

STEADY = """
import pytest
from virtual_time import sleep

@pytest.mark.bandwidth(judged_on="gbps")
def test_copy(bandwidth):
    bandwidth(sleep, 0.002, reads=1 << 20)
"""


@pytest.fixture
def crept(slept):
    """The entry's anchor stands at twenty times what its runs reach."""
    slept.file("test_copy.py", STEADY)
    slept.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update").assert_outcomes(passed=1)
    text = (slept.path / "b.yaml").read_text()
    gbps, relative = (float(re.search(rf"{name}: ([\d.e+-]+)", text)[1]) for name in ("bandwidth", "relative"))
    anchor = f"anchor: {{gbps: {20 * gbps:.6g}, relative: {20 * relative:.6g}}}"
    text, count = re.subn(r"anchor: \{[^}]*\}", anchor, text)
    assert count == 1, text
    (slept.path / "b.yaml").write_text(text)
    return slept


def test_drift_is_told_and_fails_with_strict(crept):
    args = ("--bandwidth-baseline=b.yaml", "--bandwidth-tolerance=60%")
    result = crept.run_here(*args)
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines(
        [r"DRIFT test_copy\.py::test_copy: the baseline itself has crept .* below its anchor.*"]
    )
    strict = crept.run_here(*args, "--bandwidth-strict")
    strict.assert_outcomes(failed=1)
    strict.stdout.re_match_lines([r"test_copy moved .*Drift: the baseline itself has crept .*"])
    text = (crept.path / "b.yaml").read_text()
    (crept.path / "b.yaml").write_text(re.sub(r"\n *anchor: \{[^}]*\}", "", text))
    crept.run_here(*args).stdout.no_re_match_line("DRIFT.*")
