"""Which old kernels each fresh process is asked for: all that are not settled, and whose sectors are counted once."""

import itertools
from functools import partial

import pytest
from asked_tests import asked_test

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Rule
from pytest_bandwidth.evidence.old_kernel import DROP, RESOURCES, SECTORS, TROUBLE, OldKernels
from pytest_bandwidth.evidence.processes.child import Room
from pytest_bandwidth.evidence.processes.requests import OldKernel
from pytest_bandwidth.judging.decide import decide
from pytest_bandwidth.judging.evidence import Evidence
from pytest_bandwidth.judging.limits import Limits, MarkerOptions
from pytest_bandwidth.judging.pairs import Looks

FIGURES = {"status": "UNDECIDED", "gbps": 80.0, "relative": 0.8, "probe_gbps": 100.0}
# What a process sees of a label, by the number of the process.
SURE = itertools.repeat({DROP: 0.0, RESOURCES: {}})


def noisy():
    return ({DROP: drop, RESOURCES: {}} for drop in itertools.cycle((0.4, -0.4)))


def faults():
    return itertools.repeat({TROUBLE: "it faults"})


GPU = DeviceIdentity("cuda", "A device", 2**34, "1", timed_on="gpu")
LIMITS = Limits(MarkerOptions(), 0.05, 3)


def changed(label):
    """What is known of a kernel whose code is not the entry's."""
    return Evidence(Measurement(label, Traffic(64, 32), GPU, "events", Rounds()), None, Entry(label), 0.05)


class Process:
    def __init__(self, asked, sees, ended):
        self.asked, self._sees, self._ended = asked, sees, ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ended.append(self)

    def wait_until_ready(self, _):
        pass

    def rows(self, _):
        sectors = {"old": 8, "new": 16}
        rows = []
        for old in self.asked:
            said = dict(next(self._sees[old.label]))
            rows.append({"label": old.label, **FIGURES, "detail": {Rule.OLD_KERNEL: said}})
            if old.counts:
                said[SECTORS] = sectors
        return rows


class Session:
    """Runs the old kernels of labels; asked: what each process that started was asked for."""

    def __init__(self, room, **sees):
        self.asked, self.ended = [], []
        self._sees = {label: iter(seen) for label, seen in sees.items()}
        self.kernels = OldKernels(asked_test(room, self._start), dict.get, dict.get, Looks())
        self.at_hand = {label: OldKernel(label, "old", "new", 0.001) for label in sees}

    def _start(self, request):
        self.asked.append(list(request.old_kernels))
        return Process(request.old_kernels, self._sees, self.ended)

    def run(self):
        known = {label: changed(label) for label in self.at_hand}
        return self.kernels._measure(self.at_hand, known, partial(decide, limits=LIMITS))

    def labels(self):
        return ["".join(old.label for old in asked) for asked in self.asked]


@pytest.mark.parametrize("most", [1, 2, 8])
def test_of_all_labels_the_first_process_alone_counts_sectors(most):
    session = Session(Room(most), a=SURE, b=noisy(), c=noisy(), d=noisy())
    assert session.run() == {}
    first, *others = session.asked
    assert [old.counts for old in first] == [True] * 4
    assert not any(old.counts for asked in others for old in asked)
    assert {label for label, seen in session.kernels._seen.items() if seen.sectors} == {"a", "b", "c", "d"}


@pytest.mark.parametrize("most", [1, 2, 8])
def test_who_is_settled_is_asked_for_no_more(most):
    session = Session(Room(most), a=SURE, b=noisy())
    assert session.run() == {}
    assert {label: len(seen.rows) for label, seen in session.kernels._seen.items()} == {"a": 4, "b": 12}
    assert session.labels() == ["ab"] * 4 + ["b"] * 8
    assert len(session.ended) == len(session.asked)


def test_what_faults_is_asked_for_no_more_by_those_that_waited_either():
    session = Session(Room(8), a=faults(), b=SURE)
    assert session.run() == {"a": "it faults"}
    # Three more started with it, which are ended before they measure.
    assert session.labels() == ["ab"] * 4 + ["b"] * 3
    assert len(session.kernels._seen["b"].rows) == 4
