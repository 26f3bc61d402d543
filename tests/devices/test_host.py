"""Which host this is, from trees like those of /proc and /sys."""

from __future__ import annotations

import os

import pytest

from pytest_bandwidth.devices.host import (
    Caches,
    available_bytes,
    count_numa_nodes,
    identify,
    limit_bytes,
    memory_bytes,
    processor_name,
    ranges,
    read_caches,
    serial,
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
    found = identify(8, "omp", server)
    assert (found.kind, found.name, found.memory_gib) == ("cpu", "Some CPU @ 3 GHz", 64)
    assert found.settings["threads"] == "8"
    assert found.facts["l1_bytes"] == 48 * 1024
    assert found.facts["l2_bytes"] == 2 * 2**20
    assert found.facts["l3_bytes"] == 300 * 2**20
    assert found.facts["smt"] is True
    assert found.facts["governor"] == "performance"
    assert found.facts["numa_nodes"] == 2
    assert found.facts["transparent_hugepages"] == "madvise"
    assert found.facts["threading_layer"] == "omp"
    assert found.facts["numpy"]


def test_a_system_that_tells_nothing_is_no_error(tmp_path):
    found = identify(None, None, tmp_path)
    assert found.name
    assert found.serial.startswith("host-")
    assert found.settings["threads"] == "numpy"
    assert found.facts["l3_bytes"] is None
    assert found.facts["smt"] is None
    assert count_numa_nodes(tmp_path) is None
    assert read_caches(tmp_path) == Caches()


@pytest.mark.parametrize("size", ["", "many", "-3K", "12Q", "1" * 10])
def test_a_cache_size_that_is_none(tmp_path, size):
    found = read_caches(tree(tmp_path, cache(0, 3, "Unified", size)))
    assert found.l3 == (1111111111 if size.isdigit() else None)


def test_the_last_level_is_the_largest_number_that_is_known():
    assert Caches(1, 2, 3).last_level == 3
    assert Caches(1, 2).last_level == 2
    assert Caches(1).last_level == 1
    assert Caches().last_level is None


def test_the_serial_tells_hosts_apart_and_does_not_give_the_machine_id_away(tmp_path):
    one = serial(tree(tmp_path / "one", {"etc/machine-id": "abc123"}))
    two = serial(tree(tmp_path / "two", {"etc/machine-id": "abc124"}))
    assert one != two
    assert "abc123" not in one
    assert one == serial(tmp_path / "one")


def test_arm_processors_have_another_key(tmp_path):
    assert (
        processor_name(tree(tmp_path, {"proc/cpuinfo": "processor: 0\nModel : Raspberry Pi 5\n"})) == "Raspberry Pi 5"
    )


@pytest.mark.skipif(not os.path.exists("/proc/meminfo"), reason="needs Linux's /proc")
def test_this_host():
    found = identify(2, None)
    assert found.memory_bytes == memory_bytes() > 2**28
    assert int(found.settings["processors_usable"]) >= 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a system that binds processes to processors")
def test_the_affinity_is_told():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        found = identify(1, None)
    finally:
        os.sched_setaffinity(0, allowed)
    assert (found.facts["affinity"], found.settings["processors_usable"]) == (str(min(allowed)), "1")


@pytest.mark.parametrize(
    ("processors", "told"), [([0], "0"), ([0, 1], "0-1"), ([0, 1, 2, 8, 10, 11], "0-2,8,10-11"), ([], "")]
)
def test_processors_in_a_row_are_a_range(processors, told):
    assert ranges(processors) == told


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
    path = root / "sys/fs/cgroup" / folder
    path.mkdir(parents=True, exist_ok=True)
    (path / files[0]).write_text(f"{limit}\n", encoding="ascii")
    (path / files[1]).write_text(f"{used}\n", encoding="ascii")
    (path / "memory.stat").write_text(f"anon 5\n{files[2]} {reclaimed}\nshmem 7\n", encoding="ascii")


def is_in(root, *lines, mounts=(V2,)):
    (root / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    root_fs = "23 1 0:22 / / rw - overlay overlay rw"
    (root / "proc/self/mountinfo").write_text("".join(f"{line}\n" for line in (root_fs, *mounts)), encoding="utf-8")


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


def test_what_is_given_up_before_a_process_is_ended(root):
    is_in(root, "0::/")
    group(root, "", 500 * MIB, 480 * MIB, 0)
    stat = f"active_file {3 * MIB}\ninactive_file {4 * MIB}\nslab_reclaimable {5 * MIB}\nshmem {99 * MIB}\n"
    (root / "sys/fs/cgroup/memory.stat").write_text(stat, encoding="ascii")
    assert available_bytes(root) == 32 * MIB
    (root / "sys/fs/cgroup/memory.stat").write_text("inactive_file many\n", encoding="ascii")
    assert available_bytes(root) == 20 * MIB


def test_a_group_whose_host_does_not_tell(root):
    (root / "proc/meminfo").write_text("MemAvailable: many kB\n", encoding="ascii")
    is_in(root, "0::/")
    group(root, "", 500 * MIB, 480 * MIB, 0)
    assert available_bytes(root) == 20 * MIB


def test_a_group_without_a_limit(root):
    is_in(root, "0::/user.slice")
    group(root, "user.slice", "max", 300 * MIB, 0)
    assert (available_bytes(root), limit_bytes(root)) == (1000 * MIB, None)


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


def test_this_host_tells_or_does_not():
    assert available_bytes() is None or 0 <= available_bytes() < 2**50
    assert limit_bytes() is None or limit_bytes() > 0
