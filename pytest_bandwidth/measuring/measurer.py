"""Measure on the run's device under its lock, again where a result is invalid: in a run and in its child processes."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import index
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from pytest_bandwidth.devices.base import Budget, Device, Workload
from pytest_bandwidth.devices.contents import holds_whole_numbers
from pytest_bandwidth.devices.host import installed_version
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest
from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import DeviceLost, DeviceUnavailable, KernelError, OutOfMemory, UsageError
from pytest_bandwidth.domain.interpreter import gc_disabled
from pytest_bandwidth.domain.measured.measurement import INPUTS, UNMEASURED, Measurement, Rounds
from pytest_bandwidth.domain.measured.validity import OF_OTHERS, faster_than_light, validated, with_earlier_tries
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.frameworks.arrays import arrays_in, framework_of
from pytest_bandwidth.frameworks.base import Extent, span_of
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.measuring.progress import Progress
from pytest_bandwidth.measuring.task import Task, TurnsOf
from pytest_bandwidth.options.options import own_command
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.registry import hooks
from pytest_bandwidth.storage.own_folders import what_is_wrong

LARGEST_HOLDER_BYTES = 4096
# A wait is usual while another test is measured; only a long one is worth a line in a log.
LONG_WAIT_SECONDS = 5.0


def lock_folder() -> Path:
    """Return the folder of this user's lock files; create it where it is missing.

    Each user has a folder: any user could hold a lock file of all users for ever. Measurements of other users keep the
    device busy, which the plugin detects.

    It is in the temporary folder, where all of a user's processes find it.
    Raises DeviceUnavailable where its name is taken or it cannot be written: nothing is measured without a lock.
    """
    folder = Path(tempfile.gettempdir()) / f"pytest-bandwidth-{os.getuid()}"
    if (found := what_is_wrong(folder)) is not None:
        raise DeviceUnavailable(
            f"the folder of locks {folder} is not this user's alone ({found}): remove it, or set TMPDIR"
        )
    return folder


class DeviceLock:
    """Lock a device among processes of one user; reentrant. A device that only counts needs no lock.

    Processes wait in a line, by a second lock, so that one that measures often does not take every turn.
    held_by_parent: the process that started this one holds it. advice: what the user can do after a wait in vain.
    """

    def __init__(
        self,
        identity: DeviceIdentity,
        timeout_seconds: float,
        *,
        held_by_parent: bool = False,
        advice: str = "wait for it, end it, or raise bandwidth_lock_timeout",
    ) -> None:
        self._is_needed = not (held_by_parent or identity.counts_only)
        if not self._is_needed:
            return
        # Devices without a serial of their own (a host) are one device per machine.
        text = f"{identity.kind} {identity.serial}"
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._device = identity.name
        self._timeout_seconds = timeout_seconds
        self._advice = advice
        folder = lock_folder()
        self._lock = FileLock(folder / f"{identity.kind}-{name}.lock", mode=0o600)
        self._line = FileLock(folder / f"{identity.kind}-{name}.line", mode=0o600)
        self._holder = folder / f"{identity.kind}-{name}.holder"
        # Others' logs show it: no secrets.
        self._own_command = own_command(sys.argv)[:400]

    @contextmanager
    def held(
        self, on_wait: Callable[[str], None] = lambda _: None, on_long_wait: Callable[[str], None] = lambda _: None
    ) -> Iterator[None]:
        """Wait for the lock and hold it. Raises DeviceUnavailable that names the holder after the time-out.

        on_wait, on_long_wait: called with a text that names the holder, at once and after LONG_WAIT_SECONDS.
        """
        if not self._is_needed or self._lock.is_locked:  # reentrant: the line's head waits for this process
            yield
            return
        begun, pending = time.monotonic(), [(0.0, on_wait), (LONG_WAIT_SECONDS, on_long_wait)]
        try:
            self._wait_for(self._line, begun, pending)
            try:
                self._wait_for(self._lock, begun, pending)
            finally:
                self._line.release()
        except Timeout:
            raise DeviceUnavailable(
                f"{self._device} was not free for {self._timeout_seconds:.0f} s and is being measured by "
                f"{self._who_holds()}: {self._advice}"
            ) from None
        try:
            with suppress(OSError):  # it is only for messages of other processes
                self._holder.write_text(json.dumps({"pid": os.getpid(), "command": self._own_command}))
            yield
        finally:
            with suppress(OSError):
                self._holder.unlink()
            self._lock.release()

    def _wait_for(self, lock: BaseFileLock, begun: float, pending: list[tuple[float, Callable[[str], None]]]) -> None:
        """Acquire one of the two locks of a wait that began at `begun`. pending: seconds, and what to call then."""
        while pending and pending[0][0] < self._timeout_seconds:
            after, notify = pending[0]
            try:
                lock.acquire(timeout=max(0.0, begun + after - time.monotonic()))
                return
            except Timeout:
                del pending[0]
                notify(f"waits for {self._who_holds()}, which measures on {self._device}")
        lock.acquire(timeout=max(0.0, begun + self._timeout_seconds - time.monotonic()))

    def _who_holds(self) -> str:
        try:
            holder = json.loads(self._holder.read_text()[:LARGEST_HOLDER_BYTES])
            return f"process {int(holder['pid'])} ({str(holder['command'])[:200]})"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


# Measurements for a baseline wait longer while others disturb the machine. This is the time for all measurements of a
# process together, including invalid ones meanwhile.
QUIET_WAIT_SECONDS = 20.0
NAP_SECONDS = 1.0

# The device's peak from a conftest.py or the baseline; None where it is not given.
HookedPeak = Callable[[DeviceIdentity], Peak | None]


class Measurer:
    """Measure as a task specifies; hold the state that outlives one test, and open the device at its first use.

    hooked_peak: returns a peak with precedence over the device's own. notes_inputs: whether a counted measurement
    records the inputs that determine its counts. turns_of: set where another process alternates with this one.
    """

    def __init__(
        self,
        settings: Settings,
        root: Path,
        task: Task,
        hooked_peak: HookedPeak = lambda _: None,
        *,
        notes_inputs: bool = False,
    ) -> None:
        self.settings, self.root, self.task = settings, root, task
        self.turns_of: TurnsOf | None = None
        self._hooked_peak, self._notes_inputs = hooked_peak, notes_inputs
        self._quiet_wait_seconds = task.quiet_wait_seconds
        self._lost: str | None = None
        self._measuring = False

    @cached_property
    def device(self) -> Device:
        """Return the device. Raises DeviceUnavailable or UsageError, at every use, where it is not available."""
        device = open_device(self.task.device or self.settings.device)
        device.bound(self.settings.traffic_timeout)
        device.time_by(self.settings.timer)
        return device

    @property
    def runs_once(self) -> bool:
        """Return whether workloads run just once, untimed."""
        return self.settings.disable or self.task.reports_code

    @property
    def identifies_code(self) -> bool:
        """Return whether measurements identify the code that ran."""
        return self.task.identifies_code and not self.settings.disable

    @cached_property
    def peak(self) -> Peak | None:
        """Return the parent's or the user's peak before the device's own."""
        if self.task.peak is not None:  # it may come from a baseline, which a child does not read
            return self.task.peak
        if self.settings.peak is not None:
            return Peak(self.settings.peak * 1e9, "bandwidth_peak in the ini file")
        return self._hooked_peak(self.device.identity) or self.device.peak

    @cached_property
    def _lock(self) -> DeviceLock:
        held_by_parent = self.task.for_parent and bool(self.task.device)
        return DeviceLock(self.device.identity, self.settings.lock_timeout, held_by_parent=held_by_parent)

    def prepare(self) -> None:
        """Open the device and read its peak now, so that errors are reported before any test runs."""
        with gc_disabled():  # the device's libraries are large, and stay
            _ = self.device.identity
        _ = self.peak

    def locked(self, progress: Progress) -> AbstractContextManager[None]:
        """Keep other processes from measuring on the device meanwhile; with `disable` there is no lock."""
        return nullcontext() if self.settings.disable else self._lock.held(progress.show, progress.note)

    def measure(self, workload: Workload, marker: MarkerOptions, progress: Progress) -> Measurement:
        """Measure under the device's lock; again where the result is invalid.

        Raises UsageError inside another measurement, whose times it would be part of.
        """
        if self.runs_once or self.task.untimed:
            return self.run_once(workload, progress)
        workload = replace(workload, cold=workload.cold and marker.cold is not False)
        with self._alone(progress):
            return self.task.measure(self.device, workload, lambda one: self._measure_valid(one, marker, progress))

    def run_once(self, workload: Workload, progress: Progress) -> Measurement:
        """Run the workload once, for its results. If only its code is wanted, a counted workload does not run."""
        task, device, value, resources = self.task, self.device, None, None
        with self._alone(progress):
            inputs = device.inputs_of(workload) if task.reports_code else None
            if inputs is None:
                value = task.run(device, workload)
                if task.reports_code and workload.launch is not None:
                    resources = device.resources(workload.launch)  # old code is launched with its entry's shape
        method = "disabled" if self.settings.disable else UNMEASURED
        what = (workload.label, workload.traffic, device.identity, method, Rounds(), self.peak)
        detail = {} if inputs is None else {INPUTS: inputs}
        return Measurement(*what, resources=resources, detail=detail, value=value)

    def inputs_of(self, given: Iterable[object], workload: Workload, progress: Progress) -> Inputs:
        """Return a hash of the integer arrays that a workload reads, after its set-up and before it runs."""
        arrays = whole_arrays(given, workload) if self.identifies_code else []
        if not arrays:
            return Inputs()
        with self._alone(progress):
            if workload.setup is not None:
                workload.setup()
            try:
                return Inputs(digest(*map(self.device.contents, arrays)))
            except (UsageError, OutOfMemory) as error:
                return Inputs(unknown=" ".join(str(error).split()))

    def value_of(self, workload: Workload, progress: Progress) -> object:
        """Run a workload once, untimed, as `measure` would, and return its value."""
        with self._alone(progress):
            return self.device.run(workload)

    def with_touched_bytes(self, measurement: Measurement, workload: Workload, progress: Progress) -> Measurement:
        """Add the distinct bytes of a GPU launch with known PTX, counted on its current arrays, where that is possible.

        The measurement is invalid where it took less time than they need. A child leaves the count to its parent.
        """
        launch, ptx = workload.launch, measurement.ptx
        timed = measurement.device.on_gpu and measurement.samples and measurement.invalid is None
        if launch is None or ptx is None or not timed or self.task.for_parent:
            return measurement
        progress.show("counts what the kernel touches")
        found, host_args = None, partial(self.device.host_args, launch)
        with self._alone(progress):
            if workload.setup is not None:
                workload.setup()
            with suppress(KernelError):
                found = hooks().pytest_bandwidth_distinct_bytes(ptx=ptx, launch=launch, host_args=host_args)
            if workload.setup is not None:  # its arrays hold the result again
                self.device.run(workload)
        if found is None:
            return measurement
        counted = replace(measurement, counted=Traffic(found["read"], found["written"]))
        return replace(counted, invalid=faster_than_light(counted))

    @contextmanager
    def _alone(self, progress: Progress) -> Iterator[None]:
        """Lock the device; refuse a measurement inside another one, or on a lost device; notice when it gets lost."""
        if self._lost is not None:
            raise DeviceLost(f"not measured: {self._lost}")
        if self._measuring:
            raise UsageError(
                "bandwidth was called inside a measured callable, or by another thread meanwhile: measure one at a time"
            )
        self._measuring = True
        try:
            with self.locked(progress):
                yield
        except DeviceLost as error:
            self._lost = f"an earlier test in this process broke the device's context ({error})"
            raise
        finally:
            self._measuring = False

    def _measure_valid(self, workload: Workload, marker: MarkerOptions, progress: Progress) -> Measurement:
        settings = self.settings
        # Other measurements are compared with an exact one: then no kernel may have waited.
        exact = self.task.for_parent or settings.writes_baseline
        earlier: list[str] = []
        inputs = self.device.inputs_of(workload) if self._notes_inputs else None
        waits_since = None
        while True:
            budget = Budget(
                marker.min_samples or settings.min_samples,
                marker.max_time or settings.max_time,
                settings.precision,
                rounds_share=self.task.rounds_share,
                tolerates_run_delay="none" if settings.busy_processors is None else "probe" if exact else "all",
                turns=None if self.turns_of is None else self.turns_of(workload.label),
            )
            measured = checked(self.device.measure(workload, budget, progress.show), self.device.identity)
            noted = replace(measured, software=loaded_versions())
            noted = noted if inputs is None else noted.with_detail(INPUTS, inputs)
            measurement = validated(noted, self.peak, settings.busy_processors)
            why = measurement.invalid
            if waits_since is not None:
                waited_seconds = time.monotonic() - waits_since
                self._quiet_wait_seconds = max(0.0, self._quiet_wait_seconds - waited_seconds)
            waits = why is not None and why.code in OF_OTHERS and self._quiet_wait_seconds > 0
            if why is None or (len(earlier) >= self.task.retries and not waits):
                return with_earlier_tries(measurement, earlier)
            earlier.append(why.text)
            progress.show(f"invalid, taken again: {why.text}")
            waits_since = None
            if waits:
                if self._quiet_wait_seconds == QUIET_WAIT_SECONDS:  # once per process
                    progress.note(f"waits up to {QUIET_WAIT_SECONDS:.0f} s for a quiet moment: {why.text}")
                progress.show(f"waits for a quiet moment, {self._quiet_wait_seconds:.0f} s left: {why.text}")
                waits_since = time.monotonic()
                time.sleep(NAP_SECONDS)  # other users' processes send no signal when they end


def checked(measured: object, identity: DeviceIdentity) -> Measurement:
    """Return what a device measured, with counts as Python's numbers. Raises UsageError for any other form."""
    said = f"the device {identity.option}: measure returned"
    if not isinstance(measured, Measurement):
        raise UsageError(f"{said} {shown(measured)}, expected a Measurement")
    counts: Any = measured.counts
    is_mapping = isinstance(counts, Mapping) and all(isinstance(name, str) for name in counts)
    # NumPy's numbers have the method, too.
    if not is_mapping or not all(hasattr(count, "__index__") and count >= 0 for count in counts.values()):
        raise UsageError(f"{said} counts={shown(counts)}, expected whole numbers from 0 by their names")
    return replace(measured, counts={name: index(count) for name, count in counts.items()})


# Libraries that launch, compile or compute; by the names of their modules.
_LIBRARIES = ("numpy", "numba", "llvmlite", "cupy", "torch", "triton", "jax", "tinygrad")
LONGEST_VERSION = 60


def loaded_versions() -> dict[str, str]:
    """Return the versions of the operating system's kernel, Python and loaded libraries, by name."""
    found = {platform.system().lower() or "system": platform.release(), "python": platform.python_version()}
    for name in _LIBRARIES:
        if (module := sys.modules.get(name)) is None:
            continue
        version = getattr(module, "__version__", None) or installed_version(name)  # tinygrad has no attribute
        if isinstance(version, str):
            found[name] = version
    return {name: version[:LONGEST_VERSION] for name, version in found.items() if version}


@dataclass(frozen=True, slots=True)
class Inputs:
    """Hold a hash of the integer arrays' content, None without such arrays; or why it is unknown."""

    digest: str | None = None
    unknown: str | None = None

    def of(self, code: MeasuredCode) -> MeasuredCode:
        """Return the code with its inputs; without its launch where they are unknown, so that it equals no other."""
        if self.unknown is None:
            return replace(code, identity=replace(code.identity, inputs=self.digest))
        if code.identity == CodeIdentity():
            return code
        identity = replace(code.identity, launch=None, arguments=None)
        return replace(
            code, identity=identity, unknown=f"the contents of its index arrays are not known ({self.unknown})"
        )


def whole_arrays(given: Iterable[object], workload: Workload) -> list[Any]:
    """Return the integer arrays among the work's arguments and reads, except those that it only writes."""
    among = (array for one in (*given, *workload.reads) for _, array in arrays_in(one, "", passing_over=True))
    found: dict[object, Any] = {}
    for array in among:
        if holds_whole_numbers(array):
            extent = _extent(array)
            found.setdefault(id(array) if extent is None else extent, array)
    reads = [extent for one in workload.reads if (extent := _extent(one)) is not None]
    writes = [extent for one in workload.writes if (extent := _extent(one)) is not None]
    kept = []
    for place, array in found.items():
        if isinstance(place, Extent) and place in writes:
            # The work only writes an array that shares no memory with its reads.
            start, end = span_of(place)
            spans = [span_of(other) for other in reads if other.space == place.space]
            if not any(start < other_end and other_start < end for other_start, other_end in spans):
                continue
        kept.append(array)
    return kept


def _extent(array: Any) -> Extent | None:
    """Return an array's place in memory; None where it is unknown."""
    framework = framework_of(array)
    try:
        return None if framework is None else framework.extent(array, "")
    except UsageError:
        return None
