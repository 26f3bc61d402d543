"""When the other revision is asked for its code, and when what it says makes a measurement needless."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.code.stored_kernel import text_of_cubin
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import Measurement, Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Status
from pytest_bandwidth.evidence.commit_pairs.process import (
    NO_ROWS,
    ForeignImport,
    NothingThere,
    RevisionCode,
    runs_same_code,
)
from pytest_bandwidth.evidence.processes.child import FreshProcessFailed
from pytest_bandwidth.evidence.processes.requests import ChildRequest
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.outcomes.outcome import outcome_of

HOST = DeviceIdentity("cpu", "A host", 2**30, "host")
MODEL = DeviceIdentity("traffic", "traffic sm_90", None, "model", timed_on="nothing")
TIMED = Measurement(None, Traffic(64, 32), HOST, "clock", Rounds(), code=CodeIdentity(function="f", launch="l"))
COUNTED = Measurement(
    *(None, Traffic(64, 32), MODEL, "ptx", Rounds()), code=CodeIdentity(ptx="p", launch="l"), detail={"inputs": "i"}
)


def row(measurement, nodeid="t.py::t"):
    return outcome_of(nodeid, nodeid, Judged(measurement, None, Decision(Status.UNDECIDED, "new-process")), "")


@pytest.mark.parametrize(
    ("measurement", "other"),
    [
        (TIMED, replace(TIMED, code=CodeIdentity(function="g", launch="l"))),
        (TIMED, replace(TIMED, code=CodeIdentity(function="f", launch="m"))),
        (TIMED, replace(TIMED, code=CodeIdentity())),
        (TIMED, replace(TIMED, traffic=Traffic(64, 64))),
        (COUNTED, replace(COUNTED, code=CodeIdentity(ptx="q", launch="l"))),
        (COUNTED, replace(COUNTED, code=CodeIdentity(ptx="p", sass="s", launch="l"))),
        (COUNTED, replace(COUNTED, detail={"inputs": "j"})),
        (COUNTED, replace(COUNTED, detail={})),
        (COUNTED, replace(COUNTED, traffic=Traffic(32, 32))),
    ],
)
def test_the_same_code_for_the_same_bytes_is_told_and_other_code_bytes_or_data_is_not(measurement, other):
    assert runs_same_code(measurement, row(replace(measurement, method="unmeasured")))
    assert not runs_same_code(measurement, row(other))
    assert not runs_same_code(other, row(measurement))
    assert not runs_same_code(measurement, None)


def test_data_that_was_not_told_is_not_the_same():
    unknown = replace(COUNTED, detail={})
    assert not runs_same_code(unknown, row(unknown))


def asked(codes, nodeid, answer):
    def codes_at_base(tests):
        codes.append(list(tests))
        if isinstance(answer, Exception):
            raise answer
        return [one if isinstance(one, dict) else one.to_plain() for one in answer]

    return SimpleNamespace(target=Path("t.py"), nodeid=nodeid, revision="main", codes_at_base=codes_at_base)


def test_a_file_is_asked_once_for_all_its_tests_whatever_its_folder_there():
    told, codes = RevisionCode(), []
    rows = [row(TIMED, "other/t.py::one"), row(replace(TIMED, label="x"), "other/t.py::two")]
    found = [
        told.of(asked(codes, f"t.py::{name}", rows), ["t.py::one", "t.py::two"], nullcontext, str)
        for name in ("one", "two", "three")
    ]
    assert codes == [["t.py::one", "t.py::two"]]
    assert [list(labels) for labels in found] == [[None], ["x"], []]
    assert told.known(asked(codes, "t.py::one", rows)) == found[0]


@pytest.mark.parametrize("error", [NothingThere("no"), ForeignImport("no"), FreshProcessFailed("no")])
def test_a_revision_that_cannot_say_is_measured(error):
    told, codes = RevisionCode(), []
    for _ in range(2):
        assert told.of(asked(codes, "t.py::one", error), ["t.py::one"], nullcontext, str) == NO_ROWS
    assert len(codes) == 1


def test_ptx_that_is_handed_over_is_found_by_its_own_hash_and_machine_code_by_what_its_row_says():
    told, text, large = RevisionCode(), ".visible .entry k()", "/" * (8 * 2**20 + 1)
    rows = [row(TIMED).to_plain() | {"ptx": given} for given in (text, large, None, 3)]
    assert list(told.of(asked([], "t.py::t", [*rows, row(TIMED)]), ["t.py::t"], nullcontext, str)) == [None]
    assert told.ptx(ptx_digest(text)) == text
    for name in (ptx_digest(large), "0" * 32):
        with pytest.raises(BandwidthError, match=f"found no PTX {name} in the answer from the revision"):
            told.ptx(name)
    told, code = RevisionCode(), {"ptx": "p" * 32, "sass": "s" * 32, "launch": "l" * 32}
    good = row(TIMED).to_plain() | {"code_identity": code, "cubin": text_of_cubin(b"machine code")}
    bad = [good | {"cubin": text, "code_identity": {"ptx": name}} for name, text in BAD_CUBINS.items()]
    told.of(asked([], "t.py::t", [*bad, good]), ["t.py::t"], nullcontext, str)
    assert told.cubin(code) == b"machine code"
    assert {name: told.cubin({"ptx": name}) for name in BAD_CUBINS} == dict.fromkeys(BAD_CUBINS)
    assert told.cubin({**code, "sass": "t" * 32}) is None


BAD_CUBINS = {"none": None, "a number": 3, "no text of bytes": "machine code!", "too large": "A" * (12 * 2**20)}


@pytest.mark.parametrize(
    ("request_", "selected"),
    [
        (ChildRequest("cpu"), {"one", "two"}),
        (ChildRequest("cpu", nodeids=("far/t.py::one",)), {"one"}),
        (ChildRequest("cpu", target="t.py", nodeids=("far/t.py::two",)), {"two"}),
        (ChildRequest("cpu", target="t.py", nodeids=()), set()),
    ],
)
def test_a_request_selects_tests_by_what_follows_the_file(request_, selected):
    assert {name for name in ("one", "two") if request_.selects(f"t.py::{name}")} == selected
