"""The tests of a run on the traffic device."""

import kernels  # noqa: F401
from table import test_of_each

test_candidate = test_of_each()
