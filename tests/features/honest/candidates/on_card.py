"""The tests of a run on a GPU."""

import card  # noqa: F401
import kernels  # noqa: F401
from table import test_of_each

test_candidate = test_of_each()
