"""The tests of a run on the host."""

import inputs  # noqa: F401
import later  # noqa: F401
import partial_work  # noqa: F401
import right  # noqa: F401
import right_compiled  # noqa: F401
import stale  # noqa: F401
import tampering  # noqa: F401
from table import test_of_each

test_candidate = test_of_each()
