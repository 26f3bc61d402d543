"""Check that the measured work is done: on the given inputs, in each sample, and inside the timed span.

The hooks here add the option and the command, and watch measurements.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.domain.interpreter import Clock, clock
from pytest_bandwidth.hooks import Command, hookimpl
from pytest_bandwidth.options.settings import Options, switch

if TYPE_CHECKING:
    import pytest

    from pytest_bandwidth.domain.device import DeviceIdentity
    from pytest_bandwidth.hooks import Watch, Watched

# Functions as they were before any test was loaded: those that tests replace to freeze the time; the plugin's clock;
# those that are called around each sample, whose replacement could compute there, untimed.
FUNCTIONS_AT_START = [
    (label, owner, name, getattr(owner, name))
    for label, owner, names in (
        ("time", time, ("perf_counter", "perf_counter_ns", "monotonic", "time")),
        ("the plugin's clock", clock, [name for name in vars(Clock) if name[0] != "_"]),
        ("gc", gc, ("disable", "enable", "isenabled")),
    )
    for name in names
]
# The package's constants, by module and name.
CONSTANTS_AT_START: dict[tuple[str, str], Any] = {}


class HonestOptions(Options):
    """Hold the option."""

    honest: bool = switch("treat every bandwidth test as marked honest: check between samples that the work is done")


@hookimpl
def pytest_bandwidth_options() -> type:
    """Add `--bandwidth-honest`."""
    return HonestOptions


@hookimpl
def pytest_bandwidth_start(config: pytest.Config, identity: DeviceIdentity) -> None:
    """Record the package's constants before any test can change them."""
    del config, identity
    package = __name__.partition(".")[0]
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(f"{package}.") and module is not None:
            named = list(vars(module).items())
            CONSTANTS_AT_START.update({(module_name, name): value for name, value in named if name.isupper()})


@hookimpl
def pytest_bandwidth_watch(config: pytest.Config, watched: Watched) -> Watch | None:
    """Watch a measurement if its test asks for it: by `check=`, by its marker or by the option."""
    from pytest_bandwidth.options.options import options_of

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
