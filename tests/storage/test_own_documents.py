"""An output overwrites only what this package wrote in the same form."""

import os

import pytest
from saved_runs import outcome, run_of

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.exports.command import FORMS
from pytest_bandwidth.features.exports.timings import timed_run
from pytest_bandwidth.reports.render import render
from pytest_bandwidth.storage.own_documents import _FORMS, refuse_foreign
from pytest_bandwidth.storage.saved_run import read_document

ROWS = [outcome('tests/test_a.py::test_"a"', 700.0)]
RUN = run_of(*ROWS, environment={"started_at": "2026-01-02T03:04:05Z"})
TIMED = [timed_run(read_document(RUN), "run.json")]
WRITTEN = {
    **{form: render(form, RUN, ROWS).encode() for form in ("json", "csv", "html", "md")},
    **{form: write(TIMED).encode() for form, write in FORMS.items()},
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg">',
    "png": b"\x89PNG\r\n\x1a\n",
}
FOREIGN = [
    b"def test_x(): pass\n",
    b'{"name": "a package"}',
    b'[{"id": 1}]',
    b"a,b\n1,2\n",
    b"<!doctype html>\n<title>mine</title>",
    b"# Title\n",
    b"\x00\xff",
    b" ",
]


@pytest.mark.parametrize("form", _FORMS)
def test_what_was_written_in_a_form_may_be_written_again(tmp_path, form):
    ending = _FORMS[form][0][0]
    for target in (tmp_path / f"out{ending}", tmp_path / f"out{ending.upper()}", tmp_path / "out"):
        refuse_foreign("-o", target, form)
        target.write_bytes(b"")
        refuse_foreign("-o", target, form)
        for other, data in WRITTEN.items():
            if _FORMS[other][0] == _FORMS[form][0]:
                target.write_bytes(data)
                refuse_foreign("-o", target, form)


@pytest.mark.parametrize("form", _FORMS)
def test_files_of_others_are_refused(tmp_path, form):
    target = tmp_path / f"out{_FORMS[form][0][0]}"
    others = [data for other, data in WRITTEN.items() if _FORMS[other][0] != _FORMS[form][0]]
    for data in (*FOREIGN, *others):
        target.write_bytes(data)
        with pytest.raises(UsageError, match=r"^-o: found .*, which pytest-bandwidth did not write, expected"):
            refuse_foreign("-o", target, form)


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("name", ["test_x.py", "kernel.cu", "pyproject.toml", "b.yaml", "run.json.gz", "x.parquet"])
def test_other_endings_are_refused(tmp_path, form, name):
    with pytest.raises(UsageError, match=f"^-o: found .*{name} with the ending .*, expected "):
        refuse_foreign("-o", tmp_path / name, form)


def test_pipes_and_devices_are_written_to(tmp_path):
    os.mkfifo(tmp_path / "a.pipe")
    refuse_foreign("-o", tmp_path / "a.pipe", "json")
    (tmp_path / "null.txt").symlink_to(os.devnull)
    refuse_foreign("-o", tmp_path / "null.txt", "json")
