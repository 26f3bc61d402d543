"""Show that the measured work was done: on these inputs, each time, and inside the timed span.

Plugged in here: the option, and who looks on at measurements.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_bandwidth.domain.clock import Clock
from pytest_bandwidth.hooks import Command, hookimpl
from pytest_bandwidth.options.settings import Options, switch

if TYPE_CHECKING:
    import pytest

    from pytest_bandwidth.hooks import Watch, Watched

# What tests replace to freeze the time, and what the plugin measures by: as they were before any test was loaded.
CLOCKS_AT_START = {name: getattr(time, name) for name in ("perf_counter", "perf_counter_ns", "monotonic", "time")}
OWN_CLOCKS_AT_START = {name: getattr(Clock, name) for name in vars(Clock) if name[0] != "_"}


class HonestOptions(Options):
    """Hold the option."""

    honest: bool = switch("treat every bandwidth test as marked honest: check between samples that the work is done")


@hookimpl
def pytest_bandwidth_options() -> type:
    """Add `--bandwidth-honest`."""
    return HonestOptions


@hookimpl
def pytest_bandwidth_watch(config: pytest.Config, watched: Watched) -> Watch | None:
    """Look on at a measurement whose test asks for it, by `check=`, its marker or the option."""
    from pytest_bandwidth.options.reading import options_of

    marked = watched.marker.honest
    has_check = watched.check is not None
    honest = has_check or options_of(config, HonestOptions).honest if marked is None else marked
    if not (has_check or honest):
        return None
    from pytest_bandwidth.features.honest.watch import WorkWatch

    return WorkWatch(watched, honest=honest)


@hookimpl
def pytest_bandwidth_commands() -> list[Command]:
    """Add `pytest-bandwidth arena`."""
    module = "pytest_bandwidth.features.honest.arena"
    return [Command("arena", "compare candidates with a reference, each in a process of its own", module)]
