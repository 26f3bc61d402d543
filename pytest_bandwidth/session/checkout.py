"""The revision that a run is judged by: checked out once tests are to be measured, gone when pytest ends, however."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.session.against.checkout import CheckedOut, Revision
from pytest_bandwidth.session.fresh.signals import signals_as_interrupts
from pytest_bandwidth.session.settings import settings_of

_REVISION = pytest.StashKey[Revision]()
# Options of pytest after which no test's body runs.
_RUNS_NOTHING = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")


def check_out(config: pytest.Config) -> Revision | None:
    """The run's revision, checked out when first asked for; None where nothing is to be measured against one.

    Raises pytest.UsageError, one line, where there is no such revision.
    """
    settings = settings_of(config)
    name = settings.against
    runs_nothing = any(config.getoption(option, False) for option in _RUNS_NOTHING)
    if name is None or runs_nothing or settings.disable or settings.skip:
        return None
    if _REVISION in config.stash:
        return config.stash[_REVISION]
    stack = ExitStack()
    stack.enter_context(signals_as_interrupts())
    config.add_cleanup(stack.close)
    try:
        checked_out = CheckedOut(config.rootpath, name)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    config.add_cleanup(checked_out.remove)
    config.stash[_REVISION] = checked_out.revision
    return checked_out.revision
