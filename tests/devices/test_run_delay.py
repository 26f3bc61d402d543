"""How long threads waited for a processor, from a tree like /proc and from this host's own account."""

import os
import subprocess
import sys
import threading
import time

import pytest

from pytest_bandwidth.devices import run_delay
from pytest_bandwidth.devices.run_delay import LARGEST_WAITED_SHARE, RunDelay, longest_wait, why_disturbed

ACCOUNTED = pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the system keeps no such account")


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """A folder of threads, each with a record; every look is due."""
    monkeypatch.setattr(run_delay, "LOOK_SECONDS", 0.0)
    return tmp_path


def record(tasks, thread, waited_ns):
    (tasks / thread).mkdir(exist_ok=True)
    (tasks / thread / "schedstat").write_text(f"123456 {waited_ns} 17\n", encoding="ascii")


def test_the_thread_that_waited_longest_counts(tasks):
    delay = RunDelay(tasks)
    record(tasks, "1", 5_000_000)
    record(tasks, "2", 1_000_000)
    delay.look_for_threads()
    before = delay.seconds()
    record(tasks, "1", 5_100_000)
    record(tasks, "2", 1_400_000)
    assert longest_wait(before, delay.seconds()) == pytest.approx(400e-6)


def test_threads_come_and_go(tasks):
    delay = RunDelay(tasks)
    record(tasks, "1", 10)
    delay.look_for_threads()
    before = delay.seconds()
    record(tasks, "2", 9_000_000_000)
    delay.look_for_threads()
    assert longest_wait(before, delay.seconds()) == 0.0  # what it waited before it was seen is not known
    (tasks / "1" / "schedstat").unlink()
    (tasks / "1").rmdir()
    delay.look_for_threads()
    assert set(delay.seconds()) == {"2"}
    delay.close()
    assert delay.seconds() == {}
    delay.look_for_threads()
    assert set(delay.seconds()) == {"2"}


def test_a_process_of_many_threads_keeps_files_for_its_tests(tasks, monkeypatch):
    monkeypatch.setattr(run_delay, "MOST_THREADS", 3)
    delay = RunDelay(tasks)
    for thread in ("10", "9", "8"):
        record(tasks, thread, 0)
    delay.look_for_threads()
    record(tasks, "11", 0)
    delay.look_for_threads()
    assert set(delay.seconds()) == {"8", "9", "10"}


@pytest.mark.parametrize("content", ["", "1\n", "one two three\n", "0 0 0\n"])
def test_no_account_or_a_damaged_one_is_unknown_and_never_a_wait(tasks, content):
    delay = RunDelay(tasks)
    (tasks / "1").mkdir()
    (tasks / "1" / "schedstat").write_text(content, encoding="ascii")
    delay.look_for_threads()
    assert not longest_wait(delay.seconds(), delay.seconds())


def test_a_system_without_it_is_no_error(tmp_path):
    delay = RunDelay(tmp_path / "none")
    delay.look_for_threads()
    assert longest_wait(delay.seconds(), delay.seconds()) is None
    assert why_disturbed(1.0, None) is None


@pytest.mark.parametrize(
    ("seconds", "waited", "disturbed"),
    [
        (1.0, LARGEST_WAITED_SHARE, False),
        (1.0, 1.01 * LARGEST_WAITED_SHARE, True),
        (1e-6, 0.0, False),
        (1e-6, 1e-6, True),
    ],
)
def test_a_sample_is_disturbed_past_a_share_of_it(seconds, waited, disturbed):
    assert (why_disturbed(seconds, waited) is not None) is disturbed


@ACCOUNTED
def test_this_host_accounts_for_each_thread(monkeypatch):
    monkeypatch.setattr(run_delay, "MOST_THREADS", 10**6)  # other tests' libraries keep threads in this process
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    delay = RunDelay()
    delay.look_for_threads()
    seen = delay.seconds()
    ended.set()
    thread.join()
    assert {str(os.getpid()), str(thread.native_id)} <= set(seen)
    assert all(waited >= 0 for waited in seen.values())
    assert longest_wait(seen, delay.seconds()) >= 0
    delay.close()


HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
until = time.monotonic() + 60
while time.monotonic() < until:
    pass
"""


@ACCOUNTED
def test_processes_that_share_one_processor_are_seen_to_wait():
    """Neither of the two ever rests: whoever does not run waits, whatever else the machine does."""
    all_of_them = os.sched_getaffinity(0)
    one = min(all_of_them)
    hog = subprocess.Popen([sys.executable, "-c", HOG, str(one)])
    try:
        os.sched_setaffinity(0, {one})
        delay = RunDelay()
        delay.look_for_threads()
        before = delay.seconds()
        waited, until = 0.0, time.monotonic() + 30
        while waited < 1e-3 and time.monotonic() < until:
            waited = longest_wait(before, delay.seconds())
        assert waited >= 1e-3
    finally:
        os.sched_setaffinity(0, all_of_them)
        hog.kill()
        hog.wait()
