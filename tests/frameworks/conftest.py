"""Let tinygrad compute in Python, which takes no compiler."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _tinygrad_in_python():
    """Name its device before it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEV", "PYTHON")
        yield
