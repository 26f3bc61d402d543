"""Run the old kernel, kept as machine code or PTX, alternately with the changed one, in new processes."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import count
from statistics import median
from typing import Any, NoReturn

from pytest_bandwidth.devices.base import Device, OldCode, Workload
from pytest_bandwidth.devices.code.cubin import kernel_code
from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import INPUTS_CHANGED, identity_of_plain
from pytest_bandwidth.domain.code.ptx_normal_form import PtxSource, is_same_but_for_target
from pytest_bandwidth.domain.code.stored_kernel import (
    CubinSource,
    LaunchShape,
    cubin_of_text,
    entry_of,
    shape_of,
    target_of,
    text_of_cubin,
    why_not_interchangeable,
)
from pytest_bandwidth.domain.errors import BandwidthError, DeviceLost, KernelError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import metrics_of_row
from pytest_bandwidth.domain.measured.validity import why_no_evidence
from pytest_bandwidth.domain.units import format_seconds
from pytest_bandwidth.domain.verdict import Rule
from pytest_bandwidth.evidence.fresh_processes import JudgedTest
from pytest_bandwidth.evidence.processes.child import Child, StartedAhead
from pytest_bandwidth.evidence.processes.requests import ChildRequest, OldKernel, read_old_kernel
from pytest_bandwidth.judging.causes import recorded_resources
from pytest_bandwidth.judging.evidence import Ask, Evidence, OldCodeComparison
from pytest_bandwidth.judging.judge import ROUNDS_SHARE, Decider, FreshRow, Judged
from pytest_bandwidth.judging.pairs import Looks, floor_of_both
from pytest_bandwidth.registry import hooks

# How many processes may start beyond those of the last look, to replace processes with invalid figures.
SPARE_PROCESSES = 2
_NO_CUBIN = "the driver compiled the old kernel's PTX, since its machine code could not run"


class OldKernels:
    """Run old kernels of a test alternately with new ones, in new processes that measure nothing else.

    old_ptx, old_cubin: return the code that belongs to entries.
    """

    def __init__(self, test: JudgedTest, old_ptx: PtxSource, old_cubin: CubinSource, looks: Looks) -> None:
        self._test, self._old_ptx, self._old_cubin, self._looks = test, old_ptx, old_cubin, looks
        self._seen: defaultdict[str | None, _Seen] = defaultdict(_Seen)

    def gather(self, asking: Mapping[str, Evidence], rule: Decider) -> Mapping[str, Evidence]:
        """Compare new kernels with their old ones, if these are available; record the reason for each that is not."""
        known = dict(asking)
        kept: dict[str, OldKernel] = {}
        trouble: dict[str, str] = {}
        for key, one in asking.items():
            try:
                old = None if one.entry is None else self.old_kernel_of(one.measurement, one.entry)
            except BandwidthError as error:
                trouble[key] = str(error)
                continue
            elsewhere = one.baseline is not None and one.baseline.code_of is not None
            if old is None:
                continue
            if elsewhere and old.shape is None and is_same_but_for_target(old.old, old.new):
                # Another device's baseline has the same code for another architecture.
                known[key] = replace(one, is_same_code=True)
            else:
                kept[key] = old
        trouble |= self._measure(kept, known, rule)
        for key, old in kept.items():
            if key not in trouble:
                refused = self._seen[old.label].refused
                noted = () if refused is None else (f"{_NO_CUBIN}: {refused}",)
                compared, why_not = self._comparison(old.label, ended=True), (*known[key].why_not, *noted)
                known[key] = replace(known[key], compared=compared, why_not=why_not)
        for key, why in trouble.items():
            why_not = (*known[key].why_not, f"the old kernel did not run: {why}")
            known[key] = replace(known[key], why_not=why_not)
        return known

    def _comparison(self, label: str | None, *, ended: bool) -> OldCodeComparison:
        """Return the comparison from the processes so far, for the measurement of that label."""
        seen = self._seen[label]
        drops, new = tuple(one[DROP] for one in seen.results), tuple(row.figures.gbps for row in seen.rows)
        old = tuple(gbps * one[RATIO] for gbps, one in zip(new, seen.results, strict=True))
        floor = max(((one[FLOOR], one[FLOOR_SHARE]) for one in seen.results), default=(0.0, 0.0))
        return OldCodeComparison(Rule.OLD_KERNEL, "gbps", drops, new, old, "the old kernel", ended, floor=floor)

    def with_processes(self, judged: Judged) -> Judged:
        """Return a judged measurement with its processes' figures, placed before those of other processes."""
        seen = self._seen[judged.measurement.label]
        resources = seen.results[-1][RESOURCES] if seen.results else None
        return replace(judged, fresh=(*seen.rows, *judged.fresh), old_resources=resources, old_sectors=seen.sectors)

    def old_kernel_of(self, measurement: Measurement, entry: Entry) -> OldKernel | None:
        """Return the entry's code and launch for a comparison; None if it has no code, or the code is the same.

        Raises BandwidthError if the old code is not available, or not safe to run.
        """
        then = identity_of_plain(entry.code)
        same_launch = then.launch is not None and measurement.code.launch == then.launch
        if then.ptx is None or measurement.ptx is None:
            return None
        same_ptx = measurement.code.ptx == then.ptx and same_launch
        if same_ptx and measurement.code.rebuilt_since(then) is None:
            return None
        if then.inputs != measurement.code.inputs:
            raise BandwidthError(f"{INPUTS_CHANGED}, and the old contents are not known")
        shape = None if same_launch else _shape_of_before(measurement, entry)
        old = self._old_ptx(then.ptx)
        unsafe = why_not_interchangeable(old, measurement.ptx)
        if unsafe is not None:
            raise BandwidthError(unsafe)
        cubin = self._cubin_of(measurement, entry, old, needed=same_ptx)
        if same_ptx and cubin is None:
            return None
        return OldKernel(
            measurement.label,
            old,
            measurement.ptx,
            measurement.seconds or 0.0,
            shape=shape,
            cubin=None if cubin is None else text_of_cubin(cubin),
            needs_cubin=same_ptx,
        )

    def _cubin_of(self, measurement: Measurement, entry: Entry, old: str, *, needed: bool) -> bytes | None:
        """Return the entry's machine code, if it is for this architecture. old: its PTX.

        If it is not available, or is of another kernel: raises BandwidthError where `needed`, else records the reason.
        """
        if measurement.ptx is None or target_of(old) != target_of(measurement.ptx):
            return None
        then = entry.code.get("sass")
        try:
            cubin = self._old_cubin(entry.code)
            if cubin is None:
                return None
            kernel = entry_of(old)
            found = kernel_code(old, cubin, kernel.name).identity.sass if kernel is not None else None
            if found is None or then not in (None, found):
                raise BandwidthError("it is of another kernel than the baseline's entry")
        except BandwidthError as error:
            if needed:
                raise
            self._seen[measurement.label].refused = " ".join(str(error).split())
            return None
        return cubin

    def _measure(self, kept: Mapping[str, OldKernel], known: Mapping[str, Evidence], rule: Decider) -> dict[str, str]:
        """Run processes until each is decided; return, by key, why some cannot be."""
        trouble: dict[str, str] = {}
        before: set[str] = set()
        with StartedAhead(self._test.room, self._test.fresh_seconds) as ahead:
            for number in range(1, self._looks.most + SPARE_PROCESSES + 1):
                asked = {}
                for key, old in kept.items():
                    # The evidence so far, for the rule to decide whether more processes are needed.
                    so_far = replace(known[key], compared=self._comparison(old.label, ended=False))
                    is_last = len(self._seen[old.label].rows) >= self._looks.most
                    if key not in trouble and not is_last and rule(so_far) is Ask.OLD_CODE:
                        asked[key] = old
                if not asked:
                    break
                fewer, before = asked.keys() != before, set(asked)
                self._test.progress.show(f"new process {number} of at most {self._looks.most}, with the old kernel")
                try:
                    failed = self._run(asked.values(), ahead, number, fewer=fewer)
                except BandwidthError as error:
                    trouble.update(dict.fromkeys(asked, " ".join(str(error).split())))
                    break
                trouble.update({key: failed[old.label] for key, old in asked.items() if old.label in failed})
        for key, old in kept.items():
            if len(self._seen[old.label].rows) < self._looks.first:
                trouble.setdefault(key, "too few new processes measured it validly")
        return trouble

    def _run(
        self, asked: Collection[OldKernel], ahead: StartedAhead, number: int, *, fewer: bool
    ) -> dict[str | None, str]:
        """Run one process; return, by label, why old code cannot run. Raises BandwidthError if the process fails.

        number: of the process. All processes of the next look start together, since each label takes part in all.
        fewer: whether waiting processes have requests with more kernels. They are ended: one of those may be faulty.
        """
        numbers = count(number)
        needed = (self._looks.following(number - 1) or number) + 1 - number

        def start() -> Child:
            counts = next(numbers) == 1
            kernels = tuple(replace(old, counts=counts) for old in asked)
            request = self._test.request(MeasureWithOldKernels, rounds_share=ROUNDS_SHARE, old_kernels=kernels)
            return self._test.invocation.start(request)

        def measure(child: Child) -> tuple[list[dict[str, Any]], float]:
            begun = time.monotonic()
            return child.rows(self._test.fresh_seconds), time.monotonic() - begun

        with self._test.alone():
            if fewer:
                ahead.end_waiting()
            rows, seconds = ahead.measured(start, needed, measure)
        by_label = {row["label"]: row for row in rows}
        trouble: dict[str | None, str] = {}
        for old in asked:
            row = by_label.get(old.label)
            if row is None:
                continue
            seen = self._seen[old.label]
            result = row["detail"].get(Rule.OLD_KERNEL, {TROUBLE: "the test measured something else under that label"})
            seen.refused = result.get(REFUSED) or seen.refused
            seen.sectors = result.get(SECTORS) or seen.sectors
            if TROUBLE in result:
                trouble[old.label] = result[TROUBLE]
            elif why_no_evidence(row, self._test.measurer.peak) is None:
                seen.rows.append(FreshRow(metrics_of_row(row, self._test.measurer.peak), seconds))
                seen.results.append(result)
        return trouble


@dataclass(slots=True)
class _Seen:
    """Hold the results of new processes in which a kernel ran alternately with its old code.

    results: each row's data about the old code, by the keys below. refused: why the stored machine code did not run.
    """

    rows: list[FreshRow] = field(default_factory=list)
    results: list[Mapping[str, Any]] = field(default_factory=list)
    sectors: Mapping[str, int] | None = None
    refused: str | None = None


def _shape_of_before(measurement: Measurement, entry: Entry) -> LaunchShape:
    """Return how the entry's code was launched, if the launch differs but has the same arguments.

    Raises BandwidthError if the arguments differ, or the entry does not record them.
    """
    then = identity_of_plain(entry.code)
    if then.arguments is None or then.arguments != measurement.code.arguments:
        raise BandwidthError("its launch had other arguments, or they are not known")
    shape, resources = shape_of(entry.resources), measurement.resources
    if shape is None:
        raise BandwidthError("its grid and block are not known")
    if resources is not None and shape == shape_of(recorded_resources(asdict(resources))):
        raise BandwidthError("the variables set for its launches differ")
    return shape


# Old code that runs longer than these seconds, and longer than this factor times the new code's time, hangs.
HANGS_SECONDS = 10.0
HANGS_FACTOR = 100.0
# Keys in a row's `detail` for the old kernel. DROP: median over the rounds of ln(new ÷ old seconds), without the time
# of an empty launch. RATIO: median of new ÷ old seconds, with that time. FLOOR: that time in seconds. FLOOR_SHARE: its
# share of the shortest run.
DROP, RATIO, FLOOR, FLOOR_SHARE = "drop", "ratio", "floor", "floor_share"
RESOURCES, SECTORS, TROUBLE, REFUSED = "resources", "sectors", "trouble", "refused"

Report = Callable[[Sequence[Mapping[str, Any]]], None]


@dataclass(frozen=True, slots=True)
class MeasureWithOldKernels(ChildRequest):
    """Ask a child to run kernels alternately with their old code, while it measures them."""

    old_kernels: tuple[OldKernel, ...] = ()

    @staticmethod
    def values_of(plain: Mapping[str, Any]) -> dict[str, Any]:
        return {**ChildRequest.values_of(plain), "old_kernels": tuple(map(read_old_kernel, plain["old_kernels"]))}

    def measure(self, device: Device, workload: Workload, measure: Callable[[Workload], Measurement]) -> Measurement:
        """Measure the workload, together with its old code if the request has some."""
        old = next((old for old in self.old_kernels if old.label == workload.label), None)
        if old is None or not device.launches_old_code:
            return measure(workload)
        return measure_with_old_code(device, old, workload, measure, self.hand_over)


def measure_with_old_code(
    device: Device,
    asked: OldKernel,
    workload: Workload,
    measure: Callable[[Workload], Measurement],
    report: Report,
) -> Measurement:
    """Measure a workload while its old code takes turns with it; afterwards its arrays hold the new code's output.

    The result is in `detail`: the drop, or the reason why the workload was measured alone. If the old code faults or
    hangs, `report` gets a row with the reason and the process ends, because it cannot measure any more.
    """
    try:
        with _ended_if_it_hangs(asked, report):
            old, refused = load_old(device, asked, workload)
    except DeviceLost as error:
        _give_up(asked, report, f"it faults: {_first_line(error)}")
    except BandwidthError as error:
        return measure(workload).with_detail(Rule.OLD_KERNEL, {TROUBLE: _first_line(error)})
    try:
        measured = measure(replace(workload, interleaved=old.calls, setup_for_all=True))
        old.restore()
        seen = {**_compared(device, old, measured, asked, workload), REFUSED: refused}
        device.run(replace(workload, interleaved=()))
    except DeviceLost as error:
        _give_up(asked, report, f"one of them faults where old and new alternate: {_first_line(error)}")
    alone = replace(measured, rounds=replace(measured.rounds, interleaved=()))
    return alone.with_detail(Rule.OLD_KERNEL, seen)


def load_old(device: Device, asked: OldKernel, workload: Workload) -> tuple[OldCode, str | None]:
    """Load old code from its machine code, or else from its PTX; return it, and why the machine code was refused.

    Raises as `Device.old_code`.
    """
    refused = None
    if asked.cubin is not None:
        try:
            cubin = cubin_of_text(asked.cubin)
            return device.old_code(workload, asked.old, asked.new, asked.shape, cubin), None
        except KernelError as error:
            if asked.needs_cubin:
                raise
            refused = _first_line(error)
    return device.old_code(workload, asked.old, asked.new, asked.shape), refused


def _compared(
    device: Device, old: OldCode, measured: Measurement, asked: OldKernel, workload: Workload
) -> dict[str, Any]:
    """Return the drop, the old code's resources, and the sectors that old and new code request."""
    rounds = measured.rounds
    sectors: Mapping[str, int] | None = None
    if asked.counts and workload.launch is not None and asked.shape is None:  # else blocks do different work
        if workload.setup is not None:
            workload.setup()
        sectors = hooks().pytest_bandwidth_sectors(
            old=asked.old,
            new=asked.new,
            launch=workload.launch,
            host_args=partial(device.host_args, workload.launch),
        )
    before, *as_before = rounds.interleaved or ((),)
    now = as_before[0] if as_before else rounds.kernel_seconds
    if not before or min(*before, *now) <= 0:
        return {TROUBLE: "no round with both counted", SECTORS: sectors}
    resources = recorded_resources(asdict(old.resources)) if old.resources is not None else {}
    floor, both = floor_of_both(measured.floor_seconds, (*now, *before)), list(zip(now, before, strict=True))
    drop, ratio = median(math.log((n - floor) / (b - floor)) for n, b in both), median(n / b for n, b in both)
    share = floor / min(*now, *before)
    return {DROP: drop, RATIO: ratio, FLOOR: floor, FLOOR_SHARE: share, RESOURCES: resources, SECTORS: sectors}


@contextmanager
def _ended_if_it_hangs(asked: OldKernel, report: Report) -> Iterator[None]:
    longest = max(HANGS_SECONDS, HANGS_FACTOR * asked.seconds)
    watch = threading.Timer(longest, _give_up, (asked, report, f"it did not end in {format_seconds(longest)}"))
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _give_up(asked: OldKernel, report: Report, why: str) -> NoReturn:
    """Report the reason and end this process at once: clean-up would wait for the device, or fail on its context."""
    report([{"label": asked.label, "detail": {Rule.OLD_KERNEL: {TROUBLE: why}}}])
    os._exit(1)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
