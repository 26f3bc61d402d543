"""Lists of files: their text, their name, and what changed between two."""

import json

import pytest

from pytest_bandwidth.domain.code.file_list import FileList, file_list_of
from pytest_bandwidth.domain.code.identity import digest, is_digest

A, B = "a" * 32, "b" * 32
THEN = FileList({"x.py": A, "y.py": A}, {"numpy": "2.0", "$SIZE": "unset"})


def test_a_list_comes_back_from_its_text():
    assert file_list_of(THEN.text()) == THEN
    assert THEN.name() == digest(THEN.text())
    assert is_digest(THEN.name())
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
        *(json.dumps({"files": {"a": found}, "versions": {}}) for found in (1, None, "short", [A])),
        json.dumps({"files": {}, "versions": {"numpy": 2}}),
        json.dumps({"files": {}, "versions": {}, "more": {}}),
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"found no list of files|Expecting"):
        file_list_of(text)
