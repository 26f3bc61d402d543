"""Two processes sample in turn: who goes when, what is made of their common rounds, and which memory both use."""

import json
import math
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

import pytest
from two_processes import memory_of

from pytest_bandwidth.devices import host
from pytest_bandwidth.devices.shared_arrays import HUGE_PAGE_BYTES
from pytest_bandwidth.evidence.commit_pairs import alternate
from pytest_bandwidth.evidence.commit_pairs.alternate import (
    FINEST_PRECISION,
    GO,
    STOP,
    Alternate,
    Conductor,
    drops,
    places_for,
    precision_for,
    processor_of,
    take_turns,
    turns_of,
)
from pytest_bandwidth.evidence.processes.child import Child
from pytest_bandwidth.evidence.processes.requests import ParentLine

# A process that measures what it is told to: labels, each with the seconds of its rounds; it has enough after the last.
SAMPLES = """
import json, os, sys
from pytest_bandwidth.devices.host import remembered
from pytest_bandwidth.evidence.processes.requests import ParentLine
from pytest_bandwidth.evidence.commit_pairs.alternate import turns_of

request = json.load(open(os.environ["PYTEST_BANDWIDTH_REQUEST"]))["child"]
line = ParentLine(request["line"])
go = line.wait_for_turn()
turns = turns_of(line, go)
took = {}
for label, rounds in json.loads(sys.argv[1]):
    number, stops = 0, False
    with turns(label).begin(lambda: None, ()) as turn:
        while not stops:
            seconds = rounds[min(number, len(rounds) - 1)]
            number += 1
            stops = turn.taken(seconds, stops=number >= len(rounds))
    took[label] = number
    if "dies" in sys.argv:
        os._exit(3)
with open(request["report"], "w") as report:
    json.dump([{"took": took, "beside": sorted(remembered()), "pid": os.getpid()}], report)
"""
REQUEST = Alternate("cpu")


class Side:
    """One of two processes: says what `lines` give for each answer, until they end; keeps what both are told."""

    def __init__(self, number, lines, log):
        self.number, self.lines, self.log, self.answer, self.places = number, lines, log, None, []

    def send(self, answer):
        self.answer = answer
        if answer.startswith("{"):
            order = json.loads(answer)
            self.places.append(order["places"])
            answer = order["work"]
        self.log.append((self.number, answer))

    def hear(self):
        try:
            return self.lines.send(self.answer)
        except StopIteration:
            return None


def measures(label, *seconds, told=None, done=()):
    """Sample until told to stop: it has enough after the last. told: its arrays; done: what it did by each order."""
    answer = yield told or {"label": label}
    for numbers in done:
        answer = yield {"label": label, "done": numbers}
    for number in count(1):
        if answer == STOP:
            return
        took = seconds[min(number, len(seconds)) - 1]
        answer = yield {"label": label, "seconds": took, "stops": number >= len(seconds)}


def ends(said):
    """Say this, and die."""
    yield said


def in_order(*parts):
    """Say what each says, once the one before has ended."""
    for part in parts:
        yield from part


def conducted(one, two, memory=None, precision=FINEST_PRECISION):
    """Who was told what, in order, and the conductor in the end."""
    log = []
    conductor = Conductor((Side(0, one, log), Side(1, two, log)), memory, precision)
    conductor.conduct()
    return log, conductor


def test_both_are_waited_for_and_go_in_turn_until_both_have_enough():
    log, conductor = conducted(measures("a", 2.0, 3.0, 4.0), measures("a", 1.0, 1.5))
    goes = [0, 1, 1, 0, 0, 1]  # in the second round the other one begins
    assert log == [*((side, GO) for side in goes), (0, STOP), (1, STOP)]
    assert conductor.rounds == {"a": [(2.0, 1.0), (3.0, 1.5), (4.0, 1.5)]}
    _, conductor = conducted(measures("a", None), measures("a", 1.0))
    assert conductor.rounds == {}


@pytest.mark.parametrize(
    ("scatter", "tolerance", "rounds"), [(0.0, 0.0, 8), (0.0, 0.5, 8), (0.02, 0.5, 14), (0.02, 0.03, 20)]
)
def test_a_pair_ends_once_its_ratio_is_as_precise_as_the_tolerance_asks(scatter, tolerance, rounds):
    # The machine's pace changes by more than that from round to round, for both.
    pace = [1.0 + number % 3 for number in range(20)]
    scattered = [one * (1 + scatter * (-1) ** number) for number, one in enumerate(pace)]
    _, conductor = conducted(measures("a", *pace), measures("a", *scattered), precision=precision_for(tolerance))
    assert len(conductor.rounds["a"]) == rounds


def taken(folder, text, one=(), two=(), *, timeout=100.0, memory=None):
    """Run a program as two processes in turn, each with arguments of its own; return what came of it."""
    program = folder / "program.py"
    program.write_text(text)
    request = replace(REQUEST, shared_memory=memory)
    commands = [[sys.executable, str(program), *given] for given in (one, two)]
    with Child(commands[0], folder, request) as first, Child(commands[1], folder, request) as second:
        return take_turns((first, second), processor_of(0), timeout, memory)


@pytest.mark.parametrize("left", [0, 1])
def test_who_is_left_goes_on_alone(left):
    both = [measures("a", 1.0, 1.0), ends({"label": "a"})]
    log, conductor = conducted(*(reversed(both) if left else both))
    assert log == [(0, GO), (1, GO), (left, GO), (left, STOP)]
    assert conductor.rounds == {}


def test_processes_meet_in_every_round(tmp_path):
    """What the other one does not measure goes alone, and so does who is left."""
    both = ['[["a", [1, 2]], ["c", [1, 1]], ["b", [4]]]'], ['[["a", [2, 4, 8]], ["b", [2]]]']
    found = taken(tmp_path, SAMPLES, *both)
    assert not found.shared, "they have no memory in common"
    assert found.rounds == {"a": [(1, 2), (2, 4), (2, 8)], "b": [(4, 2)]}
    assert drops(found.rounds) == {"a": pytest.approx(-math.log(2))}, "the median of enough rounds"
    told = [result.rows[0] for result in found.ended]
    assert [row["took"] for row in told] == [{"a": 3, "c": 2, "b": 1}, {"a": 3, "b": 1}]
    assert [row["beside"] for row in told] == [[told[1]["pid"]], [told[0]["pid"]]]
    assert {row["pid"] for row in told} <= host.remembered()


def arrays_of(*arrays, label="a", all_told=True):
    return {"label": label, "arrays": arrays, "all": all_told}


ARRAY = [100_000, 0, 102_400]
memory_of_arrays = pytest.fixture(memory_of(0))


@pytest.fixture
def memory(tmp_path):
    with (tmp_path / "memory").open("w+b") as file:
        yield file.fileno()


def told_both(*answers):
    return [(side, answer) for answer in answers for side in (0, 1)]


@pytest.mark.parametrize("all_told", [True, False])
def test_before_the_first_round_both_are_told_of_their_arrays(memory, all_told):
    one = measures("a", 1.0, told=arrays_of(ARRAY), done=[[0], [0], [0]])
    two = measures("a", 1.0, told=arrays_of(ARRAY, all_told=all_told), done=[[], [0], [0]])
    log, conductor = conducted(one, two, memory)
    assert log == told_both("copy", "same", "exchange", GO, STOP)
    assert conductor.shared == ({"a"} if all_told else set())


@pytest.mark.parametrize("arrays", [[], [ARRAY]])
def test_without_memory_or_arrays_that_are_alike_both_go_at_once(memory, arrays):
    both = (measures("a", 1.0, told=arrays_of(*arrays)) for _ in range(2))
    log, _ = conducted(*both, None if arrays else memory)
    assert log == told_both(GO, STOP)


def test_an_order_that_a_side_broke_off_is_not_given_again(memory):
    """Its workload failed, and its test went on."""
    one = in_order(ends(arrays_of(ARRAY)), measures("b", 1.0, told=arrays_of(ARRAY, label="b")), ends(arrays_of(ARRAY)))
    log, conductor = conducted(one, measures("a", 1.0, told=arrays_of(ARRAY), done=[[]]), memory)
    assert log == [*told_both("copy"), (0, GO), (0, STOP), (0, GO), (1, GO), (1, STOP)]
    assert conductor.shared == set()


# Writes the number of its round into its array, after it has looked at what stands there.
WRITES = """
import json, os, sys
from pytest_bandwidth.devices.shared_arrays import SharedArrays
from pytest_bandwidth.evidence.processes.requests import ParentLine
from pytest_bandwidth.evidence.commit_pairs.alternate import turns_of

request = json.load(open(os.environ["PYTEST_BANDWIDTH_REQUEST"]))["child"]
arrays = SharedArrays(request["shared_memory"])
line = ParentLine(request["line"])
turns = turns_of(line, line.wait_for_turn(), arrays)
both, own = (arrays.allocate(1 << 20) for _ in range(2))
both[:] = 100
own[:] = 200
own[-1] = int(sys.argv[1])
seen = []
for label in "ab":
    try:
        with turns(label).begin(lambda: None, ()) as turn:
            for number in range(3):
                seen.append([int(both[0]), int(own[-1])])
                both[:] = 10 * number + int(sys.argv[1])
                if sys.argv[2:] == [label]:
                    raise ValueError("the workload fails")
                turn.taken(1.0, stops=number == 2)
    except ValueError:
        pass
    seen.append([int(both.min()), int(both.max())])
with open(request["report"], "w") as report:
    json.dump([{"seen": seen}], report)
"""


def test_a_workload_that_fails_gets_its_own_arrays_back_and_both_go_on_alone(tmp_path, memory_of_arrays):
    found = taken(tmp_path, WRITES, ["1", "a"], ["2"], memory=memory_of_arrays)
    assert (found.rounds, found.shared) == ({}, set())
    one, two = (ended.rows[0]["seen"] for ended in found.ended)
    assert one == [[100, 1], [100, 100], [100, 1], [1, 1], [11, 1], [21, 21]]
    assert two == [[1, 2], [2, 2], [12, 2], [100, 100], [100, 2], [2, 2], [12, 2], [22, 22]]


def test_each_turn_begins_on_the_processor_that_the_parent_names_and_is_not_held_there(monkeypatch):
    ours, theirs = socket.socketpair()
    asked, rested, allowed = [], [], os.sched_getaffinity(0)
    monkeypatch.setattr(alternate, "rest", lambda: rested.append(len(asked)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda of, processors: asked.append((of, set(processors))))

    def answer():
        for said in (b'{"processor": 1}\n', b"go\n", b"go\n", b"stop\n"):
            ours.recv(4096)
            ours.sendall(said)

    with ours, ThreadPoolExecutor() as pool:
        pool.submit(answer)
        line = ParentLine(theirs.detach())
        with turns_of(line, line.wait_for_turn())("a").begin(lambda: None, ()) as turn:
            assert asked == [(0, {1}), (0, allowed)]
            assert [turn.taken(1.0, stops=True), turn.taken(1.0, stops=True)] == [False, True]
        line.close()
    assert asked == [(0, {1}), (0, allowed)] * 2
    assert rested == [0, 2, 4], "before anything is said, so before the other process goes on"


@pytest.mark.parametrize(
    ("states", "steps"),
    [(["S"], 0), (["RRS", "RS"], 2), (["S", "R"], 40), (None, 40)],
    ids=["0", "2", "most", "unknown"],
)
def test_who_has_sampled_rests_until_its_other_threads_do_and_no_longer_than_a_while(
    tmp_path, monkeypatch, states, steps
):
    slept, left = [], {str(number): given for number, given in enumerate(states or ())}
    tasks = tmp_path if left else tmp_path / "none"
    for name in (*left, "77"):  # the last is a thread that has ended meanwhile
        (tmp_path / name).mkdir()

    def sleep(seconds):
        slept.append(seconds)
        for name, given in left.items():
            state = given[min(len(slept), len(given)) - 1]
            (tmp_path / name / "stat").write_text(f"{name} (a) S) {state} 1 1\n")

    sleep(0.0)
    monkeypatch.setattr(alternate.time, "sleep", sleep)
    monkeypatch.setattr(alternate.time, "monotonic", lambda: sum(slept))
    alternate.rest(tasks)
    assert sum(slept) == pytest.approx(steps * alternate.STEP_SECONDS, abs=alternate.STEP_SECONDS / 2)


def test_time_is_bounded_for_both(tmp_path):
    found = taken(tmp_path, "import time; time.sleep(600)", timeout=0.2)
    assert ([one.code for one in found.ended], found.rounds) == ([None, None], {})


# Which of their arrays both lay into the same memory.

SMALL, LARGE = [100_000, 0, 102_400], [5 << 20, 0, 6 << 20]


@pytest.mark.parametrize(
    ("one", "two", "works"),
    [
        ([[], []], [[], []], ["copy", "exchange"]),
        ([[0], [0], []], [[], [], []], ["copy", "same", "exchange"]),
        ([[0], [0], [], []], [[], [0], [0], []], ["copy", "same", "exchange", "exchange"]),
    ],
)
def test_both_give_up_what_one_could_not_do(memory, one, two, works):
    both = (measures("a", 1.0, told=arrays_of(SMALL), done=done) for done in (one, two))
    log, conductor = conducted(*both, memory)
    assert log == told_both(*works, GO, STOP)
    assert conductor.shared == set()


def test_each_copies_every_other_array_and_what_one_could_not_copy_is_left_out(memory):
    told = arrays_of(SMALL, SMALL)
    both = (measures("a", 1.0, told=told, done=[copied, [1], [1]]) for copied in ([], [1]))
    sides = [Side(number, lines, []) for number, lines in enumerate(both)]
    conductor = Conductor(sides, memory)
    conductor.conduct()
    assert [side.places for side in sides] == [
        [[[n, n * HUGE_PAGE_BYTES]], *[[[1, HUGE_PAGE_BYTES]]] * 2] for n in (0, 1)
    ]
    assert conductor.shared == set(), "one array is left"


def test_there_is_no_place_where_no_array_is_alike_or_memory_is_short(memory, monkeypatch):
    assert places_for(memory, [SMALL], [LARGE]) == []
    with open(os.devnull) as no_memory:
        assert places_for(no_memory.fileno(), [SMALL], [SMALL]) == []
    for free, places in ((4 * SMALL[2] - 1, 0), (4 * SMALL[2], 1), (None, 1)):
        monkeypatch.setattr(alternate, "available_bytes", lambda free=free: free)
        assert len(places_for(memory, [SMALL], [SMALL])) == places


def test_arrays_meet_others_of_their_size_in_room_of_their_own(memory):
    found = places_for(memory, [SMALL, LARGE], [LARGE, SMALL, SMALL])
    assert found == [((1, 0), LARGE[2], HUGE_PAGE_BYTES), ((0, 1), SMALL[2], 0)]
    assert os.fstat(memory).st_size == HUGE_PAGE_BYTES * 4
    assert places_for(memory, [SMALL], [SMALL]) == [((0, 0), SMALL[2], HUGE_PAGE_BYTES * 4)]
