"""Be the process that measures one card of a fleet: end when it shall, and hand over what its caller needs."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from pytest_bandwidth.session.publishing.gathered import DeviceReport
from pytest_bandwidth.storage.atomic import write_whole


class CurrentTest:
    """Note, as a plugin of pytest, the test that runs, for the caller's table."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        # A table is not worth a failed test: the disk may be full.
        with suppress(OSError):
            self._file.write_text(nodeid, encoding="utf-8", errors="replace")


def configure_card(config: pytest.Config, current: str) -> None:
    """Set this process up: it ends on an interrupt. current: the file for the test that runs."""
    config.pluginmanager.register(CurrentTest(Path(current)))
    # Ray's threads block signals, and its processes ignore some: what they start inherits that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def write_evidence(reports: Sequence[DeviceReport], file: str) -> None:
    """Write what an update is made of beyond the document: further whole runs; by key, markers and code to keep."""
    for report in reports:
        evidence = {
            "further": report.further,
            "asked": {row.outcome.key: asdict(row.asked) for row in report.rows},
            "code": {row.outcome.key: row.code_plain() for row in report.rows},
        }
        write_whole(Path(file), json.dumps(evidence).encode())
