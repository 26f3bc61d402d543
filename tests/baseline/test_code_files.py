"""A baseline's code beside it: written with the entry, held to its name, shared, pruned; how it changed is told."""

import json
from dataclasses import replace

import pytest

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline import code_files
from pytest_bandwidth.baseline.code_files import NO_CHANGE, KeptCode, code_change, folder_of
from pytest_bandwidth.cli.main import main
from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.code.identity import CodeIdentity, digest
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.domain.measured.measurement import Measurement, Rounds
from pytest_bandwidth.domain.traffic import Traffic

GPU = DeviceIdentity("cuda", "A card", 2**34, "GPU-1", timed_on="gpu")
ANOTHER = DeviceIdentity("cuda", "Another card", 2**34, "GPU-2", timed_on="gpu")
ONE = ".version 9.5\n.target sm_90\n.visible .entry one()\n{\nret;\n}\n"
TWO = ONE.replace("one", "two")
HASH_OF_ONE, HASH_OF_TWO = ptx_digest(ONE), ptx_digest(TWO)
CUBIN = b"\x7fELF machine code of both\0"
HASH_OF_CUBIN = digest(CUBIN)
LIST = "python 3.11\nkernels.py 0123\n"
HASH_OF_LIST = digest(LIST)
PTX_FILE = f"{HASH_OF_ONE}.ptx"
PTX_FILES = {PTX_FILE, f"{HASH_OF_TWO}.ptx"}
CUBIN_FILE, LIST_FILE = f"{HASH_OF_CUBIN}.cubin", f"{HASH_OF_LIST}.files"
FILES = {
    f"{HASH_OF_ONE}.ptx": ONE.encode(),
    f"{HASH_OF_TWO}.ptx": TWO.encode(),
    CUBIN_FILE: CUBIN,
    LIST_FILE: LIST.encode(),
}


def entry(key, ptx, **more):
    code = {"ptx": ptx, "sass": "a" * 32, "launch": "b" * 32, **more}
    return Entry(key, 100.0, code=code, runs=(Run(100.0, commit="0123456", dirty=True),))


def written(path, *entries, device=GPU):
    baseline_files.update(path, device, entries, files=FILES)
    return path


@pytest.fixture
def path(tmp_path):
    return written(tmp_path / "card.yaml", entry("t.py::one", HASH_OF_ONE))


def files(path):
    return {file.name for file in code_files.folder_of(path).iterdir()}


def test_an_update_writes_the_ptx_that_its_entries_name(path):
    assert files(path) == {f"{HASH_OF_ONE}.ptx"}
    assert KeptCode(path).ptx(HASH_OF_ONE) == ONE
    with pytest.raises(BaselineError, match=rf"found no .*{HASH_OF_TWO}\.ptx, commit it with the baseline"):
        KeptCode(path).ptx(HASH_OF_TWO)
    assert [file.name for file in path.parent.iterdir() if file.name.startswith(".")] == []
    read = baseline_files.load(path).entries["t.py::one"]
    assert read == replace(entry("t.py::one", HASH_OF_ONE), anchor=Run(100.0, commit="0123456", dirty=True))


@pytest.mark.parametrize(("spoil", "why"), [(b"x", "whose hash differs"), (b" " * 200, "bytes, expected at most")])
@pytest.mark.parametrize("name", [PTX_FILE, CUBIN_FILE, LIST_FILE])
def test_a_file_that_is_not_what_its_name_says_is_refused_and_mended(path, name, spoil, why, monkeypatch):
    kept = entry("t.py::one", HASH_OF_ONE, cubin=HASH_OF_CUBIN, function=HASH_OF_LIST)
    written(path, kept)
    file, good = code_files.folder_of(path) / name, FILES[name]
    monkeypatch.setattr(code_files, "LARGEST_BYTES", len(good) + 100)
    file.write_bytes(good + spoil)

    def read():
        if name == CUBIN_FILE:
            return KeptCode(path).cubin(kept.code)
        if name == LIST_FILE:
            return KeptCode(path).files(HASH_OF_LIST).encode()
        return KeptCode(path).ptx(HASH_OF_ONE).encode()

    with pytest.raises(BaselineError, match=f"{name}:1: .*{why}"):
        read()
    written(path, kept)
    assert read() == good


def test_machine_code_lies_beside_and_is_pruned_like_ptx(path, capsys):
    kept = [
        entry(f"t.py::{name}", ptx, cubin=HASH_OF_CUBIN) for name, ptx in (("one", HASH_OF_ONE), ("two", HASH_OF_TWO))
    ]
    written(path, *kept)
    assert files(path) == PTX_FILES | {CUBIN_FILE}
    assert baseline_files.load(path).entries["t.py::two"].code == kept[1].code
    assert KeptCode(path).cubin(kept[0].code) == CUBIN
    assert KeptCode(path).cubin({"ptx": HASH_OF_ONE}) is None
    assert main(["baseline", "prune", str(path), "t.py::one"]) == 0
    assert files(path) == {f"{HASH_OF_TWO}.ptx", CUBIN_FILE}
    assert main(["baseline", "prune", str(path), "t.py::two"]) == 0
    assert "removed 2 files of code that no entry names" in capsys.readouterr().out
    assert files(path) == set()
    with pytest.raises(BaselineError, match=rf"found no .*{CUBIN_FILE}, commit it with the baseline"):
        KeptCode(path).cubin(kept[0].code)


@pytest.mark.parametrize(
    ("name", "damaged", "what"), [(CUBIN_FILE, CUBIN[:-1], "machine code"), (f"{HASH_OF_ONE}.ptx", TWO.encode(), "PTX")]
)
def test_validate_names_damaged_code_and_not_missing_code(path, capsys, name, damaged, what):
    written(path, entry("t.py::one", HASH_OF_ONE, cubin=HASH_OF_CUBIN))
    assert main(["baseline", "validate", str(path)]) == 0
    (code_files.folder_of(path) / name).write_bytes(damaged)
    assert main(["baseline", "validate", str(path)]) == 2
    assert f"found {what} whose hash differs from its name" in capsys.readouterr().out
    (code_files.folder_of(path) / name).unlink()
    assert main(["baseline", "validate", str(path)]) == 0


def test_prune_without_keys_removes_unused_ptx_alone(path, capsys):
    beside = written(path.with_name("another.yaml"), entry("t.py::one", HASH_OF_ONE), device=ANOTHER)
    written(path, entry("t.py::one", HASH_OF_TWO))
    written(beside, entry("t.py::one", HASH_OF_TWO), device=ANOTHER)
    before = path.read_text(), beside.read_text()
    assert main(["baseline", "prune", str(path.parent), "--dry-run", "--json"]) == 0
    foreseen = json.loads(capsys.readouterr().out)
    (code_files.folder_of(path) / "mine.txt").write_text("not ours")
    assert [(one["removed"], one["kept"], one["code_removed"]) for one in foreseen["files"]] == [([], 1, 1), ([], 1, 0)]
    assert files(path) == {*PTX_FILES, "mine.txt"}
    assert main(["baseline", "prune", str(path.parent)]) == 0
    assert "removed 0, 1 stay\nremoved 1 file of code that no entry names" in capsys.readouterr().out
    assert files(path) == {f"{HASH_OF_TWO}.ptx", "mine.txt"}
    assert (path.read_text(), beside.read_text()) == before
    assert main(["baseline", "prune", str(path.parent)]) == 2
    assert "found nothing to remove, expected keys" in capsys.readouterr().err


def test_prune_keeps_what_another_baseline_names_or_may_name(path):
    beside = written(path.with_name("another.yaml"), entry("t.py::one", HASH_OF_ONE), device=ANOTHER)
    assert main(["baseline", "prune", str(path), "t.py::one"]) == 0
    assert files(path) == {f"{HASH_OF_ONE}.ptx"}
    beside.write_text("no baseline")
    written(path, entry("t.py::two", HASH_OF_TWO))
    assert main(["baseline", "prune", str(path), "t.py::two"]) == 0
    assert files(path) == {f"{HASH_OF_ONE}.ptx", f"{HASH_OF_TWO}.ptx"}


OLD = ".version 9.5\n.target sm_90\n.visible .entry k()\n{\nld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];\nret;\n}\n"
NEW = OLD.replace("v4.f32 {%f1, %f2, %f3, %f4}", "f32 %f1")
HASH = ptx_digest(OLD)
ENTRY = Entry("t.py::t", 100.0, code={"ptx": HASH, "sass": "a" * 32, "launch": "b" * 32})
CODE = CodeIdentity(ptx=ptx_digest(NEW), sass="c" * 32, launch="b" * 32)
MEASUREMENT = Measurement(None, Traffic(1, 1), GPU, "events", Rounds(), code=CODE, ptx=NEW)


@pytest.fixture
def baseline(tmp_path):
    path = tmp_path / "card.yaml"
    folder_of(path).mkdir()
    (folder_of(path) / f"{HASH}.ptx").write_text(OLD)
    return path


def test_a_change_is_shown_by_the_old_code_where_that_is_there(baseline):
    change = code_change(MEASUREMENT, ENTRY, KeptCode(baseline).ptx)
    changed = [line for line in change.diff.splitlines() if line[0] in "+-"]
    assert changed == ["- ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];", "+ ld.global.f32 %f1, [%rd1];"]
    (folder_of(baseline) / f"{HASH}.ptx").unlink()
    change = code_change(MEASUREMENT, ENTRY, KeptCode(baseline).ptx)
    assert (change.diff, change.accesses) == ("", None)
    assert change.unknown.startswith("the code changed; the changes cannot be shown: found no ")


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
    assert code_change(measurement, entry, KeptCode(baseline).ptx) == NO_CHANGE
    assert code_change(MEASUREMENT, ENTRY, None) == NO_CHANGE
