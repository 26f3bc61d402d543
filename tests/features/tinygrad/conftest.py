"""Open tinygrad's interpreter, which takes no compiler: a few microseconds for each number."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def tinygrad():
    return pytest.importorskip("tinygrad", reason="tinygrad is not installed: docs/backends.md")


@pytest.fixture(scope="session")
def backend(tinygrad):
    del tinygrad  # installed
    from pytest_bandwidth.features.tinygrad.backend import open_backend

    return open_backend("PYTHON")


@pytest.fixture
def null(tinygrad):
    """NULL, which runs nothing and counts as the others do."""
    from pytest_bandwidth.features.tinygrad.backend import Backend

    return Backend("NULL", tinygrad, tinygrad.Device["NULL"])
