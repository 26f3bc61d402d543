"""How much memory can be had, by files as Linux has them."""

from __future__ import annotations

import os

import pytest

from pytest_bandwidth.devices.free_memory import available_bytes

MIB = 2**20
V1_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2_FILES = ("memory.max", "memory.current", "inactive_file")


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
    (path / "memory.stat").write_text(f"anon 5\n{files[2]} {reclaimed}\nslab 7\n", encoding="ascii")


def is_in(root, *lines):
    (root / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


def test_what_the_system_has_where_there_are_no_groups(root):
    assert available_bytes(root) == 1000 * MIB
    (root / "proc/meminfo").write_text("MemAvailable: many kB\n", encoding="ascii")
    assert available_bytes(root) is None


def test_the_least_that_a_group_or_one_around_it_has_left(root):
    is_in(root, "0::/ci/job-7")
    group(root, "ci/job-7", 500 * MIB, 300 * MIB, 50 * MIB)
    assert available_bytes(root) == 250 * MIB
    group(root, "ci", 400 * MIB, 390 * MIB, 4 * MIB)
    assert available_bytes(root) == 14 * MIB
    group(root, "ci", 400 * MIB, 410 * MIB, 0)
    assert available_bytes(root) == 0


def test_a_group_without_a_limit(root):
    is_in(root, "0::/user.slice")
    group(root, "user.slice", "max", 300 * MIB, 0)
    assert available_bytes(root) == 1000 * MIB


def test_a_container_whose_group_is_what_is_mounted(root):
    group(root, "", 200 * MIB, 100 * MIB, 0)
    for called in ("0::/", "0::/docker/0123", "0::/../../elsewhere"):
        is_in(root, called)
        assert available_bytes(root) == 100 * MIB


@pytest.mark.parametrize("controllers", ["memory", "cpu,memory"])
def test_groups_of_version_1(root, controllers):
    is_in(root, "12:pids:/", f"4:{controllers}:/docker/01", "0::/docker/01")
    group(root, "memory/docker/01", 300 * MIB, 200 * MIB, 30 * MIB, V1_FILES)
    group(root, "memory", 2**63 - 4096, 900 * MIB, 0, V1_FILES)
    assert available_bytes(root) == 130 * MIB


@pytest.mark.skipif(not os.path.exists("/proc/meminfo"), reason="the system has no /proc/meminfo")
def test_this_host_has_some():
    assert 0 < available_bytes() < 2**50
