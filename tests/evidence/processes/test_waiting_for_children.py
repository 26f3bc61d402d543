"""How many fresh processes load at the same time: as many as are needed, and the device has room for."""

import pytest

from pytest_bandwidth.domain.device import SAME_PROCESS_IDS, DeviceIdentity
from pytest_bandwidth.evidence.processes.child import MOST_ON_HOST, FreshProcessFailed, Room, StartedAhead, room_on

GIB = 2**30


def gpu(memory_bytes, processes):
    return DeviceIdentity("cuda", "any", memory_bytes, "serial", facts={"other_processes": processes}, timed_on="gpu")


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (DeviceIdentity("cpu", "any", 8 * GIB, "host"), Room(MOST_ON_HOST)),
        (gpu(140 * GIB, SAME_PROCESS_IDS), Room(14, takes_memory=True)),
        (gpu(24 * GIB, SAME_PROCESS_IDS), Room(2, takes_memory=True)),
        (gpu(8 * GIB, SAME_PROCESS_IDS), Room(1, takes_memory=True)),
        (gpu(None, SAME_PROCESS_IDS), Room(1)),
        # A process that finds its own number by what appears as it opens the GPU has to be the only one that does.
        (gpu(140 * GIB, "host process id 4711 (another pid namespace)"), Room(1)),
        (gpu(140 * GIB, "not watched: NVML: no such library"), Room(1)),
    ],
)
def test_a_gpu_is_opened_by_as_many_as_it_has_room_for(identity, expected):
    assert room_on(identity) == expected


class Process:
    """Stands for a child: what is looked at is when it starts, is waited for, and ends."""

    def __init__(self, seen, number):
        self.seen, self.number = seen, number
        seen.append(f"starts {number}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.seen.append(f"ends {self.number}")

    def wait_until_ready(self, timeout_seconds):
        self.seen.append(f"waited {timeout_seconds} s for {self.number}")


@pytest.fixture
def seen():
    return []


@pytest.fixture
def start(seen):
    numbers = iter(range(1, 100))
    return lambda: Process(seen, next(numbers))


def number_of(child):
    return child.number


def failing(*numbers):
    """Measure as those processes do which find no memory."""

    def measure(child):
        if child.number in numbers:
            raise FreshProcessFailed(f"{child.number} found no memory")
        return child.number

    return measure


def test_those_that_are_needed_start_before_any_is_waited_for_and_come_one_after_the_other(seen, start):
    with StartedAhead(Room(8), 60) as ahead:
        assert ahead.measured(start, 2, number_of) == 1
        assert seen == ["starts 1", "starts 2", "waited 60 s for 1", "waited 60 s for 2"]
        assert ahead.measured(start, 1, number_of) == 2
        assert ahead.measured(start, 1, number_of) == 3
    assert seen[4:] == ["starts 3", "waited 60 s for 3", "ends 3", "ends 2", "ends 1"]


@pytest.mark.parametrize(("most", "needed", "started"), [(2, 5, 2), (8, 0, 1), (1, 3, 1)])
def test_at_most_what_the_device_has_room_for_and_at_least_the_one_that_is_asked_for(
    seen, start, most, needed, started
):
    with StartedAhead(Room(most), 60) as ahead:
        ahead.measured(start, needed, number_of)
        assert [line for line in seen if line.startswith("starts")] == [f"starts {n + 1}" for n in range(started)]


def test_who_waits_for_what_is_needed_no_more_is_ended_and_the_next_starts_anew(seen, start):
    with StartedAhead(Room(8), 60) as ahead:
        ahead.measured(start, 3, number_of)
        ahead.end_waiting()
        assert seen[-3:] == ["ends 3", "ends 2", "ends 1"]
        assert ahead.measured(start, 1, number_of) == 4


def test_what_fails_beside_others_that_have_memory_of_the_gpu_is_tried_once_more_alone(seen, start):
    with StartedAhead(Room(8, takes_memory=True), 60) as ahead:
        assert ahead.measured(start, 3, failing(1)) == 4
        assert seen[-5:] == ["ends 3", "ends 2", "ends 1", "starts 4", "waited 60 s for 4"]
        assert ahead.measured(start, 3, number_of) == 5, "and so are all that follow"
        assert "starts 6" not in seen
    with StartedAhead(Room(8, takes_memory=True), 60) as ahead, pytest.raises(FreshProcessFailed, match="8 found no"):
        ahead.measured(start, 2, failing(6, 7, 8))


@pytest.mark.parametrize(("room", "needed"), [(Room(8), 3), (Room(8, takes_memory=True), 1)])
def test_what_fails_though_nobody_has_its_memory_is_not_tried_again(seen, start, room, needed):
    with StartedAhead(room, 60) as ahead, pytest.raises(FreshProcessFailed, match="1 found no memory"):
        ahead.measured(start, needed, failing(1, 2, 3, 4))
    assert len([line for line in seen if line.startswith("starts")]) == needed


def test_where_one_cannot_start_those_before_it_are_ended_and_none_waits(seen, start):
    def breaks():
        if len(seen) == 1:
            raise OSError("no process left")
        return start()

    with StartedAhead(Room(8), 60) as ahead:
        with pytest.raises(OSError, match="no process left"):
            ahead.measured(breaks, 3, number_of)
        assert ahead.measured(start, 1, number_of) == 2
    assert seen[-2:] == ["ends 2", "ends 1"]
