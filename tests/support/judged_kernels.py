"""A kernel whose measurements, baseline and fresh processes are the given figures, for tests of the rule."""

from dataclasses import replace
from functools import partial

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.judging.judge import judge_test
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.session.fresh.confirm import measure_again

KEY = "tests/test_a.py::test_copy"
OTHER = f"{KEY} @ b"
BYTES = 10**9
GPU = DeviceIdentity("cuda", "A card", 2**34, "GPU-1")


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
LIMITS = Limits(MarkerOptions(), 0.05, 3)
LIMITS_10 = replace(LIMITS, tolerance=0.10)


def never():
    raise AssertionError("no fresh process is needed here")


def never_probe(_read, _written):
    raise AssertionError("no probe is needed here")


def again(run):
    """Fresh processes of which `run` stands for one."""
    return partial(measure_again, run=run)


def judge(measurement, known, limits=LIMITS, fresh=never, probe=never_probe):
    return judge_test({KEY: measurement}, known, limits, again(fresh), probe)[KEY].verdict


def fresh_processes(*gbps):
    values = iter(gbps)

    def run():
        value = next(values)
        return {None: Metrics(value, value / 100.0, 100.0)}

    return run
