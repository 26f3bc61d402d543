"""A kernel whose measurements, baseline, old code and new processes are the given figures, for tests of the rule."""

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import Measurement, Rounds
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Rule
from pytest_bandwidth.evidence.fresh_processes import FreshProcesses
from pytest_bandwidth.judging.evidence import Ask, OldCodeComparison, first_evidence
from pytest_bandwidth.judging.judge import FreshRow
from pytest_bandwidth.judging.judge import judge as judge_evidence
from pytest_bandwidth.judging.limits import Limits, MarkerOptions
from pytest_bandwidth.judging.stored import reference_of
from pytest_bandwidth.measuring.progress import Progress

KEY = "tests/test_a.py::test_copy"
OTHER = f"{KEY} @ b"
BYTES = 10**9
GPU = DeviceIdentity("cuda", "A card", 2**34, "GPU-1", timed_on="gpu")
CODE = CodeIdentity(ptx="a" * 32, sass="b" * 32, launch="c" * 32)
EDITED = replace(CODE, ptx="d" * 32, sass="e" * 32)


def measured(gbps, probe_gbps=100.0, **more):
    """A measurement of one sample whose figures are the given ones."""
    rounds = Rounds(
        kernel_seconds=(BYTES / gbps / 1e9,),
        probe_seconds=(BYTES / probe_gbps / 1e9,),
        kernel_first=(True,),
        probe_bytes=BYTES,
    )
    return Measurement(None, Traffic(BYTES // 2, BYTES // 2), GPU, "events", rounds, **more)


def baseline(*gbps, probe_gbps=100.0, **more):
    runs = tuple(Run(gbps=g, probe_gbps=probe_gbps) for g in gbps)
    entry = Entry(KEY, gbps=gbps[0] if gbps else None, runs=runs, **more)
    return Baseline(BaselineDevice("A card"), {KEY: entry}, path="b.yaml")


def for_both(known):
    """The same entry for a second measurement of the test, labelled b."""
    entry = known.entries[KEY]
    return replace(known, entries={KEY: entry, OTHER: replace(entry, key=OTHER)})


FIVE = baseline(90.0, 90.0, 90.0, 90.0, 90.0)
OF_CODE = baseline(90.0, 90.0, 90.0, 90.0, 90.0, code=CODE.known())
LIMITS = Limits(MarkerOptions(), 0.05, 3)
LIMITS_10 = replace(LIMITS, tolerance=0.10)


def evidence(measurement, known, limits=LIMITS, **more):
    """What one run and its baseline know, and whatever else is given."""
    return replace(first_evidence({KEY: measurement}, known, limits)[KEY], **more)


def compared(*drops, rule=Rule.PAIRS, gbps=90.0, **more):
    """New code compared with old code of so many GB/s: by these log drops."""
    new = tuple(gbps * math.exp(-drop) for drop in drops)
    return OldCodeComparison(rule, "gbps", drops, new, (gbps,) * len(drops), "commit 3f2c1ab", **more)


class Processes(FreshProcesses):
    """New processes that see what they are given, figures by label, one process after another; then none can run."""

    def __init__(self, *seen, confirm=LIMITS.confirm):
        self._script = iter(seen)
        super().__init__(asked_test(1), confirm)

    def run(self):
        seen = next(self._script, None)
        if seen is None:
            raise BandwidthError("a new process ended with exit status 4")
        self.rows.append({label: FreshRow(figures, 0.1) for label, figures in seen.items()})
        return seen


def processes(*gbps):
    """New processes that see these GB/s next to a probe of 100."""
    return Processes(*({None: Metrics(value, value / 100.0, 100.0)} for value in gbps), confirm=LIMITS.confirm)


class OldCode:
    """Old code that shows these drops, by key, one at a time; of other keys it says why there is none."""

    def __init__(self, drops=None, why="the old code did not run: its commit is gone", **more):
        self.drops, self.why, self.more = drops or {}, why, more
        self.asked = []
        self.taken = {}

    def gather(self, asking, rule):
        self.asked.append(sorted(asking))
        known = dict(asking)
        for key, one in asking.items():
            if key not in self.drops:
                known[key] = replace(one, why_not=(*one.why_not, self.why))
                continue
            drops = self.drops[key]
            for number in range(1, len(drops) + 1):
                self.taken[key] = number
                known[key] = replace(one, compared=compared(*drops[:number], ended=number == len(drops), **self.more))
                if rule(known[key]) is not Ask.OLD_CODE:
                    break
        return known


def judged(measurements, known, *resolvers, limits=LIMITS):
    """Each measurement, judged as a run does."""
    old_code = [one.gather for one in resolvers if isinstance(one, OldCode)]
    again = [one.gather for one in resolvers if isinstance(one, Processes)]
    return judge_evidence(first_evidence(measurements, known, limits), limits, old_code, again)


def decided(measurement, known, *resolvers, limits=LIMITS):
    """The decision on one measurement."""
    return judged({KEY: measurement}, known, *resolvers, limits=limits)[KEY].decision


def asked_test(room, start=None, alone=nullcontext, seconds=60.0):
    """A judged test, where only how its new processes are started counts.

    room: for how many processes; start: takes a request, gives a process; alone: the device's lock.
    """
    return SimpleNamespace(
        room=room,
        invocation=SimpleNamespace(start=start),
        alone=alone,
        measurer=SimpleNamespace(peak=None),
        progress=Progress(),
        fresh_seconds=seconds,
        file=Path("t.py"),
        request=lambda kind, **fields: kind("cpu", **fields),
    )


# ---- entries and figures by their shares of a probe of 100 GB/s ------------------------------------------------------


def entry(*relatives, **more):
    runs = tuple(Run(gbps=100 * r, probe_gbps=100.0) for r in relatives)
    return Entry("t.py::t", gbps=100.0, runs=runs, **more)


def reference(*relatives, figure="relative"):
    found = reference_of(entry(*relatives), figure, on_host=False)
    assert found is not None
    return found


def at(share):
    return Metrics(gbps=100 * share, relative=share, probe_gbps=100.0)
