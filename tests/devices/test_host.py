"""Which host this is and who else uses it, from trees like those of /proc and /sys, and from this host."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from children import HANGS_SECONDS

from pytest_bandwidth.devices.host import (
    Activity,
    ActivityWatch,
    available_bytes,
    busiest,
    count_numa_nodes,
    identify,
    last_cache_bytes,
    limit_bytes,
    processor_name,
    serial,
    shares_between,
)


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


CACHE = "sys/devices/system/cpu/cpu0/cache"


def cache(index, level, kind, size):
    return {
        f"{CACHE}/index{index}/level": f"{level}\n",
        f"{CACHE}/index{index}/type": f"{kind}\n",
        f"{CACHE}/index{index}/size": f"{size}\n",
    }


@pytest.fixture
def server(tmp_path):
    return tree(
        tmp_path,
        {
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: Some   CPU @ 3 GHz\n\nmodel name\t: Some CPU\n",
            "proc/meminfo": "MemTotal:       67108864 kB\nMemFree: 1 kB\n",
            "etc/machine-id": "abc123\n",
            "sys/devices/system/cpu/smt/active": "1\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
            "sys/devices/system/node/node0/meminfo": "",
            "sys/devices/system/node/node1/meminfo": "",
            "sys/devices/system/node/possible": "0-1",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            **cache(0, 1, "Data", "48K"),
            **cache(1, 1, "Instruction", "32K"),
            **cache(2, 2, "Unified", "2048K"),
            **cache(3, 3, "Unified", "300M"),
        },
    )


def test_a_server_tells_everything(server):
    found = identify(8, server)
    assert (found.kind, found.name, found.memory_gib) == ("cpu", "Some CPU @ 3 GHz", 64)
    usable = str(len(os.sched_getaffinity(0)))
    assert (found.settings["threads"], found.settings["processors_usable"]) == ("8", usable)
    told = {"l1_bytes": 48 * 1024, "l2_bytes": 2 * 2**20, "l3_bytes": 300 * 2**20, "smt": True, "numa_nodes": 2}
    told |= {"governor": "performance", "transparent_hugepages": "madvise"}
    assert told.items() <= found.facts.items()
    assert found.facts["numpy"]


def test_a_system_that_tells_nothing_is_no_error(tmp_path):
    found = identify(None, tmp_path)
    watch = ActivityWatch(tmp_path)
    watch.restart()
    assert watch.conditions().others == ()
    assert found.name
    assert found.serial.startswith("host-")
    assert found.settings["threads"] == "numpy"
    assert found.facts["l3_bytes"] is found.facts["smt"] is count_numa_nodes(tmp_path) is None
    assert last_cache_bytes(tmp_path) is None
    arm = tree(tmp_path, {"proc/cpuinfo": "processor: 0\nModel : Raspberry Pi 5\n"})
    assert processor_name(arm) == "Raspberry Pi 5"


@pytest.mark.parametrize("size", ["", "many", "-3K", "12Q", "1" * 10])
def test_a_cache_size_that_is_none(tmp_path, size):
    last = 1111111111 if size.isdigit() else 4
    for level, found in ((1, 1), (2, 4), (3, last)):
        files = cache(level, level, "Unified", size if level == 3 else str(level * level))
        assert last_cache_bytes(tree(tmp_path, files)) == found


def test_the_serial_tells_hosts_apart_and_does_not_give_the_machine_id_away(tmp_path):
    one, two = (serial(tree(tmp_path / name, {"etc/machine-id": name})) for name in ("abc123", "abc124"))
    assert one != two
    assert "abc123" not in one
    assert one == serial(tmp_path / "abc123")


MIB = 2**20
V1_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2_FILES = ("memory.max", "memory.current", "inactive_file")
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:35 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


@pytest.fixture
def root(tmp_path):
    for folder in ("proc/self", "sys/fs/cgroup"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable: 1024000 kB\n", encoding="ascii")
    return tmp_path


def group(root, folder, limit, used, reclaimed, files=V2_FILES):
    stat = f"anon 5\n{files[2]} {reclaimed}\nshmem 7\n"
    told = {files[0]: f"{limit}\n", files[1]: f"{used}\n", "memory.stat": stat}
    tree(root / "sys/fs/cgroup" / folder, told)


def is_in(root, *lines, mounts=(V2,)):
    mounts = ("23 1 0:22 / / rw - overlay overlay rw", *mounts)
    files = {"cgroup": lines, "mountinfo": mounts}
    tree(root / "proc/self", {name: "".join(f"{line}\n" for line in listed) for name, listed in files.items()})


def test_what_the_system_has_where_there_are_no_groups(root):
    assert (available_bytes(root), limit_bytes(root)) == (1000 * MIB, None)
    (root / "proc/meminfo").write_text("MemAvailable: many kB\n", encoding="ascii")
    assert available_bytes(root) is None


def test_the_least_that_a_group_or_one_around_it_has_left(root):
    is_in(root, "0::/ci/jöb-7")
    group(root, "ci/jöb-7", 500 * MIB, 300 * MIB, 50 * MIB)
    assert (available_bytes(root), limit_bytes(root)) == (250 * MIB, 500 * MIB)
    group(root, "ci", 400 * MIB, 390 * MIB, 4 * MIB)
    assert (available_bytes(root), limit_bytes(root)) == (14 * MIB, 400 * MIB)
    group(root, "ci", 400 * MIB, 410 * MIB, 0)
    assert available_bytes(root) == 0
    for unlimited in ("ci", "ci/jöb-7"):
        group(root, unlimited, "max", 300 * MIB, 0)
    assert (available_bytes(root), limit_bytes(root)) == (1000 * MIB, None)


def test_what_is_given_up_before_a_process_is_ended(root):
    is_in(root, "0::/")
    group(root, "", 500 * MIB, 480 * MIB, 0)
    stat = f"active_file {3 * MIB}\ninactive_file {4 * MIB}\nslab_reclaimable {5 * MIB}\nshmem {99 * MIB}\n"
    (root / "sys/fs/cgroup/memory.stat").write_text(stat, encoding="ascii")
    assert available_bytes(root) == 32 * MIB
    (root / "sys/fs/cgroup/memory.stat").write_text("inactive_file many\n", encoding="ascii")
    assert available_bytes(root) == 20 * MIB
    (root / "proc/meminfo").write_text("MemAvailable: many kB\n", encoding="ascii")
    assert available_bytes(root) == 20 * MIB, "the host need not tell"


def test_a_container_that_sees_its_own_group_alone(root):
    group(root, "", 200 * MIB, 100 * MIB, 0)
    is_in(root, "0::/docker/01", mounts=[V2.replace(" / /sys", " /docker/01 /sys")])
    assert available_bytes(root) == 100 * MIB
    is_in(root, "0::/docker/01/job", mounts=[V2.replace(" / /sys", " /docker/01 /sys")])
    group(root, "job", 90 * MIB, 50 * MIB, 0)
    assert available_bytes(root) == 40 * MIB


@pytest.mark.parametrize(
    ("path", "mounted"), [("/../../elsewhere", "/"), ("/", "/../.."), ("/docker/02", "/docker/01")]
)
def test_a_group_outside_of_what_is_mounted_limits_nothing(root, path, mounted):
    group(root, "", 200 * MIB, 100 * MIB, 0)
    is_in(root, f"0::{path}", mounts=[V2.replace(" / /sys", f" {mounted} /sys")])
    assert available_bytes(root) == 1000 * MIB


@pytest.mark.parametrize("controllers", ["memory", "cpu,memory"])
def test_groups_of_version_1_beside_some_of_version_2_that_hold_no_memory(root, controllers):
    mounts = [
        "31 23 0:29 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755",
        "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
        V1.replace("rw,memory", f"rw,{controllers}"),
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    ]
    is_in(root, "12:pids:/", f"4:{controllers}:/docker/01", "0::/docker/01", mounts=mounts)
    group(root, "memory/docker/01", 300 * MIB, 200 * MIB, 30 * MIB, V1_FILES)
    group(root, "memory", 2**63 - 4096, 900 * MIB, 0, V1_FILES)
    (root / "sys/fs/cgroup/unified/docker/01").mkdir(parents=True)
    assert (available_bytes(root), limit_bytes(root)) == (130 * MIB, 300 * MIB)


@pytest.mark.parametrize("line", ["", "0", "0::", "::", "\udcff"])
@pytest.mark.parametrize("mount", ["", "-", " - ", " - cgroup2", "1 2 3 / /x rw - cgroup x", "\udcff - cgroup2 a b"])
def test_lines_of_another_form(root, line, mount):
    for name, text in (("cgroup", line), ("mountinfo", mount)):
        (root / "proc/self" / name).write_bytes(f"{text}\n".encode("utf-8", "surrogateescape"))
    assert available_bytes(root) == 1000 * MIB


LINUX = pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="needs Linux's /proc")


def activity(at, stolen=0.0, **seconds):
    return Activity(at, {(number, name): used for number, (name, used) in enumerate(seconds.items())}, stolen)


NAMES = [f"p{i}" for i in range(9)]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            activity(10.0, python=5.0, make=1.0, idle=100.0),
            activity(12.0, python=6.0, make=3.0, idle=100.05),
            ("make (1): 1.00 processors", "python (0): 0.50 processors"),
        ),
        (activity(0.0), activity(1.0, new=500.0), ()),
        (
            activity(0.0, **dict.fromkeys(NAMES, 0.0)),
            activity(1.0, **{name: i / 10 for i, name in enumerate(NAMES)}),
            tuple(f"p{i} ({i}): 0.{i}0 processors" for i in (8, 7, 6)),
        ),
        (activity(0.0, 7.0), activity(2.0, 7.5), ("hypervisor: 0.25 processors",)),
        (activity(1.0, p=0.0), activity(1.0, p=1.0), ()),
    ],
    ids=["busiest first", "came in between", "three at most", "hypervisor", "no time"],
)
def test_who_was_busy_between_two_looks(before, after, said):
    assert busiest(shares_between(before, after)) == said


@LINUX
def test_a_process_that_burns_time_is_seen_by_name(monkeypatch):
    # Those that keep this machine busy while the tests run may be busier, and more than are told.
    monkeypatch.setattr("pytest_bandwidth.devices.host.MOST_NAMED", 1000)
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
        assert not any(f"({os.getpid()})" in line for line in seen.others)
    finally:
        busy.kill()
        busy.wait()
