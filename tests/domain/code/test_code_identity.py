"""When two measurements are of the same code, and what is said to have changed where they are not."""

import json
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.code.identity import (
    DIGITS,
    UNKNOWN_CODE,
    CodeIdentity,
    FileList,
    digest,
    file_list_of,
    identity_of_plain,
)

KERNEL = CodeIdentity(ptx="p", sass="s", launch="l")
FUNCTION = CodeIdentity(function="f", launch="l")


@pytest.mark.parametrize("by", ["sass", "ptx"])
def test_code_is_the_same_where_all_is_known_and_alike_and_so_are_fingerprints(by):
    known = [KERNEL, FUNCTION, replace(KERNEL, launch="m"), replace(KERNEL, ptx="q", sass="t")]
    known += [replace(KERNEL, inputs="i"), replace(KERNEL, inputs="j"), replace(KERNEL, function="f")]
    # Which machine code the driver made of PTX alone is open.
    unknown = [UNKNOWN_CODE, CodeIdentity(launch="l"), replace(KERNEL, launch=None), CodeIdentity(sass="s", ptx="p")]
    assert not CodeIdentity(ptx="p", launch="l").is_same(CodeIdentity(ptx="p", launch="l"), by="sass")
    for one in (*known, *unknown):
        assert (one.fingerprint(by=by) is None) == (one in unknown)
        for other in (*known, *unknown):
            assert one.is_same(other, by=by) == (one is other and one in known)
            assert one.is_same(other, by=by) == (one.fingerprint(by=by) == other.fingerprint(by=by) is not None)
        assert identity_of_plain({**one.known(), "hip": "of a later version", "inputs": one.inputs or 3}) == one


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (replace(KERNEL, ptx="q", sass="t"), ["the kernel's code changed"]),
        (replace(KERNEL, sass="t"), ["the same PTX's machine code changed: the compiler, its options,"]),
        (replace(KERNEL, launch="m"), ["the launch changed"]),
        (replace(KERNEL, ptx="q", launch="m"), ["the kernel's code changed", "the launch changed"]),
        (UNKNOWN_CODE, []),
        (FUNCTION, []),  # what was a kernel is a function: neither hash is known on both sides
        (replace(KERNEL, inputs="j"), []),
    ],
)
def test_what_changed_is_said_where_both_sides_know_it(now, said):
    changes = now.changes_since(KERNEL)
    assert len(changes) == len(said)
    assert all(change.startswith(start) for change, start in zip(changes, said, strict=True))
    assert UNKNOWN_CODE.changes_since(now) == now.changes_since(UNKNOWN_CODE) == ()


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ("a", "a", "the launch changed: grid, block or shared memory"),
        ("a", "b", "the launch's arguments changed: their types, sizes or values"),
        ("a", None, "the launch changed: grid, block, shared memory, or the arguments' types, sizes or values"),
    ],
)
def test_a_changed_launch_is_of_other_arguments_or_another_shape(then, now, said):
    before = replace(KERNEL, arguments=then)
    assert replace(KERNEL, launch="m", arguments=now).changes_since(before) == (said,)
    assert replace(KERNEL, arguments=now).changes_since(before) == ()


def test_a_digest_tells_lists_of_parts_apart():
    assert len({digest("ab"), digest("a", "b"), digest("a", "b", ""), digest("b", "a"), digest()}) == 5
    assert digest("a") == digest(b"a")


A, B = "a" * 32, "b" * 32
THEN = FileList({"x.py": A, "y.py": A}, {"numpy": "2.0", "$SIZE": "unset"})


def test_a_list_comes_back_from_its_text():
    assert file_list_of(THEN.text()) == THEN
    assert THEN.name() == digest(THEN.text())
    assert file_list_of(FileList({"x.py": THEN.name()}).text()).files == {"x.py": THEN.name()}
    assert FileList({"y.py": A, "x.py": A}, dict(reversed(THEN.versions.items()))).name() == THEN.name()


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (THEN, ()),
        (FileList({"x.py": B, "y.py": A}, THEN.versions), ("x.py changed",)),
        (FileList({"y.py": A}, THEN.versions), ("x.py is gone",)),
        (FileList({**THEN.files, "z\n.cu": A}, THEN.versions), ("z\n.cu is new",)),
        (FileList(THEN.files, {"numpy": "2.1", "$SIZE": "unset"}), ("numpy 2.0 → 2.1",)),
        (FileList(THEN.files, {"$SIZE": "unset"}), ("numpy 2.0 → not installed",)),
    ],
)
def test_changes_name_files_and_versions(now, said):
    assert now.changes_since(THEN) == said
    assert (now.name() == THEN.name()) is (said == ())
    assert file_list_of(now.text()) == now


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", "{}", '{"files": {}}', '{"files": [], "versions": {}}', "{", "\x00"),
        *(json.dumps({"files": {"a": found}, "versions": {}}) for found in (1, None, "short", [A], "")),
        *(json.dumps({"files": {"a": "0" * digits}, "versions": {}}) for digits in (DIGITS - 1, DIGITS + 1)),
        *(json.dumps({"files": {"a": digit * DIGITS}, "versions": {}}) for digit in ("A", "٠")),
        json.dumps({"files": {}, "versions": {"numpy": 2}}),
        json.dumps({"files": {}, "versions": {}, "more": {}}),
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"found no list of files|Expecting"):
        file_list_of(text)
