"""Shared by all tests."""

import signal
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


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Processes that tests interrupt would inherit that SIGINT is ignored, as it is in a shell's background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
