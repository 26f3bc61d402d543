"""The frameworks that a test needs, where they are installed."""

import pytest


def installed(name):
    return pytest.importorskip(name, reason=f"{name} is not installed: docs/frameworks.md")


@pytest.fixture
def jax():
    return installed("jax")


@pytest.fixture
def torch():
    return installed("torch")


@pytest.fixture
def tinygrad():
    return installed("tinygrad")
