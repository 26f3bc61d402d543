"""How many fresh processes load at the same time: as many as are needed, and the device has room for."""

import pytest

from pytest_bandwidth.domain.device import SAME_PROCESS_IDS, DeviceIdentity
from pytest_bandwidth.session.fresh.ahead import MOST_ON_HOST, StartedAhead, most_ahead

GIB = 2**30


def gpu(memory_bytes, processes):
    return DeviceIdentity("cuda", "any", memory_bytes, "serial", facts={"other_processes": processes})


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (DeviceIdentity("cpu", "any", 8 * GIB, "host"), MOST_ON_HOST),
        (gpu(140 * GIB, SAME_PROCESS_IDS), 14),
        (gpu(24 * GIB, SAME_PROCESS_IDS), 2),
        (gpu(8 * GIB, SAME_PROCESS_IDS), 1),
        (gpu(None, SAME_PROCESS_IDS), 1),
        # A process that finds its own number by what appears as it opens the GPU has to be the only one that does.
        (gpu(140 * GIB, "host process id 4711 (another pid namespace)"), 1),
        (gpu(140 * GIB, "not watched: NVML: no such library"), 1),
    ],
)
def test_a_gpu_is_opened_by_as_many_as_it_has_room_for(identity, expected):
    assert most_ahead(identity) == expected


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


def starter(seen):
    numbers = iter(range(1, 100))
    return lambda: Process(seen, next(numbers))


def test_those_that_are_needed_start_before_any_is_waited_for_and_come_one_after_the_other():
    seen = []
    start = starter(seen)
    with StartedAhead(8, 60) as ahead:
        assert ahead.next(start, 2).number == 1
        assert seen == ["starts 1", "starts 2", "waited 60 s for 1", "waited 60 s for 2"]
        assert ahead.next(start, 1).number == 2
        assert ahead.next(start, 1).number == 3
    assert seen[4:] == ["starts 3", "waited 60 s for 3", "ends 3", "ends 2", "ends 1"]


@pytest.mark.parametrize(("most", "needed", "started"), [(2, 5, 2), (8, 0, 1), (1, 3, 1)])
def test_at_most_what_the_device_has_room_for_and_at_least_the_one_that_is_asked_for(most, needed, started):
    seen = []
    with StartedAhead(most, 60) as ahead:
        ahead.next(starter(seen), needed)
        assert [line for line in seen if line.startswith("starts")] == [f"starts {n + 1}" for n in range(started)]


def test_who_waits_for_what_is_needed_no_more_is_ended_and_the_next_starts_anew():
    seen = []
    start = starter(seen)
    with StartedAhead(8, 60) as ahead:
        ahead.next(start, 3)
        ahead.end_waiting()
        assert seen[-3:] == ["ends 3", "ends 2", "ends 1"]
        assert ahead.next(start, 1).number == 4
