"""Who else uses the processors, from trees like /proc and from this host."""

import os
import subprocess
import sys
import time

import pytest
from children import HANGS_SECONDS

from pytest_bandwidth.devices.activity import Activity, ActivityWatch, clock_mhz, shares_between, told

LINUX = pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="needs Linux's /proc")


def told_between(before, after):
    return told(shares_between(before, after))


def activity(at, stolen=0.0, **seconds):
    return Activity(at, {(number, name): used for number, (name, used) in enumerate(seconds.items())}, stolen)


def test_the_busiest_come_first_and_the_idle_are_not_told():
    before = activity(10.0, python=5.0, make=1.0, idle=100.0)
    after = activity(12.0, python=6.0, make=3.0, idle=100.05)
    assert told_between(before, after) == ("make (1): 1.00 processors", "python (0): 0.50 processors")


def test_a_process_that_came_in_between_is_not_counted_from_nothing():
    assert told_between(activity(0.0), activity(1.0, old=500.0)) == ()


def test_no_more_than_three_are_told():
    names = [f"p{i}" for i in range(9)]
    found = told_between(
        activity(0.0, **dict.fromkeys(names, 0.0)), activity(1.0, **{name: i / 10 for i, name in enumerate(names)})
    )
    assert [line.split()[0] for line in found] == ["p8", "p7", "p6"]


def test_what_a_hypervisor_takes_is_told():
    assert told_between(activity(0.0, 7.0), activity(2.0, 7.5)) == ("hypervisor: 0.25 processors",)
    assert told_between(activity(0.0, 7.0), activity(2.0, 7.01)) == ()
    assert told_between(Activity(0.0), Activity(2.0)) == ()


def test_no_time_between_two_looks_is_no_error():
    assert told_between(activity(1.0, p=0.0), activity(1.0, p=1.0)) == ()


def test_clocks_are_averaged_and_need_not_be_there(tmp_path):
    assert clock_mhz(tmp_path) is None
    for cpu, text in enumerate(("3000000\n", "2000000\n", "unknown\n")):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(text, encoding="ascii")
    assert clock_mhz(tmp_path) == 2500


def test_a_system_without_proc_is_no_error(tmp_path):
    watch = ActivityWatch(tmp_path)
    watch.restart()
    assert watch.conditions().others == ()


@LINUX
def test_a_process_that_burns_time_is_seen_by_name(monkeypatch):
    # Those that keep this machine busy while the tests run may be busier, and more than are told.
    monkeypatch.setattr("pytest_bandwidth.devices.activity.MOST_TOLD", 1000)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        deadline = time.monotonic() + HANGS_SECONDS
        while time.monotonic() < deadline:
            watch = ActivityWatch()
            time.sleep(0.3)
            seen = watch.conditions()
            if any(f"({busy.pid})" in line for line in seen.others):
                break
        assert any(f"({busy.pid}): " in line for line in seen.others), seen
    finally:
        busy.kill()
        busy.wait()


@LINUX
def test_this_process_is_not_among_the_others():
    watch = ActivityWatch()
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        pass
    assert not any(f"({os.getpid()})" in line for line in watch.conditions().others)


def test_names_are_not_cut_as_the_kernel_cuts_them(tmp_path):
    def tree(ticks):
        (tmp_path / "proc/7").mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/stat").write_text("cpu 1 2 3 4 5 6 7 0 0 0\n")
        stat = f"7 (a-very-long-nam) R {' '.join(['0'] * 10)} {ticks} 0 0 0"
        (tmp_path / "proc/7/stat").write_text(stat)
        (tmp_path / "proc/7/cmdline").write_bytes(b"/opt/bin/a-very-long-name-of-a-program\0--quick\0")

    tree(0)
    watch = ActivityWatch(tmp_path)
    tree(10**9)
    (told_of,) = watch.conditions().others
    assert told_of.startswith("a-very-long-name-of-a-program (7): ")
    (tmp_path / "proc/7/cmdline").write_bytes(b"renamed\0")
    tree_of_another = tmp_path / "proc/7/cmdline"
    tree(2 * 10**9)
    tree_of_another.write_bytes(b"renamed\0")
    assert watch.conditions().others[0].startswith("a-very-long-nam (7): ")
