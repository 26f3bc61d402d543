"""Shared by all tests."""

from collections.abc import Iterator

import pytest

pytest_plugins = "pytester"


@pytest.fixture(scope="session", autouse=True)
def _not_this_job() -> Iterator[None]:
    """Runs inside tests, and inside fixtures of whole modules, must not report to the CI job that runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_ACTIONS", raising=False)
        patch.delenv("GITHUB_STEP_SUMMARY", raising=False)
        yield
