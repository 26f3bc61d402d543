"""Calls timed by the host's clock: waits for a processor, cold caches, places of the stack."""

from __future__ import annotations

import os
from functools import partial
from types import SimpleNamespace

import pytest

from pytest_bandwidth.devices import host_timing
from pytest_bandwidth.devices.host_timing import (
    LARGEST_WAITED_SHARE,
    PLACES,
    CacheEviction,
    RunDelay,
    from_a_drawn_place,
)
from pytest_bandwidth.devices.open import open_device


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """A folder of threads, each with a record; every look is due."""
    monkeypatch.setattr(host_timing, "LOOK_SECONDS", 0.0)
    return tmp_path


def record(tasks, thread, waited_ns):
    (tasks / thread).mkdir(exist_ok=True)
    (tasks / thread / "schedstat").write_text(f"123456 {waited_ns} 17\n", encoding="ascii")


def test_the_thread_that_waited_longest_counts(tasks):
    delay = RunDelay(tasks)
    record(tasks, "1", 5_000_000)
    record(tasks, "2", 1_000_000)
    delay.look_for_threads()

    def waits():
        record(tasks, "1", 5_100_000)
        record(tasks, "2", 1_400_000)

    assert delay.time(waits).run_delay_seconds == pytest.approx(400e-6)


def test_threads_come_and_go(tasks, monkeypatch):
    delay = RunDelay(tasks)
    record(tasks, "1", 10)
    delay.look_for_threads()

    def begins():
        record(tasks, "2", 9_000_000_000)
        delay.look_for_threads()

    assert delay.time(begins).run_delay_seconds == 0.0  # what it waited before it was seen is not known
    (tasks / "1" / "schedstat").unlink()
    (tasks / "1").rmdir()
    delay.look_for_threads()
    assert set(delay.seconds()) == {"2"}
    delay.close()
    assert delay.seconds() == {}
    delay.look_for_threads()
    assert set(delay.seconds()) == {"2"}
    monkeypatch.setattr(host_timing, "MOST_THREADS", 2)  # of many threads the first, to keep files for the tests
    record(tasks, "10", 0)
    record(tasks, "9", 0)
    delay.look_for_threads()
    assert set(delay.seconds()) == {"2", "9"}


@pytest.mark.parametrize("content", ["", "1\n", "one two three\n", "0 0 0\n"])
def test_no_account_or_a_damaged_one_is_unknown_and_never_a_wait(tasks, content):
    delay = RunDelay(tasks)
    (tasks / "1").mkdir()
    (tasks / "1" / "schedstat").write_text(content, encoding="ascii")
    delay.look_for_threads()
    assert not delay.time(lambda: None).run_delay_seconds
    delay = RunDelay(tasks / "none")
    delay.look_for_threads()
    unknown = delay.time(lambda: None)
    assert (unknown.run_delay_seconds, unknown.drop) == (None, None)


@pytest.mark.parametrize(
    ("seconds", "waited", "disturbed"),
    [
        (1.0, 0.99 * LARGEST_WAITED_SHARE, False),
        (1.0, 1.01 * LARGEST_WAITED_SHARE, True),
        (1e-6, 0.0, False),
        (1e-6, 1e-6, True),
    ],
)
def test_a_sample_is_disturbed_past_a_share_of_it(tasks, monkeypatch, seconds, waited, disturbed):
    times = iter([0, round(seconds * 1e9)])
    monkeypatch.setattr(host_timing, "clock", SimpleNamespace(monotonic=lambda: 0.0, perf_counter_ns=times.__next__))
    delay = RunDelay(tasks)
    record(tasks, "1", 0)
    delay.look_for_threads()
    drop = delay.time(lambda: record(tasks, "1", round(waited * 1e9))).drop
    assert (drop is not None) is disturbed


MIB = 2**20


@pytest.mark.parametrize(
    ("data_bytes", "given", "read"),
    [
        (5 * MIB - 1, {}, [4 * MIB]),
        (5 * MIB, {}, []),
        (1000, {"cold": False}, []),
        (5 * MIB, {"others_have_them": True}, [4 * MIB]),  # no cache could hold them all, but some
    ],
)
def test_data_that_a_cache_could_hold_is_evicted_by_four_times_the_cache(data_bytes, given, read):
    made, done = [], []
    eviction = CacheEviction(lambda size: made.append(size) or (lambda: done.append(size)), MIB)
    eviction.prepare(data_bytes, **given)
    done.clear()
    eviction.evict()
    assert done == made == read
    assert eviction.finding() is None


@pytest.mark.parametrize(("cache_bytes", "known"), [(300 * MIB, ""), (None, "assumed ")])
def test_a_cache_that_is_not_evicted_whole_is_a_finding(cache_bytes, known):
    eviction = CacheEviction(lambda _: lambda: None, cache_bytes, 300 * MIB)
    eviction.prepare(1000)
    assert eviction.finding().text == (
        f"before each sample 537 MB of other memory were read, 1.26 GB would evict all of the {known}last-level cache: "
        "some of the data may stay"
    )


TOLD = pytest.mark.skipif(not os.access("/proc/self/syscall", os.R_OK), reason="the system tells no stack pointer")
PAGE_BYTES, LINE_BYTES = 4096, 64
# That one of seven places is not among half as many is less likely than one in a million million.
MANY = 400


def stack_pointer():
    with open("/proc/self/syscall", "rb", buffering=0) as file:
        return int(file.read().split()[-2], 16)


@TOLD
def test_a_host_samples_at_seven_places_in_as_many_lines_of_a_page():
    device, seen = open_device("cpu"), []
    for _ in range(MANY):  # the first ones are elsewhere: Python specializes what it has run a few times
        device.time(lambda: seen.append(stack_pointer()), None)
    later = set(seen[MANY // 2 :])
    assert len({pointer % PAGE_BYTES // LINE_BYTES for pointer in later}) == len(later) == PLACES


def test_what_is_called_returns_and_raises_what_it_would():
    def raises(error):
        raise error

    for error in (ValueError("of the test"), StopIteration("of the test"), KeyboardInterrupt()):
        for _ in range(MANY):
            assert from_a_drawn_place(lambda: "returned") == "returned"
            with pytest.raises(type(error)) as raised:
                from_a_drawn_place(partial(raises, error))
            assert raised.value is error
