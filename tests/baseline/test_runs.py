"""The machine's runs: git merges their lines, in any order and cut anywhere they are read, hostile ones are refused."""

import json
import random
import subprocess
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest
from repositories import committed, git

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.runs import MAX_LINES
from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError

CARD = DeviceIdentity("cuda", "A card", 2**34, "GPU-1")
ONE, TWO = "tests/test_a.py::test_one", "tests/test_a.py::test_two"
CODE, OTHER = {"ptx": "a" * 32}, {"ptx": "b" * 32}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "card.yaml"


def runs_of(path):
    return path.with_name("card.runs.jsonl")


def append(old, new):
    return new if old is None else replace(new, runs=(*old.runs, *new.runs), anchor=old.anchor)


def add(path, *gbps, key=ONE, commit="0123456", code=CODE, **more):
    runs = tuple(Run(one, commit=commit, extra={"numpy": "2.0"}) for one in gbps)
    baseline_files.update(path, CARD, [Entry(key, code=code, runs=runs, **more)], merge_in=lambda _: append)


def figures(path, key=ONE):
    return [run.gbps for run in baseline_files.load(path).entries[key].runs]


def test_tests_of_one_process_that_know_other_versions_are_not_confused(path):
    runs = {key: (Run(100.0, extra={"numpy": version}),) for key, version in ((ONE, "1.0"), (TWO, "2.0"))}
    baseline_files.update(path, CARD, [Entry(key, code=CODE, runs=of) for key, of in runs.items()])
    assert {key: entry.runs for key, entry in baseline_files.load(path).entries.items()} == runs


def test_any_order_of_lines_and_any_line_twice_loads_the_same(path):
    for number in range(6):
        add(path, 100.0 + number, code=CODE if number < 4 else OTHER)
    expected = baseline_files.load(path).entries
    lines = runs_of(path).read_text().splitlines(keepends=True)
    for seed in range(5):
        shuffled = [*lines, *random.Random(seed).choices(lines, k=3)]
        random.Random(seed).shuffle(shuffled)
        runs_of(path).write_text("".join(shuffled))
        assert baseline_files.load(path).entries == expected
    assert expected[ONE].code == OTHER
    assert expected[ONE].anchor == Run(100.0, commit="0123456")


def test_an_entry_that_starts_afresh_keeps_its_old_lines_but_not_their_runs(path):
    add(path, 100.0, 101.0)
    baseline_files.update(path, CARD, [Entry(ONE, code=OTHER, runs=(Run(50.0), Run(51.0)))])
    add(path, 52.0, code=OTHER)
    found = baseline_files.load(path).entries[ONE]
    assert [run.gbps for run in found.runs] == [50.0, 51.0, 52.0]
    assert found.anchor == Run(50.5)
    assert len(runs_of(path).read_text().splitlines()) == 5


def test_twenty_runs_at_once_continue_what_they_follow(path):
    add(path, 100.0)
    add(path, *(101.0 + number for number in range(20)))
    found = baseline_files.load(path).entries[ONE]
    assert (len(found.runs), found.anchor) == (20, Run(100.0, commit="0123456"))


def test_dram_counts_that_no_longer_hold_are_dropped_from_older_runs(path):
    first, second = (Run(100.0 + n, dram_read=n, dram_written=n) for n in (10, 20))
    baseline_files.update(path, CARD, [Entry(ONE, code=CODE, runs=(first,))])
    without = replace(first, dram_read=None, dram_written=None)
    baseline_files.update(path, CARD, [Entry(ONE, code=CODE, runs=(without, second), anchor=Run(110.0))])
    assert baseline_files.load(path).entries[ONE].runs == (without, second)


def test_without_its_runs_an_entry_works_as_one_written_by_hand(path):
    add(path, 100.0, 101.0)
    kept = runs_of(path).read_text()
    runs_of(path).unlink()
    found = baseline_files.load(path)
    assert found.entries[ONE] == Entry(ONE, 100.5)
    missing = "found no such file, expected the runs of 1 test: restore it from git, or update"
    assert found.note == f"{runs_of(path)}: {missing}"
    runs_of(path).write_text(kept)
    path.write_text(f"schema: 2\ntests:\n  {ONE}:\n    bandwidth: 7 GB/s\n")
    assert baseline_files.load(path).entries[ONE] == Entry(ONE, 7.0)


def test_a_torn_last_line_is_noted_and_completed_by_the_next_writer(path):
    add(path, 100.0)
    whole = runs_of(path).read_text()
    for cut in (len(whole) // 2, 10, 1):
        runs_of(path).write_text(whole + whole[:cut])
        found = baseline_files.load(path)
        assert "its last line was not written whole and is ignored" in found.note
        assert [run.gbps for run in found.entries[ONE].runs] == [100.0]
        add(path, 101.0)
        assert figures(path) == [100.0, 101.0]
        assert runs_of(path).read_text().startswith(whole)
        assert baseline_files.load(path).note is None
        path.write_text(path.read_text().replace("bandwidth: 100.5", "bandwidth: 100.0"))
    runs_of(path).write_text(whole.removesuffix("\n"))  # whole, but for its end
    assert figures(path) == [100.0]
    add(path, 102.0)
    assert figures(path) == [100.0, 102.0]


@pytest.mark.parametrize("attributes", [True, False])
def test_two_branches_that_both_updated_merge_by_themselves(tmp_path, attributes):
    git(tmp_path, "init", "-q", "-b", "main")
    path = tmp_path / "baselines" / "card.yaml"
    add(path, 100.0)
    add(path, 200.0, key=TWO)
    assert path.with_name(".gitattributes").read_text() == "*.runs.jsonl merge=union\n"
    if not attributes:
        path.with_name(".gitattributes").write_text("# the user's own\n")
    committed(tmp_path)
    git(tmp_path, "checkout", "-qb", "side")
    add(path, 101.0)
    committed(tmp_path)
    git(tmp_path, "checkout", "-q", "main")
    add(path, 201.0, key=TWO)
    add(path, 202.0, key=TWO)
    committed(tmp_path)
    merge = ("-c", "user.name=n", "-c", "user.email=e@localhost", "merge", "-q", "side")
    if not attributes:
        with pytest.raises(subprocess.CalledProcessError):
            git(tmp_path, *merge)
        with pytest.raises(BaselineError, match=r"jsonl:\d+: found the merge conflict marker '<<<<<<< HEAD', expected"):
            baseline_files.load(path)
        assert path.with_name(".gitattributes").read_text() == "# the user's own\n"
        return
    with suppress(subprocess.CalledProcessError):  # entries next to each other are one hunk, for people to settle
        git(tmp_path, *merge)
    git(tmp_path, "checkout", "HEAD", "--", str(path))  # runs never are
    assert figures(path) == [100.0, 101.0]
    assert figures(path, TWO) == [200.0, 201.0, 202.0]
    add(path, 102.0)
    assert figures(path) == [100.0, 101.0, 102.0]


def line(**changes):
    plain = {"schema": 2, "id": "18ebe921fd8f11ef-a3ec2f.0", "tests": {ONE: {"gbps": 100.0}}, **changes}
    return json.dumps(plain, ensure_ascii=False)


BAD_FIELDS = {
    "schema": (1, "2"),
    "id": ("x", 5, "f" * 17 + "-a3ec2f.0"),
    "at": ("noon", 5),
    "dirty": ("yes",),
    "tests": ([], {ONE: 5}),
    "facts": ([], {"a": [1]}, {"a": "x" * 2000}),
    "gpu": ("a\x1bb",),
    "commit": ("a\nb", ""),
}
NO_HASHES = ("xyz", "A" * 32, "a" * 33, "../../etc/passwd")
BAD_FIGURES = {
    "gbps": (-1.0, 0.0, True, "100", 1e300),
    "relative": (-1.0,),
    "samples": (1.5, -1, 2**63),
    "setup": (
        *(5, {"settings": 5}, {"settings": {"a": {}}}, {"resources": {"registers": "many"}}),
        *({"judged_on": "speed"}, {"method": "a\u202eb"}),
        *({"code": code} for code in (["a"], "text", {"ptx": {}}, *({"ptx": bad} for bad in NO_HASHES))),
    ),
}


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "5", "null", "NaN", "<<<<<<< HEAD", "=======", "[" * 100_000, '{"a":' * 100_000, "9" * 10_000),
        *(line(**{name: bad}) for name, values in BAD_FIELDS.items() for bad in values),
        *(line(tests={ONE: {"gbps": 100.0, name: bad}}) for name, values in BAD_FIGURES.items() for bad in values),
        '{"schema":2,"id":"18ebe921fd8f11ef-a3ec2f.0","tests":{"' + ONE + '":{"gbps":1e999}}}',
        '{"schema":2,"id":"18ebe921fd8f11ef-a3ec2f.0","tests":{"' + ONE + '":{"gbps":Infinity}}}',
    ],
)
def test_a_line_of_another_form_is_an_error_of_one_line(path, text):
    path.write_text(f"schema: 2\ntests:\n  {ONE}:\n    bandwidth: 100 GB/s\n    runs: 1\n")
    runs_of(path).write_bytes(f"{line(id='18ebe921fd8f11ee-a3ec2f.0')}\n{text}\n".encode("utf-8", "surrogatepass"))
    with pytest.raises(BaselineError) as caught:
        baseline_files.load(path)
    (said,) = str(caught.value).splitlines()
    assert said.startswith(f"{runs_of(path)}:2: found ")
    assert "expected" in said
    assert len(said) < 400
    assert said.isprintable()
    before = runs_of(path).read_bytes(), path.read_bytes()
    with pytest.raises(BaselineError):
        add(path, 100.0)
    assert (runs_of(path).read_bytes(), path.read_bytes()) == before


@pytest.mark.parametrize(
    "content",
    [b"\xff\n", b"\0" * 2**16, "\ufeff{}\n".encode(), b"\n" * (MAX_LINES + 1), b"{}\n" * 2**14, b"[],\n" * 2**14],
)
def test_a_hostile_file_of_runs_ends_in_errors_and_little_memory(path, content):
    path.write_text(f"schema: 2\ntests:\n  {ONE}:\n    bandwidth: 100 GB/s\n    runs: 1\n")
    runs_of(path).write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(BaselineError) as caught:
            baseline_files.load(path)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert len(caught.value.problems) <= 1001


def test_what_a_later_version_adds_to_a_line_is_let_be(path):
    path.write_text(f"schema: 2\ntests:\n  {ONE}:\n    bandwidth: 100 GB/s\n    runs: 1\n")
    runs_of(path).write_text(f"{line(later=[1], tests={ONE: {'gbps': 100.0, 'later': {}}, TWO: 5})}\n\n")
    assert figures(path) == [100.0]
