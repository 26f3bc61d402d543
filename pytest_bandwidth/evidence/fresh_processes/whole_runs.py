"""Take an update's further runs: all that the run measured, again in fresh processes."""

from __future__ import annotations

from collections.abc import Callable

from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.evidence.processes.requests import WholeRun
from pytest_bandwidth.measuring.device_lock import DeviceLock
from pytest_bandwidth.measuring.measurer import QUIET_WAIT_SECONDS
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.outcome import Plain

# A fresh whole run may take so long; a hung one must not block an update for ever.
WHOLE_RUN_SECONDS = 4 * 3600.0


def further_runs(
    settings: Settings,
    invocation: Invocation,
    identity: DeviceIdentity,
    peak: Peak | None,
    tell: Callable[[str], None],
) -> list[list[Plain]]:
    """Measure `settings.runs` − 1 fresh whole runs on the device; outcomes of each. Raises BandwidthError."""
    # What is counted is the same in every process.
    wanted = 1 if identity.counts_only else settings.runs
    further = []
    for i in range(1, wanted):
        tell(f"bandwidth: baseline run {i + 1} of {wanted} in a fresh process …")
        with DeviceLock(identity, settings.lock_timeout).held(on_long_wait=tell):
            quiet_wait_seconds = QUIET_WAIT_SECONDS / (wanted - 1)
            request = WholeRun(identity.option, peak=peak, quiet_wait_seconds=quiet_wait_seconds)
            with invocation.start(request) as child:
                further.append(child.rows(WHOLE_RUN_SECONDS))
    return further
