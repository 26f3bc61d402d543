"""The tests of a run that measures each candidate, in each way in which it can be noticed."""

import inputs  # noqa: F401
import later  # noqa: F401
import partial_work  # noqa: F401
import pytest
import right  # noqa: F401
import right_compiled  # noqa: F401
import stale  # noqa: F401
import tampering  # noqa: F401
from table import TABLE, WITHOUT

HONEST = pytest.mark.bandwidth(honest=True)
EACH = [
    pytest.param(candidate, way, marks=[HONEST] if way == WITHOUT else [], id=candidate.key(way))
    for candidate in TABLE
    for way in candidate.codes
]


@pytest.mark.parametrize(("candidate", "way"), EACH)
def test_candidate(bandwidth, candidate, way):
    candidate.measure(bandwidth, way)
