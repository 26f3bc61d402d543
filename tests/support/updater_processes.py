"""Update one baseline from several processes: a script, single-threaded, because it forks.

python updater_processes.py kill PATH ROUNDS SEED     kills updates at random moments, checks the file after each
python updater_processes.py together PATH PROCESSES UPDATES   lets processes update at once
python updater_processes.py hold PATH                 takes the lock, says so, and sleeps
Prints one JSON object with what was seen.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.files import locked
from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity

DEVICE = DeviceIdentity("cpu", "X", None, "host")
OTHERS = 300


@contextmanager
def without_privileges() -> Iterator[None]:
    """Give up root's rights, which would let it write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def fill(path: Path) -> None:
    """Make a baseline with enough entries that writing it takes a while."""
    runs = tuple(Run(1000.0 + number, commit="0123456") for number in range(5))
    others = [Entry(f"tests/test_other.py::test_{number}", runs=runs) for number in range(OTHERS)]
    baseline_files.update(path, DEVICE, [*others, Entry("counter", 1.0)])


def count_up(path: Path) -> int:
    """Raise the counter by one in one update, and record a run of that value; return it."""
    counted = 0.0

    def one_more(old: Entry | None, new: Entry) -> Entry:
        nonlocal counted
        if new.key == "evidence":
            return replace(old or new, runs=(*(old.runs if old else ()), Run(counted, commit="0123456")))
        assert old is not None
        assert old.gbps is not None
        counted = old.gbps + 1
        return replace(old, gbps=counted)

    baseline_files.update(path, DEVICE, [Entry("counter", 1.0), Entry("evidence", 1.0)], merge_in=lambda _: one_more)
    return int(counted)


def recorded(path: Path) -> list[int]:
    """Return the values that the file of runs has a line of."""
    lines = path.with_suffix(".runs.jsonl").read_text().splitlines() if path.with_suffix(".runs.jsonl").exists() else []
    tests = [json.loads(line)["tests"] for line in lines if line.endswith("}}}")]
    return sorted(int(of_line["evidence"]["gbps"]) for of_line in tests if "evidence" in of_line)


def forked(work: Callable[[], None]) -> int:
    """Run work in a child that never returns from here; return the child's process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def kill(path: Path, rounds: int, seed: int) -> dict[str, int]:
    fill(path)
    begun = time.monotonic()
    count_up(path)
    longest = 3 * (time.monotonic() - begun)  # on whatever machine, most kills fall into an update
    chance = random.Random(seed)
    seen = {"rounds": 0, "updates": 0, "killed_while_writing": 0, "killed_while_locked": 0}
    for _ in range(rounds):
        reader, writer = os.pipe()

        def update_for_ever(writer: int = writer) -> None:
            while True:
                os.write(writer, count_up(path).to_bytes(4, "little"))

        before = counter_of(path)
        child = forked(update_for_ever)
        os.close(writer)
        time.sleep(chance.uniform(0.0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        acknowledged = before
        while data := os.read(reader, 4):
            acknowledged = int.from_bytes(data, "little")
        os.close(reader)
        found = counter_of(path)
        # Old or new, nothing between: what was reported done is there, and at most the one update that was under way.
        assert found in (acknowledged, acknowledged + 1), (found, acknowledged)
        assert set(recorded(path)) >= set(range(2, acknowledged + 1))
        seen["rounds"] += 1
        seen["updates"] += found - before
        seen["killed_while_writing"] += path.with_name(f".{path.name}.new").exists()
        seen["killed_while_locked"] += path.with_name(f".{path.name}.lock").exists()
    count_up(path)
    assert sorted(os.listdir(path.parent)) == ["a.runs.jsonl", path.name], os.listdir(path.parent)
    return seen


def counter_of(path: Path) -> int:
    baseline = baseline_files.load(path)
    assert len(baseline.entries.keys() - {"evidence"}) == OTHERS + 1
    counter = baseline.entries["counter"].gbps
    assert counter is not None
    return int(counter)


def together(path: Path, processes: int, updates: int) -> dict[str, int]:
    baseline_files.update(path, DEVICE, [Entry("counter", 1.0)])

    def work(process: int) -> None:
        for number in range(updates):
            count_up(path)
            baseline_files.update(path, DEVICE, [Entry(f"tests/test_{process}.py::test_{number}", 5.0)])

    children = [forked(lambda process=process: work(process)) for process in range(processes)]
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    baseline = baseline_files.load(path)
    counter = baseline.entries["counter"].gbps
    assert counter is not None
    entries = len(baseline.entries.keys() - {"counter", "evidence"})
    # Each value once: no run is lost, none is taken for another.
    assert recorded(path) == list(range(2, int(counter) + 1))
    return {"failed": failed, "entries": entries, "counter": int(counter) - 1}


def hold(path: Path) -> None:
    with locked(path):
        print(os.getpid(), flush=True)
        time.sleep(60)


if __name__ == "__main__":
    command, file, *numbers = sys.argv[1:]
    if command == "hold":
        hold(Path(file))
    else:
        result = {"kill": kill, "together": together}[command](Path(file), *map(int, numbers))
        print(json.dumps(result))
