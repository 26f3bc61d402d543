"""Show that the measured work was done: on these inputs, each time, and inside the timed span.

Plugged in here: the option, and who looks on at measurements.
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

# As they were before any test was loaded: what tests replace to freeze the time; what the plugin measures by; what is
# called around each sample, in whose place something could compute there, untimed.
FUNCTIONS_AT_START = [
    (said, owner, name, getattr(owner, name))
    for said, owner, names in (
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
    """Keep the package's constants as they are before any test may change them."""
    del config, identity
    package = __name__.partition(".")[0]
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(f"{package}.") and module is not None:
            named = list(vars(module).items())
            CONSTANTS_AT_START.update({(module_name, name): value for name, value in named if name.isupper()})


@hookimpl
def pytest_bandwidth_watch(config: pytest.Config, watched: Watched) -> Watch | None:
    """Look on at a measurement whose test asks for it, by `check=`, its marker or the option."""
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
