"""An output overwrites only what this package wrote in the same form."""

import os

import pytest
from saved_runs import outcome, run_of

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.exports.forms import FORMS
from pytest_bandwidth.features.exports.timings import timed_run
from pytest_bandwidth.reports.formats import JSON, formats
from pytest_bandwidth.storage.atomic import refuse_foreign
from pytest_bandwidth.storage.saved_run import read_document

ROWS = [outcome('tests/test_a.py::test_"a"', 700.0)]
RUN = run_of(*ROWS, environment={"started_at": "2026-01-02T03:04:05Z"})
TIMED = [timed_run(read_document(RUN), "run.json")]
PICTURES = {"svg": b'<svg xmlns="http://www.w3.org/2000/svg">', "png": b"\x89PNG\r\n\x1a\n"}
KINDS = {kind: one.file for kind, one in formats().items()} | {n: form.file for n, form in FORMS.items()}
WRITTEN = {
    **{kind: one.render(RUN).encode() for kind, one in formats().items() if not one.draws},
    **{name: form.render(TIMED).encode() for name, form in FORMS.items()},
    **PICTURES,
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


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_in_a_form_may_be_written_again(tmp_path, kind):
    form = KINDS[kind]
    ending = form.endings[0]
    for target in (tmp_path / f"out{ending}", tmp_path / f"out{ending.upper()}", tmp_path / "out"):
        refuse_foreign("-o", target, form)
        target.write_bytes(b"")
        refuse_foreign("-o", target, form)
        for other, data in WRITTEN.items():
            if KINDS[other] == form:
                target.write_bytes(data)
                refuse_foreign("-o", target, form)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_others_are_refused(tmp_path, kind):
    form = KINDS[kind]
    target = tmp_path / f"out{form.endings[0]}"
    others = [data for other, data in WRITTEN.items() if KINDS[other] != form]
    for data in (*FOREIGN, *others):
        target.write_bytes(data)
        with pytest.raises(UsageError, match=r"^-o: found .*, which pytest-bandwidth did not write in this form"):
            refuse_foreign("-o", target, form)


@pytest.mark.parametrize("form", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", ["test_x.py", "kernel.cu", "pyproject.toml", "b.yaml", "run.json.gz", "x.parquet"])
def test_other_endings_are_refused(tmp_path, form, name):
    with pytest.raises(UsageError, match=f"^-o: found .*{name} with the ending .*, expected "):
        refuse_foreign("-o", tmp_path / name, form)


def test_pipes_and_devices_are_written_to(tmp_path):
    os.mkfifo(tmp_path / "a.pipe")
    refuse_foreign("-o", tmp_path / "a.pipe", JSON.file)
    (tmp_path / "null.txt").symlink_to(os.devnull)
    refuse_foreign("-o", tmp_path / "null.txt", JSON.file)
