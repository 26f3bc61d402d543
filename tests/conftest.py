"""Shared by all tests."""

import pytest

pytest_plugins = "pytester"


@pytest.fixture(autouse=True)
def _not_this_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs inside tests must not report to the CI job that runs the tests."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
