"""Which host this is, from trees like those of /proc and /sys."""

import os

import pytest

from pytest_bandwidth.devices.host import (
    Caches,
    count_numa_nodes,
    identify,
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
