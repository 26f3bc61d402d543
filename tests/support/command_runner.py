"""Call the commands as the console script does, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from pytest_bandwidth.cli.main import main
from pytest_bandwidth.reports.wording import help_link

# How a UsageError ends.
LINK = f" (help: {help_link('usageerror')})"


class Said(NamedTuple):
    """Hold what one command printed, and its exit status."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run `pytest-bandwidth ARGUMENTS…`."""

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:  # how argparse ends
            status = int(end.code or 0)
        return Said(status, *capsys.readouterr())

    return run
