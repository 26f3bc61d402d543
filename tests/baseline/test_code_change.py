"""How a kernel's code changed since the baseline, and what is said where the baseline's PTX is of no use."""

import os
import re
from dataclasses import replace
from functools import partial

import pytest

from pytest_bandwidth.baseline.code_change import NO_CHANGE, code_change
from pytest_bandwidth.baseline.code_files import folder_of, needed_ptx
from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic

OLD = ".version 9.5\n.target sm_90\n.visible .entry k()\n{\nld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];\nret;\n}\n"
NEW = OLD.replace("v4.f32 {%f1, %f2, %f3, %f4}", "f32 %f1")
HASH = ptx_digest(OLD)
ENTRY = Entry("t.py::t", 100.0, code={"ptx": HASH, "sass": "a" * 32, "launch": "b" * 32})
DEVICE = DeviceIdentity("cuda", "A card", 2**34, "GPU-1", timed_on="gpu")
CODE = CodeIdentity(ptx=ptx_digest(NEW), sass="c" * 32, launch="b" * 32)
MEASUREMENT = Measurement(None, Traffic(1, 1), DEVICE, "events", Rounds(), code=CODE, ptx=NEW)


@pytest.fixture
def baseline(tmp_path):
    path = tmp_path / "card.yaml"
    folder_of(path).mkdir()
    (folder_of(path) / f"{HASH}.ptx").write_text(OLD)
    return path


def test_a_change_is_shown_line_by_line_and_by_accesses(baseline):
    change = code_change(MEASUREMENT, ENTRY, partial(needed_ptx, baseline))
    changed = [line for line in change.diff.splitlines() if line[0] in "+-"]
    assert changed == ["- ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];", "+ ld.global.f32 %f1, [%rd1];"]
    assert change.accesses == "in its code, loads of 32 bits 0 → 1, loads of 128 bits 1 → 0"
    assert change.unknown is None


@pytest.mark.parametrize(
    ("measurement", "entry"),
    [
        (replace(MEASUREMENT, code=replace(CODE, ptx=HASH), ptx=OLD), ENTRY),
        (replace(MEASUREMENT, code=CodeIdentity(), ptx=None), ENTRY),
        (MEASUREMENT, replace(ENTRY, code={})),  # a baseline of before
        (MEASUREMENT, None),
    ],
)
def test_nothing_is_said_where_nothing_changed_or_is_known(baseline, measurement, entry):
    assert code_change(measurement, entry, partial(needed_ptx, baseline)) == NO_CHANGE
    assert code_change(MEASUREMENT, ENTRY, None) == NO_CHANGE


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ("missing", "found no .*/code/[0-9a-f]{32}.ptx, commit it with the baseline"),
        ("cut short", "found PTX of another hash than its name says"),
        ("of another kernel", "found PTX of another hash than its name says"),
        ("a folder", "found a folder, expected a kernel's PTX"),
        ("a pipe", "found a device or pipe, expected a kernel's PTX"),
        ("no text", "found PTX of another hash than its name says"),
    ],
)
def test_ptx_that_is_of_no_use_is_told_and_not_shown(baseline, spoil, why):
    file = folder_of(baseline) / f"{HASH}.ptx"
    file.unlink()
    if spoil == "cut short":
        file.write_text(OLD[:-3])
    elif spoil == "of another kernel":
        file.write_text(OLD.replace(" k(", " l("))
    elif spoil == "a folder":
        file.mkdir()
    elif spoil == "a pipe":
        os.mkfifo(file)
    elif spoil == "no text":
        file.write_bytes(b"\xff\xfe\x00" * 100)
    change = code_change(MEASUREMENT, ENTRY, partial(needed_ptx, baseline))
    assert (change.diff, change.accesses) == ("", None)
    assert change.unknown is not None
    assert change.unknown.startswith("the code changed, how cannot be shown: ")
    assert re.search(why, change.unknown)
