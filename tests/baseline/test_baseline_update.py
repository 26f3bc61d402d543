"""An update changes its own entries, and keeps every other byte of a file, also of one that a person formatted."""

import json
import os
import random
import re
import stat
from dataclasses import replace

import pytest
from baseline_files import write_baseline

from pytest_bandwidth import __version__
from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.schema import RECORDED, entry_fields
from pytest_bandwidth.baseline.update import edit_lines
from pytest_bandwidth.domain.baseline import PROBE_VERSION, Baseline, Entry, Run, settled
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError, UsageError

A100 = DeviceIdentity("cuda", "NVIDIA A100-SXM4-80GB", 80 * 2**30, "GPU-1", timed_on="gpu")
RUN = Run(1747.1, 1754.0, 0.9961, 212, "GPU-8a", "0123456", "2026-11-21T04:00:00Z")
ANCHOR = Run(1747.1, relative=0.9961, commit="0123456", at="2026-11-21T04:00:00Z")
MEASURED = Entry(
    "tests/test_a.py::test_a",
    1747.1,
    tolerance=0.03,
    judged_on="relative",
    bytes_read=1,
    anchor=ANCHOR,
    code={"ptx": "0" * 32},
    runs=(RUN,),
)
RUNS = "a100.runs.jsonl"

# Every layout here is a person's: comments, order, quotes and blank lines are theirs.
BY_HAND = """\
# Taken on the machine in the corner.
schema: 2   # the first
device: {name: "NVIDIA A100-SXM4-80GB", memory_gib: 80}

tests:

  # --- streams ---
  tests/test_s.py::test_copy:
    tolerance: '3%'    # quoted, and before bandwidth
    bandwidth: 1747.1 GB/s         # by hand

    # loose
    note: "café"

  "tests/test_s.py::test_add": {bandwidth: 1.6 TiB/s}   # flow
    # indented remark
  tests/test_s.py::test_runs:
    bandwidth: 1701.0 GB/s
    # the evidence
    runs: 2              # cold days
    xfail: known
  # the end
zz_footer: kept
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a100.yaml"


def changed_lines(before, after):
    """Lines that only one of two texts has, compared line by line in order."""
    import difflib

    diff = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    return [line[2:] for line in diff if line[0] == "-"], [line[2:] for line in diff if line[0] == "+"]


def test_a_new_file_holds_the_device_and_the_entry(path):
    (change,) = baseline_files.update(path, A100, [MEASURED])
    assert (change.key, change.before) == (MEASURED.key, None)
    assert path.read_text() == (
        "schema: 2\ndevice: {name: NVIDIA A100-SXM4-80GB, memory_gib: 80, kind: cuda}\ntests:\n"
        "  tests/test_a.py::test_a:\n    bandwidth: 1747.1 GB/s\n    of_probe: 99.6 %\n    bytes: {read: 1}\n"
        "    runs: 1\n    tolerance: 3 %\n"
    )
    (line,) = path.with_name(RUNS).read_text().splitlines()
    plain = json.loads(line)
    assert re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]{6}\.0", plain.pop("id"))
    assert plain == {
        "schema": 2,
        "at": "2026-11-21T04:00:00Z",
        "plugin": __version__,
        "probe": PROBE_VERSION,
        "commit": "0123456",
        "gpu": "GPU-8a",
        "tests": {
            MEASURED.key: {
                "gbps": 1747.1,
                "probe_gbps": 1754.0,
                "relative": 0.9961,
                "samples": 212,
                "new": "runs",
                "setup": {"judged_on": "relative", "code": {"ptx": "0" * 32}},
            }
        },
    }
    assert baseline_files.load(path).entries.get(MEASURED.key) == MEASURED


def test_the_same_figures_again_change_nothing(path):
    baseline_files.update(path, A100, [MEASURED])
    before, lines = path.stat(), path.with_name(RUNS).read_text()
    assert not baseline_files.update(path, A100, [replace(MEASURED, gbps=1747.1000001)])
    assert path.stat().st_ino == before.st_ino  # not even written anew
    assert path.with_name(RUNS).read_text() == lines


def test_an_appended_run_changes_its_entry_only(path):
    key = "tests/test_s.py::test_runs"
    baseline_files.update(path, A100, [Entry(key, runs=(Run(1700.0), Run(1702.0)))])
    path.write_text(BY_HAND)

    def append(old, new):
        return replace(old, runs=(*old.runs, *new.runs))

    (change,) = baseline_files.update(path, A100, [Entry(key, runs=(Run(1710.0),))], merge_in=lambda _: append)
    removed, added = changed_lines(BY_HAND, path.read_text())
    assert removed == ["    bandwidth: 1701.0 GB/s", "    runs: 2              # cold days"]
    assert added == ["    bandwidth: 1702.0 GB/s", "    runs: 3 ± 0.31 %              # cold days"]
    assert (change.before.gbps, change.after.gbps) == (1701.0, 1702.0)


def test_new_entries_go_after_the_last_with_the_files_own_line_ends(path):
    path.write_text(BY_HAND)
    baseline_files.update(path, A100, [MEASURED])
    removed, added = changed_lines(BY_HAND, path.read_text())
    assert removed == []
    assert added[0] == "  tests/test_a.py::test_a:"
    assert path.read_text().endswith("  # the end\nzz_footer: kept\n")
    path.write_bytes(BY_HAND.replace("\n", "\r\n").encode())
    baseline_files.update(path, A100, [MEASURED])
    data = path.read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n")
    assert MEASURED.key in baseline_files.load(path).entries


def test_a_merge_can_leave_entries_alone(path):
    baseline_files.update(path, A100, [MEASURED])
    new = [replace(MEASURED, gbps=5.0, runs=()), Entry("other", 5.0)]
    changes = baseline_files.update(path, A100, new, merge_in=lambda _: lambda old, new: None if old else new)
    assert [change.key for change in changes] == ["other"]
    assert baseline_files.load(path).entries[MEASURED.key] == MEASURED


def test_a_peak_that_cannot_be_is_told(path):
    path.write_text("schema: 2\n# in TB/s\ndevice: {name: NVIDIA A100-SXM4-80GB, peak: 2.039}\ntests:\n")
    with pytest.raises(
        BaselineError, match=r"yaml:3: found 8.568e\+04 % of the peak for .*: correct the device's peak"
    ):
        baseline_files.update(path, A100, [MEASURED])


def test_a_file_without_a_device_gets_one(path):
    path.write_text("# mine\nschema: 2\ntests:\n  a: {bandwidth: 5}\n")
    baseline_files.update(path, A100, [Entry("b", 6.0)])
    assert path.read_text() == (
        "# mine\nschema: 2\ndevice: {name: NVIDIA A100-SXM4-80GB, memory_gib: 80, kind: cuda}\ntests:\n"
        "  a: {bandwidth: 5}\n  b:\n    bandwidth: 6.0 GB/s\n"
    )


LAYOUTS = (
    "schema: 2\ntests:\n  a:\n    bandwidth: 5\n    note: 'x\n  b: y'\n",
    "schema: 2\ntests:",
    "schema: 2\ntests:\n  a: {bandwidth: 5}",
    "schema: 2\ntests:\n      a:\n            bandwidth: 5\n",
    "schema: 2\ntests:\n  ? a\n  : bandwidth: 5\n",
)


@pytest.mark.parametrize("text", LAYOUTS)
def test_layouts_that_updates_do_not_write(path, text):
    path.write_text(text)
    before = baseline_files.load(path).entries
    baseline_files.update(path, A100, [MEASURED, Entry("a", 6.0)])
    after = baseline_files.load(path)
    assert {**before, MEASURED.key: MEASURED, "a": Entry("a", 6.0)} == after.entries
    assert after.device is not None
    baseline_files.remove(path, ["a"])
    assert "a" not in baseline_files.load(path).entries


@pytest.mark.parametrize(
    "text",
    [
        "schema: 2\ntests: {a: {bandwidth: 5, note: 'x'}}\n",
        "{schema: 2, tests: {a: {bandwidth: 5, note: 'x'}}}\n",
        "schema: 2\n",
        '"schema": 2\n"tolerance": 5%\n"tests":\n  a: {bandwidth: 5}\n',
    ],
)
def test_tests_that_are_not_below_a_line_of_their_own_are_not_edited(path, text):
    path.write_text(text)
    with pytest.raises(BaselineError, match="expected entries below a line tests: as updates write them: nothing was"):
        baseline_files.update(path, A100, [Entry("a", 6.0)])
    assert path.read_text() == text


def test_every_key_comes_back(path):
    keys = ("x" * 3000, f"t::a[{'é' * 999}]", "a: b #c", '"', "'", "- a", "? a", "<<", "{a}", "a\\b", "a b")
    for gbps in (5.0, 6.0):
        baseline_files.update(path, A100, [Entry(key, gbps) for key in keys])
        found = baseline_files.load(path).entries
        assert {key: entry.gbps for key, entry in found.items()} == dict.fromkeys(keys, gbps)


@pytest.mark.parametrize("text", ["a\x1bb", "a\u202eb", "a\udc80b"])
def test_text_that_no_file_may_hold_is_refused(path, text):
    baseline_files.update(path, A100, [MEASURED])
    before, lines = path.read_bytes(), path.with_name(RUNS).read_bytes()
    for entry in (Entry(text, 5.0), Entry("a", 5.0, note=text), Entry("a", runs=(Run(5.0, commit=text),))):
        with pytest.raises(UsageError, match=r"found .*, expected visible text"):
            baseline_files.update(path, A100, [entry])
    assert (path.read_bytes(), path.with_name(RUNS).read_bytes()) == (before, lines)


def test_mode_stays_and_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "real" / "a.yaml", tmp_path / "link.yaml"
    baseline_files.update(target, A100, [MEASURED])
    target.chmod(0o640)
    link.symlink_to(target)
    baseline_files.update(link, A100, [Entry("b", 5.0)])
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert "b" in baseline_files.load(target).entries


@pytest.mark.parametrize("text", ["schema: 2\ntests:\n  a: {bandwidth: x}\n", "\0", "", "schema: 3\n"])
def test_a_bad_file_is_never_overwritten(path, text):
    path.write_text(text)
    with pytest.raises(BaselineError):
        baseline_files.update(path, A100, [MEASURED])
    with pytest.raises(BaselineError):
        baseline_files.remove(path, ["a"])
    with pytest.raises(BaselineError, match="found a file there already"):
        baseline_files.init(path, A100)
    assert path.read_text() == text
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("gives", "error", "said"),
    [
        ({"updates": [Entry("b", 5.0)], "merge_in": lambda _: lambda *_: 1 / 0}, ZeroDivisionError, "division"),
        ({"updates": [Entry("a", 5.0), Entry("a", 6.0)]}, UsageError, "found two updates of 'a', expected one"),
        (
            {"identity": replace(A100, name="NVIDIA H200"), "updates": [MEASURED]},
            BaselineError,
            "found a baseline of 'NVIDIA A100-SXM4-80GB' .*, 'NVIDIA H200'",
        ),
    ],
    ids=["a merge that fails", "two of one key", "another device"],
)
def test_an_update_that_fails_changes_nothing(path, gives, error, said):
    baseline_files.update(path, A100, [MEASURED])
    before = path.read_bytes()
    with pytest.raises(error, match=said):
        baseline_files.update(path, **{"identity": A100, **gives})
    assert path.read_bytes() == before
    assert sorted(os.listdir(path.parent)) == [RUNS, path.name]


def test_a_measured_entry_has_nothing_of_the_set_up_that_it_had_by_hand(path):
    write_baseline(path, Baseline(None, {"a": Entry("a", 1.0, resources={"registers": 8})}))
    baseline_files.update(path, A100, [Entry("a", 1.0, runs=(Run(1.0),))])
    assert baseline_files.load(path).entries["a"].resources == {}


DEVICE = DeviceIdentity("cpu", "X", None, "host")
HEAD = "schema: 2\ndevice: {name: X, kind: cpu}\ntests:\n"
FIELDS = (
    "    tolerance: '3%%'%s\n",
    "    note: plain%s\n",
    "    note: |\n      literal\n      # no comment%s\n",
    "    note: >-\n      folded\n      text\n%s",
    "    settings: {mig: off, a: \"b\"}%s\n",
    "    settings:%s\n      mig: off\n      ecc: on\n",
    "    zz_later: 0123%s\n",
    "    xfail: because%s\n",
    "    of_probe: '99 %%'%s\n",
    "    runs: 1 ± 0.5 %%%s\n",
    "    bytes: {read: 5,%s\n      written: 7}\n",
)  # fmt: skip
EDITS = (
    lambda entry: replace(entry, gbps=6.0),
    lambda entry: replace(entry, runs=(Run(5.0, relative=0.9), Run(5.2, commit="c"))),
    lambda entry: replace(entry, gbps=7.0, runs=(Run(7.0),), bytes_read=6),
    lambda entry: replace(entry, tolerance=0.07, note=None),
    lambda entry: replace(entry, settings={"mig": "on"}, xfail="other", bytes_read=7),
)


def entry_text(key, choose):
    """An entry as some person might lay it out."""
    chosen = {}
    for text in choose.sample(FIELDS, 4):
        chosen.setdefault(text.split(":")[0], text)
    fields = ["    bandwidth: 5.0 GB/s%s\n", *chosen.values()]
    choose.shuffle(fields)

    def remark():
        return choose.choice(["", "", "  # why"])

    def line(indent):
        return choose.choice(["", "", f"{' ' * indent}# line {choose.random()}\n", "\n"])

    text = f"  {key}:{remark()}\n"
    for one in fields:
        text += line(4) + (one % ("" if ">-" in one else remark()))
    return text


@pytest.mark.parametrize("seed", range(40))
def test_hand_formed_entries(tmp_path, seed):
    choose = random.Random(seed)
    before, target, after = (entry_text(key, choose) for key in "abc")
    path = tmp_path / "x.yaml"
    path.write_text(f"{HEAD}# first\n{before}  # second\n{target}\n  # third\n{after}")
    old = baseline_files.load(path).entries["b"]
    new = choose.choice(EDITS)(old)
    baseline_files.update(path, DEVICE, [new])
    text = path.read_text()
    assert text.startswith(f"{HEAD}# first\n{before}  # second\n  ")
    assert text.endswith(f"\n  # third\n{after}")
    comments = [line.strip() for line in target.splitlines() if line.strip().startswith("# line")]
    assert [line.strip() for line in text.splitlines() if line.strip() in comments] == comments
    assert entry_fields(baseline_files.load(path).entries["b"], RECORDED) == entry_fields(settled(new), RECORDED)


@pytest.mark.parametrize(
    ("block", "old", "changes", "expected"),
    [
        (  # unchanged fields keep their spelling
            "  b:\n    bandwidth:   '5 GB/s'   # x\n    tolerance: 0.03\n    # of runs\n    runs:  1 # a\n",
            Entry("b", 5.0, tolerance=0.03, runs=(Run(5.0),)),
            {"runs": (Run(5.0), Run(5.0)), "bytes_read": 1},
            "  b:\n    bandwidth:   '5 GB/s'   # x\n    bytes: {read: 1}\n    tolerance: 0.03\n    # of runs\n"
            "    runs:  2 ± 0 % # a\n",
        ),
        (  # what the runs record stays where a person wrote it, as long as it holds
            "  b:\n    bandwidth: 5.0 GB/s\n    settings: {mig: off}\n    judged_on: gbps  # mine\n",
            Entry("b", 5.0, judged_on="gbps", settings={"mig": "off"}),
            {"settings": {"mig": "on"}, "runs": (Run(5.0),)},
            "  b:\n    bandwidth: 5.0 GB/s\n    runs: 1\n    judged_on: gbps  # mine\n",
        ),
    ],
)
def test_only_the_lines_of_what_changed_are_edited(block, old, changes, expected):
    assert edit_lines(block, old, replace(old, **changes)) == expected


def test_an_entry_whose_fields_share_lines_is_written_afresh_below_its_comments(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(f"{HEAD}  'b # x': {{  # one\n    # two\n    note: 'no # comment', bandwidth: 5}}  # three\n")
    baseline_files.update(path, DEVICE, [Entry("b # x", 6.0)])
    written = '  # one\n  # two\n  # three\n  "b # x":\n    bandwidth: 6.0 GB/s\n'
    assert path.read_text() == f"{HEAD}{written}"
