"""Ours and others: by process id, by the context that appears, by the memory that grows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_bandwidth.devices import host
from pytest_bandwidth.devices.cuda.health import (
    FINGERPRINT_BYTES,
    Ownership,
    active_others,
    describe,
    find_ownership,
    grown_process,
    own_process,
    parents_of_all,
    process_tree,
)
from pytest_bandwidth.devices.cuda.management import ProcessUse

MIB = 1 << 20


def test_our_own_id_in_the_list_is_us() -> None:
    assert own_process({7: 1}, {7: 1, 4711: 1}, 4711) == 4711


def test_in_a_container_we_are_the_entry_that_appeared() -> None:
    assert own_process({900: 1}, {900: 1, 31337: 1}, 12) == 31337


def test_two_that_appeared_at_once_tell_nothing() -> None:
    assert own_process({}, {5: 1, 6: 1}, 12) is None


def test_lists_that_nvml_does_not_give_tell_nothing() -> None:
    assert own_process(None, {5: 1}, 12) is None
    assert own_process({}, None, 12) is None


def test_the_process_whose_memory_grew_by_what_we_took_is_us() -> None:
    before = {5: 300 * MIB, 6: 500 * MIB}
    assert grown_process(before, {5: 300 * MIB + FINGERPRINT_BYTES, 6: 501 * MIB}, FINGERPRINT_BYTES) == 5
    assert grown_process(before, {5: 600 * MIB, 6: 900 * MIB}, FINGERPRINT_BYTES) is None
    both = {5: 300 * MIB + FINGERPRINT_BYTES, 6: 500 * MIB + FINGERPRINT_BYTES}
    assert grown_process(before, both, FINGERPRINT_BYTES) is None
    assert grown_process({5: None}, {5: None}, FINGERPRINT_BYTES) is None


def nothing_grew() -> tuple[None, None]:
    return None, None


def test_on_the_host_our_whole_tree_is_ours() -> None:
    pid = os.getpid()
    ownership = find_ownership({}, {pid: 1}, nothing_grew, environ={})
    assert ownership.known
    uses = [ProcessUse(pid, 99), ProcessUse(os.getppid(), 99), ProcessUse(2**22 + 1, 99)]
    assert active_others(uses, ownership) == (uses[2],)


def test_a_child_started_later_is_ours_as_well() -> None:
    ownership = find_ownership({}, {os.getpid(): 1}, nothing_grew, environ={})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert active_others([ProcessUse(child.pid, 99)], ownership) == ()
        child.communicate(b"\n")


def test_a_child_that_has_ended_is_still_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    # NVML names it for up to a second more.
    monkeypatch.setattr(host, "_ours", set())
    ownership = find_ownership({}, {os.getpid(): 1}, nothing_grew, environ={})
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert active_others([ProcessUse(child.pid, 99)], ownership) == (ProcessUse(child.pid, 99),)
    host.remember(child.pid)
    assert active_others([ProcessUse(child.pid, 99)], ownership) == ()


def test_in_a_container_only_our_own_host_id_is() -> None:
    ownership = find_ownership({1: 1}, {1: 1, 31337: 1}, nothing_grew, environ={})
    assert ownership.own == {31337}
    assert "another pid namespace" in ownership.how


def test_a_context_that_was_open_before_is_recognised_by_its_memory() -> None:
    def fingerprint() -> tuple[dict[int, int | None], dict[int, int | None]]:
        return {31337: 300 * MIB, 8: 40 * MIB}, {31337: 300 * MIB + FINGERPRINT_BYTES, 8: 40 * MIB}

    uses: dict[int, int | None] = {31337: 300 * MIB, 8: 40 * MIB}
    assert find_ownership(uses, uses, fingerprint, environ={}).own == {31337}


def test_where_we_cannot_be_found_nobody_is_accused() -> None:
    ownership = find_ownership({1: 1, 2: 1}, {1: 1, 2: 1}, nothing_grew, environ={})
    assert not ownership.known
    assert active_others([ProcessUse(1, 100)], ownership) == ()


def test_others_are_those_that_are_busy_not_those_that_are_there() -> None:
    uses = [ProcessUse(1, 100), ProcessUse(2, 4), ProcessUse(3, 5), ProcessUse(9, 80)]
    assert active_others(uses, Ownership(frozenset({9}))) == (ProcessUse(1, 100), ProcessUse(3, 5))
    assert active_others(None, Ownership()) == ()


PARENTS = {1: 0, 10: 1, 20: 10, 30: 20, 31: 20, 40: 30, 50: 10}


def test_a_tree_is_all_above_and_all_below() -> None:
    assert process_tree(30, PARENTS) == {10, 20, 30, 40}


def test_the_workers_of_one_pytest_are_one_tree() -> None:
    assert process_tree(30, PARENTS, siblings_too=True) == {10, 20, 30, 31, 40}


def test_a_process_without_a_known_parent_is_its_own_tree() -> None:
    assert process_tree(99, PARENTS) == {99}


def test_the_real_proc_knows_our_parent() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("no /proc on this system")
    assert parents_of_all()[os.getpid()] == os.getppid()


def test_program_names_with_brackets_and_spaces_are_parsed(tmp_path: Path) -> None:
    for pid, text in (("7", "7 (a (b) c) S 3 7 7"), ("8", "8 (x) R 7"), ("9", "garbage")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_text(text)
    (tmp_path / "10").mkdir()  # ended meanwhile
    assert parents_of_all(tmp_path) == {7: 3, 8: 7}


def test_a_process_in_words() -> None:
    assert describe(ProcessUse(4711, 80), "/usr/bin/python3.11") == "python3.11 (pid 4711, 80 %)"
    assert describe(ProcessUse(4711, 80), None) == "process (pid 4711, 80 %)"
