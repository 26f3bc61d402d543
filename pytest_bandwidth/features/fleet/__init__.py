"""Measure every card of a Ray cluster.

This module registers the command, and the hooks of a run that measures one card of a fleet.
`on_node` starts such a run and passes the paths of its files by name: `document`; `evidence`, which an update needs in
addition; `baseline`, a copy of the caller's or None. The run writes no other files: only the caller writes baselines,
histories and reports.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.hooks import Command, hookimpl

if TYPE_CHECKING:
    import pytest

    from pytest_bandwidth.hooks import DeviceReport, Given

# The key of the paths in xdist's `workerinput`.
_OF_WORKER = "bandwidth_card"


@hookimpl
def pytest_bandwidth_commands() -> list[Command]:
    """Add `pytest-bandwidth fleet`."""
    module = "pytest_bandwidth.features.fleet.command"
    return [
        Command("fleet", "measure every GPU of a Ray cluster, each in a process of its own", module, takes_rest=True)
    ]


@hookimpl
def pytest_bandwidth_given(config: pytest.Config, options: dict[str, Given]) -> None:
    """Let the run of a card judge by its copy of the caller's baseline, and write its document for the caller."""
    if (places := _places(config)) is None:
        return
    from pytest_bandwidth.options.settings import Given

    options["json"] = Given(places["document"], "the fleet's document")
    options.pop("baseline", None)
    if places["baseline"] is not None:
        options["baseline"] = Given(places["baseline"], "the fleet's baseline")


@hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set the process of a card up, before any test is collected: it ends on an interrupt."""
    if _places(config) is None:
        return
    # Ray's threads block signals, and its processes ignore some: their children inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the paths to a worker of xdist."""
    node.workerinput[_OF_WORKER] = _places(node.config)


@hookimpl
def pytest_bandwidth_finished(config: pytest.Config, reports: Sequence[DeviceReport]) -> None:
    """Write what the caller's update needs in addition to the document: further whole runs, markers, code to keep."""
    if (places := _places(config)) is None:
        return
    from pytest_bandwidth.options.options import settings_of

    if not settings_of(config).writes_baseline:
        return
    import json
    from dataclasses import asdict

    from pytest_bandwidth.storage.atomic import write_whole

    for report in reports:
        evidence = {
            "further": report.further,
            "asked": {row.outcome.key: asdict(row.asked) for row in report.rows},
            "code": {row.outcome.key: row.code_plain() for row in report.rows},
        }
        write_whole(Path(places["evidence"]), json.dumps(evidence).encode())


def _places(config: pytest.Config) -> dict[str, Any] | None:
    """Return where the run of a card puts its files; None for any other run."""
    from pytest_bandwidth.options.options import handed

    places: dict[str, Any] | None = getattr(config, "workerinput", {}).get(_OF_WORKER)
    return handed(config, "fleet") or places
