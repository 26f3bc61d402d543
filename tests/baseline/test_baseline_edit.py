"""Entries formed by hand are edited in place: what stays keeps its characters, and no comment line is lost."""

import random
from dataclasses import replace

import pytest

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.schema import RECORDED, entry_fields
from pytest_bandwidth.baseline.update import edit_lines
from pytest_bandwidth.domain.baseline import Entry, Run, settled
from pytest_bandwidth.domain.device import DeviceIdentity

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
    assert text.startswith(f"{HEAD}# first\n{before}  # second\n  b:")
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
        (  # a mapping on lines of its own becomes one line
            "  b:\n    bandwidth: 5\n    settings:  # why\n      mig: off\n      ecc: on\n    note: x\n",
            Entry("b", 5.0, note="x", settings={"mig": "off", "ecc": "on"}),
            {"settings": {"mig": "on"}},
            "  b:\n    bandwidth: 5\n    settings: {mig: on}  # why\n    note: x\n",
        ),
        (  # comments between the lines of a value go above it
            "  b:\n    bandwidth: 5\n    settings:  # why\n      # inside\n      mig: off\n"
            "    note: |  # a text\n      # no comment\n    bytes: {read: 5,  # one\n      written: 5}  # two\n",
            Entry("b", 5.0, note="# no comment", settings={"mig": "off"}, bytes_read=5, bytes_written=5),
            {"note": "x", "settings": {"mig": "on"}, "bytes_read": 6},
            "  b:\n    bandwidth: 5\n    # inside\n    settings: {mig: on}  # why\n    note: x  # a text\n"
            "    # one\n    # two\n    bytes: {read: 6, written: 5}\n",
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


# `"tests":` in quotes is no line that updates write: the whole file is written afresh.
TANGLED = """\
"schema": 2  # quoted
"tests":
  # above
  b:  # the entry
    bandwidth: '5 GB/s'  # one
    zz_commit: 0123456
    judged_on: gbps
    tolerance:  # a third
      3%
  # of c
  c: {bandwidth: 7}
  # last
zz_footer: kept
"""


def test_a_tangled_file_keeps_its_comments_and_the_text_of_scalars(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(TANGLED)
    old = baseline_files.load(path).entries["b"]
    baseline_files.update(path, DEVICE, [replace(old, runs=(Run(5.0, commit="0000017"),))])
    assert path.read_text() == (
        "# quoted\nschema: 2\ndevice: {name: X, kind: cpu}\nzz_footer: kept\ntests:\n"
        "  # above\n  # the entry\n  # one\n  # a third\n  b:\n    bandwidth: 5.0 GB/s\n    runs: 1\n"
        "    tolerance: 3 %\n    judged_on: gbps\n    zz_commit: 0123456\n"
        "  # of c\n  # last\n  c:\n    bandwidth: 7.0 GB/s\n"
    )
    assert baseline_files.load(path).entries["b"].runs == (Run(5.0, commit="0000017"),)
