"""The frameworks that a test needs, where they are installed."""

import pytest


def installed(name):
    return pytest.importorskip(name, reason=f"{name} is not installed: docs/frameworks.md")


@pytest.fixture(autouse=True)
def _triton_by_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns where it is not set


@pytest.fixture
def jax():
    return installed("jax")


@pytest.fixture
def torch():
    return installed("torch")


@pytest.fixture
def tinygrad():
    return installed("tinygrad")
