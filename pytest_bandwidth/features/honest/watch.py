"""Watch a measurement: whether its work is done in each sample, on the current inputs, inside the timed span.

Between samples, untimed, outputs are poisoned or inputs changed, at random, to detect a result kept from another call.
After each sample the result is hashed: it must be the same for the same inputs, and another for other inputs.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Watch, Workload
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError
from pytest_bandwidth.domain.measured.measurement import NOTE, OF_WORK, Finding, Measurement
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.domain.user_code import UserHookFailed, named_failures
from pytest_bandwidth.features.honest.arrays import (
    Region,
    View,
    changed_region,
    is_ordered,
    overlap,
    place_in,
    swap_halves,
    view_of,
)
from pytest_bandwidth.features.honest.reference import compared, copied, expected_arrays, reference_of
from pytest_bandwidth.features.honest.tampering import is_foreign, replaced
from pytest_bandwidth.fixture.watched import Reference, Watched
from pytest_bandwidth.frameworks.arrays import arrays_in
from pytest_bandwidth.options.errors import WorkloadFailed

# One sample in four, at random, has the first inputs and poisoned outputs; the others have changed inputs.
PLAIN_SHARE = 0.25
# If a smaller share of an input's changes affects the result, the work does not read the input each time. Of the three
# kinds of changes, one affects a maximum, a minimum, or the place of either.
LEAST_SHOWN = 0.2
KINDS = ("any", "largest", "smallest")
FEWEST_CHANGES = 6
# With a reference, a change of one element shows whether the work reads it, and a change of the whole input whether all
# of the result is new. A reference may be slow: two changes of each input are compared, and so many in total.
KINDS_COMPARED = ("one", "all", *KINDS)
FEWEST_COMPARED = 4
# Then so many runs detect results kept from the previous call: with changed inputs, with the first ones, then random.
# A run with changed inputs cannot detect a result kept from a plain run: it follows a plain run only once in four.
MIXED_TRIALS, CHANGED_AFTER_PLAIN = 12, 0.25
# Several runs with changed inputs, then one with the first inputs, detect work that is left out in at least every
# fourth call. These runs have no time limit, so a busy machine does not end them. Slow work is run twice.
WHOLE_PERIOD, OF_SLOW_WORK = 4, 2
# After the first samples, looking at samples takes at most this share of the measurement's time.
LOOKING_SHARE, ALWAYS_LOOKED_AT = 0.08, 6
# So many numbers are not equal by chance in two runs with different inputs.
LARGE_RESULT = 64
# A result that changes within this time after a sample comes from a thread or stream that the work did not wait for.
LATER_SECONDS, FIRST_SECONDS = 0.3, 0.01
# The clock is checked at this sample, and at the end.
LOOK_AT_CLOCK = 9
DISABLED = "disabled"
NO_ARRAY = "found no array of numbers that the work writes or returns"
# Trials after the samples take so long, or this share of the rounds' time, with at least one of each kind.
TRIAL_SECONDS, TRIAL_SHARE = 0.02, 0.02


@dataclass(slots=True)
class _Input:
    """Hold an input and the hash of its first contents."""

    view: View
    is_declared: bool = True
    digest: object = None


@dataclass(slots=True)
class _Place:
    """Hold the state of one workload: the first result, those of other inputs, and the finding."""

    samples: int = 0
    first: object = None
    expected: list[Any] = field(default_factory=list)
    # The reference's results for the first inputs.
    wanted: list[Any] = field(default_factory=list)
    others: set[object] = field(default_factory=set)
    last: object = None
    last_place: int | None = None
    value: object = None
    returned: list[View] = field(default_factory=list)
    # By input name: in how many samples it was changed, and how many of these changes affected the result.
    changes: Counter[str] = field(default_factory=Counter)
    shown: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    finding: Finding | None = None

    def refute(self, what: str, text: str) -> None:
        """Keep the first finding."""
        self.finding = self.finding or Finding(f"{OF_WORK}{what}", text)


class WorkWatch(Watch):
    """Watch one measurement. honest: False = only compare with the reference.

    Raises UsageError where no array is accessible.
    """

    def __init__(self, watched: Watched, *, honest: bool) -> None:
        self._watched, self._device = watched, watched.device
        self._reference = reference_of(watched.check)
        self._has_function = callable(getattr(self._reference, "expected", None))
        self._places = [_Place() for _ in watched.workloads]
        self._generator = np.random.default_rng()  # from the system's entropy: the work cannot predict it
        work = watched.workloads[0]
        # A launch's graph works on copies of its arrays; a sample of blocks computes only a part of the result.
        in_graph = work.graph and work.launch is not None and self._device.identity.on_gpu
        in_part = work.blocks is not None and self._device.identity.counts_only
        self._honest, self._sees_samples = honest and not in_part, not in_graph
        # The reason if the work cannot be checked, else None.
        self._why_not = "a sample of blocks computes only a part of the result" if in_part else None
        self._written = [one for one in work.writes if not any(overlap(one, other) for other in watched.returned)]
        reads, writes = self._views("reads", work.reads), self._views("writes", self._written)
        self._in_place = [one for one in writes if any(overlap(one.own, other.own) for other in reads)]
        self._outputs = [one for one in writes if one not in self._in_place]
        apart = [one for one in reads if not any(overlap(one.own, other.own) for other in writes)]
        self._inputs = [_Input(one) for one in apart]
        declared = [*reads, *writes]
        given = [*enumerate(watched.args, 1), *watched.keywords.items()]
        others = (
            (f"argument {name}{path}", one)
            for name, value in given
            for path, one in arrays_in(value, "", passing_over=True)
        )
        known = [view for name, one in others if (view := view_of(self._device, name, one)) is not None]
        # The first run shows which of these are written.
        self._undeclared = [one for one in known if not any(overlap(one.own, other.own) for other in declared)]
        self._held: list[tuple[View, Any]] = []
        self._region: Region | None = None
        # The reference's results for this sample's inputs; None where the result is not compared.
        self._wanted: list[Any] | None = None
        self._changed: _Input | None = None
        # The number of samples, the number looked at, and the seconds for that.
        self._taken, self._looked_at, self._looking_seconds, self._started = 0, 0, 0.0, time.monotonic()
        # Whether the work raised for changed inputs: then inputs are not changed any more.
        self._raises = False
        self._is_plain = self._is_watched = self._has_begun = False
        if self._device.identity.counts_only and self._why_not is None:  # there are no samples
            if honest and work.setup is not None:
                self._begin()
            if work.setup is None:
                self._want(self._places[0])
        if self._honest and work.setup is None:
            self._begin()  # a device may run the work before the first sample

    def _views(self, side: str, arrays: Iterable[Any]) -> list[View]:
        named = ((f"{side}[{place}]", array) for place, array in enumerate(arrays))
        return [view for name, array in named if (view := view_of(self._device, name, array)) is not None]

    # --- between samples

    def before(self, place: int) -> None:
        """Before a sample, poison outputs or change an input, and restore arrays that the work changes in place."""
        self._is_watched = place < len(self._places) and self._sees_samples
        if not self._is_watched:
            return
        # A share of the time limits how many samples are looked at. They are random, so that no work can predict them.
        now, self._taken = time.monotonic(), self._taken + 1
        seconds_each = (now - self._started) / self._taken
        self._is_watched = (
            self._looked_at < ALWAYS_LOOKED_AT
            or self._generator.random() * self._looking_seconds <= LOOKING_SHARE * seconds_each * self._looked_at
        )
        if self._is_watched:
            self._before(self._places[place])
            self._looked_at += 1
            self._looking_seconds += time.monotonic() - now

    def _before(self, state: _Place, *, plain: bool | None = None) -> None:
        state.samples += 1
        self._is_plain, self._changed, self._wanted = True, None, state.wanted or None
        if state.finding is not None:
            return
        if self._honest:
            self._prepare(state, plain)
        if self._is_watched and (state.first is None or self._changed is not None):
            self._want(state)

    def _prepare(self, state: _Place, plain: bool | None) -> None:
        if not self._has_begun:
            self._begin()
        work = self._watched.workloads[0]
        if work.setup is None and self._held:
            # Restoring takes time, so only some samples of in-place work are looked at.
            if state.first is not None and plain is None and self._generator.random() > PLAIN_SHARE:
                self._is_watched = False
                return
            for view, contents in self._held:
                if view.is_writable:
                    view.array[...] = contents
        if state.first is None:
            for view in self._outputs:
                view.fill()
            return
        if work.setup is not None and any(one.view.digest() != one.digest for one in self._inputs):
            self._is_watched = False  # set-up made other inputs
            return
        drawn = state.samples == 2 or bool(self._generator.random() < PLAIN_SHARE)
        self._is_plain = (drawn if plain is None else plain) or not self._change(state)
        if self._is_plain:
            for view in (*self._outputs, *state.returned):
                if view.is_writable:
                    view.poison()

    def _want(self, state: _Place) -> None:
        """Compute the reference's results for the current inputs, before the work can change its arguments."""
        self._wanted = None
        if self._reference is None:
            return
        if self._changed is not None:
            changes = state.changes[self._changed.view.name]
            if not self._has_function or (changes >= 2 and state.compared >= FEWEST_COMPARED):
                return
            state.compared += 1
        watched = self._watched
        try:
            with named_failures("check="):
                self._wanted = expected_arrays(self._reference, watched.args, watched.keywords, self._written)
        except UserHookFailed:
            if not self.recovers():
                raise
            self._is_plain, self._changed, self._wanted = True, None, state.wanted
        if self._changed is None:
            state.wanted = self._wanted or []

    def _begin(self) -> None:
        """Record the contents of arrays before the first run."""
        self._has_begun = True
        for one in self._inputs:
            one.digest = one.view.digest()
        if self._watched.workloads[0].setup is None:
            self._held = [(view, view.copy()) for view in self._in_place]
        self._held += [(view, view.copy()) for view in self._undeclared]

    def _sort_undeclared(self) -> None:
        """Sort undeclared arrays after the first run: arrays that it wrote are in-place ones, the others are inputs."""
        written: list[tuple[View, Any]] = []
        for view, contents in self._held:
            if view in self._in_place:
                written.append((view, contents))
            elif bool((View("", contents, contents, self._device).bits() != view.bits()).any()):
                written.append((view, contents))
                self._in_place.append(view)
            else:
                self._inputs.append(_Input(view, is_declared=False, digest=view.digest()))
        self._held, self._undeclared = written, []

    def _changeable(self) -> list[_Input]:
        """Return the floating-point inputs, else the integer ones that are not ordered; [] after the work raised."""
        if self._raises:
            return []
        given = [*self._inputs, *(_Input(view) for view, _ in self._held if view in self._in_place)]
        changeable = [one for one in given if one.view.is_writable]
        floating = [one for one in changeable if one.view.is_floating]
        return floating or [one for one in changeable if not is_ordered(one.view)]

    def _change(self, state: _Place) -> bool:
        """Change a region of the input that was changed least often; return whether that was possible."""
        among = self._changeable()
        if not among:
            return False
        one = min(among, key=lambda one: state.changes[one.view.name])
        kinds = KINDS_COMPARED if self._has_function else KINDS
        kind = kinds[state.changes[one.view.name] % len(kinds)]
        self._region = changed_region(one.view, self._generator, kind)
        self._changed = None if self._region is None else one
        return self._region is not None

    def after(self, place: int, value: object) -> None:
        """Check the results of a sample, and restore a changed input."""
        if not self._is_watched:
            return
        state, now = self._places[place], time.monotonic()
        try:
            self._after(state, value)
        finally:
            if self._region is not None:
                self._region.restore()
                self._region = None
            self._looking_seconds += time.monotonic() - now

    def _after(self, state: _Place, value: object) -> None:
        if state.finding is not None or self._why_not is not None:
            return
        state.value, state.returned = value, self._returned(state, value)
        if state.first is None:
            self._first(state)
        elif self._honest:
            found = self._digest(state.returned)
            if self._is_plain and found != state.first:
                self._judge_other(state)
            elif not self._is_plain:
                self._judge_changed(state, found)
            state.last = found
        if self._honest and state.samples == LOOK_AT_CLOCK:
            self._look_at_clock(state)

    def recovers(self) -> bool:
        """Restore a changed input and stop changing inputs; return whether one was changed."""
        if self._region is None:
            return False
        self._region.restore()
        self._region, self._raises = None, True
        return True

    def _results(self, returned: Sequence[View]) -> list[View]:
        return [*self._outputs, *self._in_place, *returned]

    def _digest(self, returned: Sequence[View]) -> object:
        return tuple(view.digest() for view in self._results(returned))

    def _inverted_digest(self, state: _Place) -> object:
        """Return the digest of the results as before they were poisoned; None if an array is not writable."""
        views = self._results(state.returned)
        if not all(view.is_writable for view in views):
            return None
        for view in views:
            view.poison()
        inverted = self._digest(state.returned)
        for view in views:
            view.poison()
        return inverted

    def _look_at_clock(self, state: _Place) -> None:
        if (name := replaced(self._device)) is not None:
            state.refute("tampered", f"{name} was replaced while the test ran: no figure is credible")

    def _returned(self, state: _Place, value: object) -> list[View]:
        """Return views of the arrays that the work returned, without those that it writes or got as inputs."""
        found = [one for _, one in arrays_in(value, "", passing_over=True)]
        is_result = not (self._outputs or self._in_place)  # else it may be a status
        if not found and is_result and isinstance(value, (np.generic, int, float, complex)):
            found = [np.array(value)]
        makes = not found and hasattr(type(value), "__array__") and not isinstance(value, np.generic)
        if (lazy := value if makes else next(filter(is_foreign, found), None)) is not None:
            kind = type(lazy).__name__
            text = f"it returns a {kind}, which may compute only when it is read: expected an array itself"
            state.refute("deferred-work", text)
        views = []
        for place, one in enumerate(found):
            view = view_of(self._device, f"result[{place}]", one)
            if view is None or any(overlap(one, other.own) for other in (*self._outputs, *self._in_place)):
                continue
            given = next((other.view for other in self._inputs if overlap(other.view.own, one)), None)
            if given is None:
                views.append(view)
            elif self._honest:
                text = f"{view.name} lies in the memory of {given.name}, which is not declared as written"
                state.refute("aliased-result", text)
        return views

    def _first(self, state: _Place) -> None:
        """Keep the first result."""
        if self._undeclared:
            self._sort_undeclared()
        results = self._results(state.returned)
        if not self._honest or state.finding is not None:
            state.first = ()
        elif results:
            state.first = self._digest(state.returned)
            if self._comes_later(state, FIRST_SECONDS):
                return
            state.expected = [view.copy() for view in results]
            self._look_at_inputs(state)
        elif self._watched.marker.honest or self._reference is not None:
            asked = "honest=True" if self._reference is None else "check"
            raise UsageError(f"{asked}: {NO_ARRAY}, expected some in writes=, among its arguments, or returned")
        else:  # by the option, which applies to all tests
            self._why_not = NO_ARRAY
        self._compare(state)

    def _look_at_inputs(self, state: _Place) -> bool:
        """Return whether all inputs are unchanged, or a set-up may change them."""
        if self._watched.workloads[0].setup is not None:
            return True
        modified = next((one.view for one in self._inputs if one.view.digest() != one.digest), None)
        if modified is not None:
            self._refute_modified(state, modified)
        return modified is None

    def _refute_modified(self, state: _Place, view: View) -> None:
        state.refute("input-modified", f"{view.name} was changed by the work, which does not declare it as written")

    # --- judging the results of a sample

    def _judge_other(self, state: _Place) -> None:
        """Find why a result differs from the first one for the same inputs."""
        if not self._look_at_inputs(state):
            return
        if self._comes_later(state, LATER_SECONDS):
            return
        if self._reference is not None and self._difference(state) is None:
            return  # sums in another order
        if self._digest(state.returned) in state.others:
            state.refute("stale-result", "the result is that of an earlier call, which had other inputs")
        elif self._inverted_digest(state) in state.others:
            text = "the result is the array of an earlier call, which had other inputs: nothing wrote it in this one"
            state.refute("stale-result", text)
        else:
            for view, contents in zip(self._results(state.returned), state.expected, strict=False):
                self._judge_array(state, view, contents)
            self._compare(state)

    def _comes_later(self, state: _Place, seconds: float) -> bool:
        """Return whether the result changes by itself after the call."""
        until, found = time.monotonic() + seconds, self._digest(state.returned)
        while time.monotonic() < until:
            time.sleep(0.01)  # an unknown thread sends no signal after it has written
            if self._digest(state.returned) != found:
                text = "the result was not complete at the end of the call, but later: wait for threads and streams"
                state.refute("deferred-work", text)
                return True
        return False

    def _judge_array(self, state: _Place, view: View, contents: Any) -> None:
        """Report unwritten elements, else different results for the same inputs. contents: of the first result."""
        if view.array.shape != contents.shape:
            text = f"{view.name} has the shape {view.array.shape}, and had {contents.shape} in the first run"
            return state.refute("nondeterministic", text)
        before, now = View("", contents, contents, self._device).bits(), view.bits()
        places = view.xp.flatnonzero(now != before)
        if not places.size:
            return None
        each = max(1, now.size // view.array.size)
        poisoned = before ^ 1 if view.array.dtype.kind == "b" else ~before
        left = view.xp.flatnonzero(now == poisoned)
        # One wrong byte in 255 equals the poison by chance.
        if view not in self._in_place and left.size * (64 if view.array.dtype.itemsize > 2 else 2) > places.size:
            return self._refute_unwritten(state, view, left, each)
        if self._reference is not None:
            return None
        count, first = max(1, int(places.size) // each), place_in(view.array, int(places[0]) // each)
        text = f"the same inputs gave another result in sample {state.samples}: {count:,} of {view.array.size:,} "
        text += f"elements of {view.name} differ, first {first}"
        meant = "if that is right, give check= a Reference with rtol= or atol="
        return state.refute("nondeterministic", f"{text}; {meant}")

    def _refute_unwritten(self, state: _Place, view: View, left: Any, each: int) -> None:
        count, first = max(1, int(left.size) // each), place_in(view.array, int(left[0]) // each)
        if count == view.array.size and view in state.returned:
            text = f"{view.name} is the array of an earlier call, and nothing wrote it in this one"
            return state.refute("stale-result", text)
        text = f"{count:,} of {view.array.size:,} elements of {view.name} were not written, first {first}"
        return state.refute("unwritten", text)

    def _judge_changed(self, state: _Place, found: object) -> None:
        """Record whether a changed input affects the result; compare some of the results with the reference."""
        shows = found != state.first
        if self._changed is not None:  # else set-up made other inputs
            name = self._changed.view.name
            state.changes[name] += 1
            state.shown[name] += shows
            state.others.add(found)
            is_large = sum(view.array.size for view in self._results(state.returned)) >= LARGE_RESULT
            # With few elements, the same element may get the same value in two changes, even of two inputs.
            place, before = getattr(self._region, "start", None), state.last_place
            state.last_place = place
            if shows and is_large and found == state.last and place != before:
                state.refute("stale-result", "the result is that of the call before, which had other inputs")
        self._compare(state, "wrong-result" if shows else "stale-result")

    def _compare(self, state: _Place, what: str = "wrong-result") -> None:
        """Report a result that differs from the reference's."""
        if state.finding is not None or (wrong := self._difference(state)) is None:
            return
        if self._honest and self._comes_later(state, LATER_SECONDS):
            return
        if self._changed is not None:
            wrong += f", where some values of {self._changed.view.name} were exchanged"
        for view in self._outputs if state.samples == 1 and self._honest else ():
            if (left := view.filled()).size:
                self._refute_unwritten(state, view, left, 1)
        state.refute(what, wrong)

    def _difference(self, state: _Place) -> str | None:
        """Return how the result differs from the reference's; None where they agree or are not compared."""
        if self._reference is None:
            return None
        if self._wanted is None and self._changed is None:
            self._want(state)  # there was no sample to do so
        if self._wanted is None:
            return None
        results = state.returned or self._views("writes", self._written)
        floating = (one.view.array.dtype.itemsize for one in self._inputs if one.view.is_floating)
        chosen = max(floating, default=0) if state.returned else 0
        return compared(self._reference, results, self._wanted, self._device, chosen)

    # --- after the samples

    def finished(self, place: int, measurement: Measurement) -> Measurement:
        """Return the measurement with the finding, after further untimed runs that check what samples cannot."""
        if measurement.method == DISABLED:
            return measurement
        if self._why_not is not None:
            finding = Finding(f"{OF_WORK}unchecked", f"the work is not checked: {self._why_not}", NOTE)
            return measurement.with_finding(finding)
        state, workload = self._places[place], self._watched.workloads[place]
        if state.first is None:  # no sample was looked at: check the result of the run
            self._is_watched = self._is_plain = True
            if self._device.identity.counts_only or not self._watched.is_sampled:
                self._after(state, measurement.value)
            else:
                self._trial(place, workload)
        if state.finding is None and self._honest:
            seconds = max(TRIAL_SECONDS, TRIAL_SHARE * measurement.rounds.wall_seconds)
            is_slow = workload.setup is not None or WHOLE_PERIOD * (measurement.seconds or 0.0) > seconds
            self._try(place, state, workload, seconds, OF_SLOW_WORK if is_slow else WHOLE_PERIOD)
        if state.finding is None and not self._device.identity.counts_only:
            called = self._calls_reference(place, workload)  # the last run has the test's own inputs
            if not self._honest:
                self._compare(state)
            if called and state.finding is None:
                state.refute("reference-called", "the work calls its own reference")
            measurement = replace(measurement, value=state.value)
        return measurement if state.finding is None else measurement.refuted(state.finding)

    def _try(self, place: int, state: _Place, workload: Workload, seconds: float, fewest_mixed: int) -> None:
        """Change each input often enough, and report inputs whose changes do not affect the result.

        seconds: on devices that time, trials end after so long, once there is one of each kind and `fewest_mixed`.
        """
        counts_only, until = self._device.identity.counts_only, time.monotonic() + seconds
        fewest = len(KINDS_COMPARED) if self._has_function else len(KINDS) if counts_only else FEWEST_CHANGES
        among = self._changeable()
        if counts_only:
            self._trial(place, workload, plain=True)
        for _ in range(fewest * len(among)):
            if state.finding is not None or all(state.changes[one.view.name] >= fewest for one in among):
                break
            self._trial(place, workload, plain=False)
            each_kind = all(state.changes[one.view.name] >= len(KINDS) for one in among)
            # If some of the few changes did not show, they decide nothing: the time limit is for changes that all show.
            all_show = self._has_function or state.shown == state.changes
            if self._changed is None or (time.monotonic() > until and each_kind and all_show and not counts_only):
                break
        for one in () if self._has_function else among:  # a reference shows more exactly what is wrong
            changes, shown = state.changes[one.view.name], state.shown[one.view.name]
            if one.is_declared and changes >= len(KINDS) and shown < LEAST_SHOWN * changes:
                text = (
                    f"{one.view.name} changed before {counted(changes, 'run')}, and the result changed in {shown} "
                    f"of them"
                )
                text += ": it is kept from an earlier call, or does not depend on it"
                state.refute("stale-result", f"{text}; if that is right, give check= a reference")
        if not counts_only:
            plain = True
            for turn in range(MIXED_TRIALS):
                if state.finding is None and (turn < fewest_mixed or time.monotonic() < until):
                    plain_share = 1 - CHANGED_AFTER_PLAIN if plain else 0.5
                    is_drawn = turn >= fewest_mixed and bool(self._generator.random() < plain_share)
                    plain = is_drawn or turn == fewest_mixed - 1
                    self._trial(place, workload, plain=plain)
            self._move(state, workload)
        self._look_at_inputs(state)
        self._look_at_clock(state)

    def _trial(self, place: int, workload: Workload, *, plain: bool = True) -> None:
        """Run the work once like a sample. plain: with the first inputs and poisoned outputs."""

        def prepare() -> None:
            if workload.setup is not None:
                workload.setup()
            self._is_watched = True
            self._before(self._places[place], plain=plain)

        prepared = replace(workload, setup=prepare)
        try:
            value = self._watched.run(prepared)
        except WorkloadFailed:
            if not self.recovers():
                raise
            value = self._watched.run(prepared)
        self.after(place, value)

    def _calls_reference(self, place: int, workload: Workload) -> bool:
        """Run the work once more, and return whether it calls the reference's function."""
        profiled = sys.getprofile() is not None  # by a profiler, whose function cannot be restored
        function = getattr(self._reference, "expected", None)
        if isinstance(function, FunctionType):  # not NumPy's functions: any work may call what they wrap
            function = getattr(function, "__wrapped__", function)
        code = None if profiled else getattr(function, "__code__", None)
        called = False

        def look(frame: Any, event: str, _: object) -> None:
            nonlocal called
            # Code objects are also equal if the work has loaded the file again.
            called |= event == "call" and frame.f_code == code and frame.f_code.co_filename == code.co_filename

        def call() -> object:
            sys.setprofile(look)
            try:
                return workload.call()
            finally:
                sys.setprofile(None)

        self._trial(place, workload if code is None else replace(workload, call=call))
        return called

    def _move(self, state: _Place, workload: Workload) -> None:
        """Check that the work gives the same result for an input's new values and for a copy of them elsewhere."""
        watched, run_with = self._watched, self._watched.run_with
        floating = (one for one in self._inputs if one.view.is_floating and one.view.is_writable)
        # Not with inputs that share memory: their copies would not.
        alone = (
            one
            for one in floating
            if not any(other is not one and overlap(one.view.own, other.view.own) for other in self._inputs)
        )
        one = next(alone, None)
        if one is None or self._raises or self._held or state.finding is not None or workload.setup is not None:
            return
        if is_ordered(one.view):  # it may have to stay ordered
            return
        try:
            with _halves_swapped(one.view):
                before = one.view.digest()
                digest, memo = self._digest(self._returned(_Place(), watched.run(workload))), dict[int, Any]()
                if one.view.digest() != before:
                    self._refute_modified(state, one.view)
                args = [copied(given, memo, id(one.view.own)) for given in watched.args]
                keywords = {name: copied(given, memo, id(one.view.own)) for name, given in watched.keywords.items()}
            if run_with is None or not memo:
                return  # the declared array is not among the arguments
            for view in self._outputs:
                if view.is_writable:
                    view.poison()
            there = self._returned(_Place(), run_with(args, keywords))
            if self._digest(there) == digest:
                return
            # The difference may be rounding.
            results = [replace(view, array=view.copy()) for view in self._results(there)]
            with _halves_swapped(one.view):
                here = self._returned(_Place(), watched.run(workload))
                expected = [view.array for view in self._results(here)]
                # With tolerances, since sums may be added up in another order.
                limits = self._reference or Reference(None)
                close = Reference(
                    None, rtol=max(1e-3, 2 * (limits.rtol or 0.0)), atol=max(1e-5, 2 * (limits.atol or 0.0))
                )
                if len(results) != len(expected) or compared(close, results, expected, self._device) is None:
                    return
            text = "with arrays at other addresses the result differs: the work uses those of an earlier call"
            state.refute("moved-inputs", text)
        except (WorkloadFailed, MemoryError, OutOfMemory):
            return  # the work does not accept these values, or a copy does not fit


@contextmanager
def _halves_swapped(view: View) -> Iterator[None]:
    """Swap the halves of an input inside the `with` block."""
    parts = view.parts()
    swap_halves(parts)
    try:
        yield
    finally:
        swap_halves(parts)
