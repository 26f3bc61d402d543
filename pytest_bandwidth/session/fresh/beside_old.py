"""Settle suspects whose code changed: their old code, which is at hand as PTX, takes turns with the new."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from itertools import count
from typing import Any

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import INPUTS_CHANGED, identity_of_plain
from pytest_bandwidth.domain.code.launch_shape import LaunchShape, shape_of
from pytest_bandwidth.domain.code.ptx_entry import why_not_interchangeable
from pytest_bandwidth.domain.code.ptx_normal_form import PtxSource, is_same_but_for_target
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.judging.by_code.last_word import LastWords, Suspect
from pytest_bandwidth.domain.judging.by_code.old_kernel import (
    LOOKS,
    OLD_KERNEL,
    BesideOld,
    is_enough,
    judge_by_old,
    why_untold,
)
from pytest_bandwidth.domain.judging.by_code.other_device import CODE_ALONE, unchanged_but_for_target
from pytest_bandwidth.domain.judging.causes import recorded_resources
from pytest_bandwidth.domain.judging.confirmation import FreshRow
from pytest_bandwidth.domain.judging.judge import Judged
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.validity import why_no_evidence
from pytest_bandwidth.domain.verdict import Verdict
from pytest_bandwidth.session.fresh.ahead import Room, StartedAhead
from pytest_bandwidth.session.fresh.child import Child, rows_of
from pytest_bandwidth.session.fresh.child_beside_old import DROP, RESOURCES, SECTORS, TROUBLE, OldKernel
from pytest_bandwidth.session.fresh.confirm import figures_of_row

# So many processes of one test are started at most: those whose figures are invalid tell nothing.
MOST_PROCESSES = LOOKS.most + 2
_NOT_BESIDE = "the old kernel did not run beside it"


class OldKernels:
    """Run old kernels beside new ones, in fresh processes that measure nothing else. It is a `Way` (`last_word`).

    old_ptx: gives the code that entries name. start: starts a process that is to run those old kernels. lock: the
    device's. room: for how many processes to have the device open, before any measures.
    """

    def __init__(
        self,
        old_ptx: PtxSource,
        start: Callable[[Sequence[OldKernel]], Child],
        lock: Callable[[], AbstractContextManager[object]],
        tell: Callable[[str], None],
        peak: Peak | None,
        timeout_seconds: float,
        room: Room,
    ) -> None:
        self._old_ptx, self._start, self._lock, self._tell = old_ptx, start, lock, tell
        self._peak, self._timeout_seconds, self._room = peak, timeout_seconds, room
        self._rows: dict[str | None, list[FreshRow]] = {}
        self._resources: dict[str | None, Mapping[str, int]] = {}
        self._sectors: dict[str | None, Mapping[str, int]] = {}
        self._seen: dict[str | None, list[BesideOld]] = {}

    def __call__(self, suspects: Mapping[str, Suspect]) -> LastWords:
        """Settle suspects whose old code is at hand, as far as it tells; say why not of others whose code changed."""
        why_not: dict[str, str] = {}
        at_hand: dict[str, OldKernel] = {}
        verdicts: dict[str, Verdict] = {}
        for key, suspect in suspects.items():
            try:
                old = self.at_hand(suspect.case.measurement, suspect.entry)
            except BandwidthError as error:
                why_not[key] = f"{_NOT_BESIDE}: {error}"
                continue
            if old is not None and _is_same_elsewhere(old, suspect):
                verdicts[key] = unchanged_but_for_target(suspect.first)
            elif old is not None:
                at_hand[key] = old
        trouble = self._measure(at_hand, suspects)
        for key, old in at_hand.items():
            seen = self._seen.get(old.label, [])
            verdict = None if key in trouble else judge_by_old(suspects[key], seen)
            if verdict is not None:
                verdicts[key] = verdict
            elif key in trouble:
                why_not[key] = f"{_NOT_BESIDE}: {trouble[key]}"
            else:
                why_not[key] = f"beside the old kernel {why_untold(seen, suspects[key].case.tolerance)}"
        return LastWords(verdicts, why_not)

    def with_what_they_saw(self, judged: Judged) -> Judged:
        """Return a judged measurement with what its processes saw, before what further ones did."""
        label = judged.measurement.label
        rows = (*self._rows.get(label, ()), *judged.fresh)
        return replace(
            judged, fresh=rows, old_resources=self._resources.get(label), old_sectors=self._sectors.get(label)
        )

    def at_hand(self, measurement: Measurement, entry: Entry) -> OldKernel | None:
        """Return the entry's code and launch to run beside a measurement; None where it has none, or no other.

        Raises BandwidthError where there was one, and it is not to be had or not safe to run.
        """
        then = identity_of_plain(entry.code)
        same_launch = then.launch is not None and measurement.code.launch == then.launch
        if then.ptx is None or measurement.ptx is None or (measurement.code.ptx == then.ptx and same_launch):
            return None
        if then.inputs != measurement.code.inputs:
            raise BandwidthError(f"{INPUTS_CHANGED}, and its own are not known")
        shape = None if same_launch else _shape_of_before(measurement, entry)
        old = self._old_ptx(then.ptx)
        unsafe = why_not_interchangeable(old, measurement.ptx)
        if unsafe is not None:
            raise BandwidthError(unsafe)
        return OldKernel(measurement.label, old, measurement.ptx, measurement.seconds or 0.0, shape=shape)

    def _measure(self, at_hand: Mapping[str, OldKernel], suspects: Mapping[str, Suspect]) -> dict[str, str]:
        """Run processes until they tell of each; returns why some cannot, by key."""
        trouble: dict[str, str] = {}
        before: set[str] = set()
        with StartedAhead(self._room, self._timeout_seconds) as ahead:
            for number in range(1, MOST_PROCESSES + 1):
                asked = {
                    key: old
                    for key, old in at_hand.items()
                    if key not in trouble and not self._is_enough(old.label, suspects[key].case.tolerance)
                }
                if not asked:
                    break
                fewer, before = asked.keys() != before, set(asked)
                self._tell(f"fresh process {number} of at most {LOOKS.most}, beside the old kernel")
                try:
                    told = self._run(asked.values(), ahead, number, fewer=fewer)
                except BandwidthError as error:
                    trouble.update(dict.fromkeys(asked, " ".join(str(error).split())))
                    break
                trouble.update({key: told[old.label] for key, old in asked.items() if old.label in told})
        for key, old in at_hand.items():
            if len(self._seen.get(old.label, [])) < LOOKS.after[0]:
                trouble.setdefault(key, f"of {MOST_PROCESSES} fresh processes too few measured it validly")
        return trouble

    def _is_enough(self, label: str | None, tolerance: float) -> bool:
        return is_enough([one.drop for one in self._seen.get(label, [])], tolerance)

    def _run(
        self, asked: Collection[OldKernel], ahead: StartedAhead, number: int, *, fewer: bool
    ) -> dict[str | None, str]:
        """Run one process; return why old code cannot run, by label. Raises BandwidthError where nothing came of it.

        number: of the process. Those of the next look start with it, since each label takes part in all of them.
        fewer: whether those that wait were asked for more: what faults would end them as well.
        """
        numbers = count(number)
        needed = next((look for look in LOOKS.after if look >= number), number) + 1 - number

        def start() -> Child:
            counts = next(numbers) == 1
            return self._start([replace(old, counts=counts) for old in asked])

        def measure(child: Child) -> tuple[list[dict[str, Any]], float]:
            begun = time.monotonic()
            return rows_of(child, self._timeout_seconds), time.monotonic() - begun

        with self._lock():
            if fewer:
                ahead.end_waiting()
            rows, seconds = ahead.measured(start, needed, measure)
        by_label = {row["label"]: row for row in rows}
        trouble: dict[str | None, str] = {}
        for old in asked:
            row = by_label.get(old.label)
            if row is None:
                continue
            said = row["detail"].get(OLD_KERNEL, {TROUBLE: "the test measured another thing of that label"})
            if said.get(SECTORS):
                self._sectors[old.label] = said[SECTORS]
            if TROUBLE in said:
                trouble[old.label] = said[TROUBLE]
            elif why_no_evidence(row, self._peak) is None:
                figures = figures_of_row(row, self._peak)
                self._seen.setdefault(old.label, []).append(BesideOld(figures, said[DROP]))
                self._rows.setdefault(old.label, []).append(FreshRow(figures, seconds))
                self._resources[old.label] = said[RESOURCES]
        return trouble


def _is_same_elsewhere(old: OldKernel, suspect: Suspect) -> bool:
    """Return whether it is the code of another device's baseline, compiled for this one's architecture."""
    return suspect.first.code == CODE_ALONE and old.shape is None and is_same_but_for_target(old.old, old.new)


def _shape_of_before(measurement: Measurement, entry: Entry) -> LaunchShape:
    """Return how the entry's code was launched, where only that is another: its arguments have to be today's.

    Raises BandwidthError where they are not, or the entry does not tell.
    """
    then = identity_of_plain(entry.code)
    if then.arguments is None or then.arguments != measurement.code.arguments:
        raise BandwidthError("its launch had other arguments, or they are not known")
    shape, resources = shape_of(entry.resources), measurement.resources
    if shape is None:
        raise BandwidthError("its grid and block are not known")
    if resources is not None and shape == shape_of(recorded_resources(asdict(resources))):
        raise BandwidthError("what was set for its launches is another")
    return shape
