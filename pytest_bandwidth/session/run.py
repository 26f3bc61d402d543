"""One process's run: its device, its baseline, the device's lock, and how a workload is measured under them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from pytest_bandwidth.devices.base import Budget, Device, ReadyDevice, ReproducibleDevice, Workload
from pytest_bandwidth.devices.open import name_of, open_device
from pytest_bandwidth.domain.baseline import Baseline
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.errors import BaselineError, DeviceLost
from pytest_bandwidth.domain.gc_disabled import gc_disabled
from pytest_bandwidth.domain.judging.confirmation import MOST_FRESH_FACTOR, ROUNDS_SHARE
from pytest_bandwidth.domain.judging.drift import drift_of
from pytest_bandwidth.domain.judging.judge import Judged, Limits, Pools, judge_test, pools_of
from pytest_bandwidth.domain.measurement import Measurement
from pytest_bandwidth.domain.rounds import Rounds
from pytest_bandwidth.domain.validity import validated, with_earlier_tries
from pytest_bandwidth.domain.verdict import Status, Verdict
from pytest_bandwidth.session.against.checkout import Revision
from pytest_bandwidth.session.against.pairs_loop import judge_against, with_floors
from pytest_bandwidth.session.against.worktrees import Worktrees
from pytest_bandwidth.session.device_lock import DeviceLock
from pytest_bandwidth.session.fresh.child import ChildRequest, Go, Invocation, start_fresh, wait_for_turn
from pytest_bandwidth.session.fresh.confirm import FreshProcesses, Waiting
from pytest_bandwidth.session.fresh.probe import probe_alone
from pytest_bandwidth.session.settings import MarkerOptions, Settings
from pytest_bandwidth.storage import baseline as baseline_files

# An invalid measurement is taken again so often before INVALID stands.
INVALID_RETRIES = 2
# A fresh process may take so many times as long as its parent's test, and never less than this.
FRESH_SECONDS_LEAST = 180.0
FRESH_SECONDS_FACTOR = 20.0


class BandwidthRun:
    """Everything of a run that outlives one test. Opens the device and reads the baseline when first asked."""

    def __init__(
        self,
        settings: Settings,
        invocation: Invocation,
        root: Path,
        order: ChildRequest | None = None,
        revision: Revision | None = None,
    ) -> None:
        self.settings = settings
        self.root = root
        self.order = order
        self.revision = revision
        self.tell: Callable[[str], None] = lambda _: None
        self.note: Callable[[str], None] = lambda _: None
        self._invocation = invocation
        self._lost: str | None = None
        self._probes_alone: dict[tuple[int, int], float] = {}
        self._go = Go()
        self._wait_seconds = 0.0

    @cached_property
    def device(self) -> Device:
        """Raises DeviceUnavailable, at every use, where the asked-for device cannot be had."""
        return open_device(self.order.device if self.order else self.settings.device)

    @property
    def strict(self) -> bool:
        """Whether what could not be judged fails. A fresh process judges nothing, so that nothing of it fails."""
        return self.settings.strict and self.order is None

    @property
    def device_name(self) -> str:
        """A name that a fresh process opens the same device by."""
        return name_of(self.device.identity)

    @cached_property
    def peak(self) -> Peak | None:
        """The user's (ini, then baseline) before the device's own."""
        if self.settings.peak is not None:
            return Peak(self.settings.peak * 1e9, "bandwidth_peak in the ini file")
        if self.baseline is not None and self.baseline.device and self.baseline.device.peak_gbps:
            return Peak(self.baseline.device.peak_gbps * 1e9, f"peak in {self.baseline.path}")
        return self.device.peak

    @cached_property
    def baseline_file(self) -> Path | None:
        """The file that belongs to this device; it need not exist yet where this run writes it."""
        if self.settings.baseline is None or self.revision is not None:
            return None
        return baseline_files.find_file(self.settings.baseline, self.device.identity)

    @cached_property
    def baseline(self) -> Baseline | None:
        """Raises BaselineError for a file that is missing, bad, or another device's."""
        file = self.baseline_file
        if file is None or self.order is not None:
            return None
        if not file.exists():
            if self.settings.writes_baseline:
                return None
            raise BaselineError(
                f"no baseline file {file}: check --bandwidth-baseline, or write it with --bandwidth-update"
            )
        baseline = baseline_files.load(file)
        baseline_files.check_device(baseline, self.device.identity)
        return baseline

    @cached_property
    def _pools(self) -> Pools:
        return pools_of(self.baseline)

    @cached_property
    def _waiting(self) -> Waiting:
        return Waiting(self.device.identity.on_host, MOST_FRESH_FACTOR * self.settings.confirm)

    @cached_property
    def _lock(self) -> DeviceLock:
        return DeviceLock(
            self.device.identity,
            self.settings.lock_timeout,
            held_by_parent=self.order is not None,
            on_wait=lambda text: self.tell(text),
            on_long_wait=lambda text: self.note(text),
        )

    def prepare(self) -> None:
        """Opens the device and reads the baseline now, so that what is wrong is said before any test runs."""
        with gc_disabled():  # the device's libraries are large, and stay
            _ = self.device.identity
        _ = self.baseline

    def wait_for_turn(self) -> None:
        """In a fresh process: does what comes before a test is measured, then waits for its turn."""
        if self.order is None:
            return
        if isinstance(self.device, ReadyDevice):
            self.device.make_ready()
        self._go = wait_for_turn()
        self._wait_seconds = self._go.wait_seconds

    def begin_test(self) -> None:
        """Nothing of the tests before shows in what this one counts."""
        if isinstance(self.device, ReproducibleDevice):
            self.device.begin_test()

    def measure(self, workload: Workload, marker: MarkerOptions) -> Measurement:
        """Measures under the device's lock; again where the result is invalid. With `disable`, runs once, untimed."""
        if self._lost is not None:
            raise DeviceLost(f"not measured: {self._lost}")
        try:
            if self.settings.disable:
                return self._run_untimed(workload)
            with self._lock.held():
                return self._measure_valid(workload, marker)
        except DeviceLost as error:
            self._lost = f"an earlier test in this process broke the device's context ({error})"
            raise

    def judge(
        self,
        measurements: Mapping[str, Measurement],
        marker: MarkerOptions,
        nodeid: str,
        target: str,
        test_seconds: float,
    ) -> dict[str, Judged]:
        """Verdicts of one test's measurements by key.

        The device's lock is held for each fresh process, or for the two of a pair: others measure in between.
        """
        settings = self.settings
        limits = Limits(
            marker.tolerance,
            settings.tolerance,
            marker.floors,
            marker.judged_on,
            settings.confirm,
            "all" if settings.update else "new" if settings.update_new else "none",
        )
        timeout = max(FRESH_SECONDS_LEAST, FRESH_SECONDS_FACTOR * test_seconds)
        self.device.release()
        with self._fresh_processes(nodeid, target, test_seconds, timeout) as fresh:
            if self.revision is None:
                judged = judge_test(
                    measurements, self.baseline, limits, fresh.measure_again, self._probe_alone, self._pools
                )
                judged = {key: _with_drift(one) for key, one in judged.items()}
            else:
                file = Path(target.partition("::")[0])
                worktrees = Worktrees(self._invocation, self.revision, self.device_name, nodeid, file, timeout)
                judged = judge_against(measurements, limits, worktrees, settings.pairs, self.tell, self._lock.held)
                if limits.floors:
                    judged = with_floors(
                        judged, judge_test(measurements, None, limits, fresh.measure_again, self._probe_alone)
                    )
            return {key: replace(one, fresh=fresh.of(one.measurement.label)) for key, one in judged.items()}

    def _fresh_processes(self, nodeid: str, target: str, test_seconds: float, timeout_seconds: float) -> FreshProcesses:
        order = ChildRequest(self.device_name, nodeid, target, ROUNDS_SHARE)
        return FreshProcesses(
            lambda: start_fresh(self._invocation, order),
            self._lock.held,
            lambda text: self.tell(text),
            self._waiting,
            confirm=self.settings.confirm,
            # A GPU is opened by one at a time: each keeps memory of it.
            side_by_side=self.device.identity.on_host,
            peak=self.peak,
            timeout_seconds=timeout_seconds,
            measured_seconds=test_seconds,
        )

    def unjudged(self, measurements: Mapping[str, Measurement]) -> dict[str, Judged]:
        """What a fresh process reports: figures without a verdict; its parent judges."""
        return {key: Judged(m, None, _no_verdict(m)) for key, m in measurements.items()}

    def _budget(self, marker: MarkerOptions, label: str | None) -> Budget:
        settings = self.settings
        return Budget(
            marker.min_samples or settings.min_samples,
            marker.max_time or settings.max_time,
            settings.precision,
            fastest_probe_gbps=self._go.fastest_probe(label),
            wait_seconds=self._wait_seconds,
            rounds_share=settings.rounds_share if self.order is None else self.order.rounds_share,
        )

    def _run_untimed(self, workload: Workload) -> Measurement:
        value = self.device.run(workload)
        return Measurement(
            workload.label, workload.traffic, self.device.identity, "disabled", Rounds(), self.peak, value=value
        )

    def _measure_valid(self, workload: Workload, marker: MarkerOptions) -> Measurement:
        earlier: list[str] = []
        while True:
            measured = self.device.measure(workload, self._budget(marker, workload.label), self.tell)
            # All measurements of a process share what it may wait.
            self._wait_seconds = max(0.0, self._wait_seconds - measured.rounds.waited_seconds)
            measurement = validated(measured, self.peak, self.settings.busy_processors)
            if measurement.invalid is None or len(earlier) == INVALID_RETRIES:
                return with_earlier_tries(measurement, earlier)
            earlier.append(measurement.invalid.text)
            self.tell(f"invalid, taken again: {measurement.invalid.text}")

    def _probe_alone(self, bytes_read: int, bytes_written: int) -> float:
        """GB/s of a matching probe in a fresh process; once for all tests that move as much, in and out of caches."""
        moved = (bytes_read, bytes_written)
        if moved not in self._probes_alone:
            with self._lock.held():
                self._probes_alone[moved] = probe_alone(self.device_name, bytes_read, bytes_written)
        return self._probes_alone[moved]


def _with_drift(judged: Judged) -> Judged:
    drift = drift_of(judged.entry, judged.verdict)
    if drift is None:
        return judged
    return replace(judged, measurement=judged.measurement.with_finding(drift))


def _no_verdict(measurement: Measurement) -> Verdict:
    if measurement.invalid is not None:
        return Verdict(Status.INVALID, measurement.invalid.code, measurement.invalid.text)
    return Verdict(Status.NO_BASELINE, "fresh-process", "measured for the run that started this process")
