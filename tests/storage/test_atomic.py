"""A file is written whole or not at all, and none over what this package did not write in the same form."""

import errno
import os
import stat
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from full_disks import file_size_limit
from run_documents import outcome, run_of

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.exports.forms import FORMS, timed_run
from pytest_bandwidth.reports.formats import JSON, formats
from pytest_bandwidth.storage.atomic import NotOnDisk, refuse_foreign, write_whole
from pytest_bandwidth.storage.saved_run import read_document

LIMIT = 4096


@contextmanager
def umask(value):
    old = os.umask(value)
    try:
        yield
    finally:
        os.umask(old)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("options", "new", "replaced"),
    [({}, 0o640, 0o640), ({"mode": 0o600}, 0o600, 0o600), ({"keep": True}, 0o640, 0o604)],
    ids=["as any new file", "for this user alone", "as the old one"],
)
def test_mode_of_a_new_and_of_a_replaced_file(tmp_path, options, new, replaced):
    path = tmp_path / "a"
    with umask(0o027):
        write_whole(path, b"1", **options)
        assert mode_of(path) == new
        path.chmod(0o604)
        write_whole(path, b"2", **options)
    assert (path.read_bytes(), mode_of(path)) == (b"2", replaced)


@pytest.mark.parametrize("keep", [False, True])
def test_a_link_stays_a_link_where_that_is_asked_for(tmp_path, keep):
    (tmp_path / "folder").mkdir()
    file, link = tmp_path / "folder" / "a", tmp_path / "link"
    file.write_bytes(b"old")
    link.symlink_to("folder/a")
    write_whole(link, b"new", keep=keep)
    assert (link.read_bytes(), link.is_symlink(), file.read_bytes()) == (b"new", keep, b"new" if keep else b"old")
    assert os.listdir(tmp_path / "folder") == ["a"]


@pytest.mark.parametrize("options", [{}, {"keep": True}, {"durable": True}, {"partial_name": ".a.new"}])
def test_a_write_cut_short_leaves_the_old_file_alone(tmp_path, options):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with file_size_limit(LIMIT), pytest.raises(OSError, match="File too large"):
        write_whole(path, bytes(2 * LIMIT), **options)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["a"])


@pytest.mark.parametrize("path", ["missing/a", "folder"])
def test_an_error_names_the_file_that_was_asked_for(tmp_path, path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory") as found:
        write_whole(tmp_path / path, b"1")
    assert (found.value.filename, found.value.filename2) == (str(tmp_path / path), None)
    assert os.listdir(tmp_path) == ["folder"]
    with pytest.raises(OSError, match=r": '/'$"):
        write_whole(Path("/"), b"1")


def test_what_a_killed_writer_left_under_the_lock_is_overwritten_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / ".a.new").symlink_to(victim)
    write_whole(tmp_path / "a", b"1", partial_name=".a.new")
    assert victim.read_bytes() == b"precious"
    assert sorted(os.listdir(tmp_path)) == ["a", "victim"]


class Disk:
    """Notes what is synced and renamed, and does it; syncing a folder may fail."""

    def __init__(self, monkeypatch, problem=None):
        self.done = []
        sync, replace = os.fsync, os.replace

        def fsync(descriptor):
            folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            self.done.append("folder" if folder else f"file of {os.fstat(descriptor).st_size}")
            if folder and problem is not None:
                raise OSError(problem, os.strerror(problem))
            sync(descriptor)

        def replaced(old, new):
            self.done.append("name")
            replace(old, new)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", replaced)


@pytest.mark.parametrize(("durable", "done"), [(True, ["file of 3", "name", "folder"]), (False, ["name"])])
def test_bytes_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch, durable, done):
    disk = Disk(monkeypatch)
    write_whole(tmp_path / "a", b"123", durable=durable)
    assert disk.done == done


@pytest.mark.parametrize("problem", [errno.EINVAL, errno.EACCES, errno.EIO])
def test_a_folder_that_cannot_be_synced_is_no_error_but_for_a_disk_that_fails(tmp_path, monkeypatch, problem):
    disk, fails = Disk(monkeypatch, problem), problem == errno.EIO
    with pytest.raises(NotOnDisk, match="Input/output error") if fails else nullcontext():
        write_whole(tmp_path / "a", b"1", durable=True)
    assert (disk.done[-1], os.listdir(tmp_path)) == ("folder", ["a"])


def test_pipes_and_devices_are_written_to_and_stay(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"whole")
        assert os.read(reader, 100) == b"whole"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]
    os.mkfifo(tmp_path / "a.pipe")
    refuse_foreign("-o", tmp_path / "a.pipe", JSON.file)
    (tmp_path / "null.txt").symlink_to(os.devnull)
    refuse_foreign("-o", tmp_path / "null.txt", JSON.file)


ROWS = [outcome('tests/test_a.py::test_"a"', 700.0)]
RUN = run_of(*ROWS, environment={"started_at": "2026-01-02T03:04:05Z"})
TIMED = [timed_run(read_document(RUN), "run.json")]
PICTURES = {"svg": b'<svg xmlns="http://www.w3.org/2000/svg">', "png": b"\x89PNG\r\n\x1a\n"}
KINDS = {kind: one.file for kind, one in formats().items()} | {n: form.file for n, form in FORMS.items()}
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


@pytest.fixture(scope="module")
def written():
    """What each form writes of the run."""
    made = {kind: one.render(RUN).encode() for kind, one in formats().items() if not one.draws}
    return made | {name: form.render(TIMED).encode() for name, form in FORMS.items()} | PICTURES


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_in_a_form_may_be_written_again(tmp_path, written, kind):
    form = KINDS[kind]
    ending = form.endings[0]
    for target in (tmp_path / f"out{ending}", tmp_path / f"out{ending.upper()}", tmp_path / "out"):
        refuse_foreign("-o", target, form)
        target.write_bytes(b"")
        refuse_foreign("-o", target, form)
        for other, data in written.items():
            if KINDS[other] == form:
                target.write_bytes(data)
                refuse_foreign("-o", target, form)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_others_are_refused(tmp_path, written, kind):
    form = KINDS[kind]
    target = tmp_path / f"out{form.endings[0]}"
    others = [data for other, data in written.items() if KINDS[other] != form]
    for data in (*FOREIGN, *others):
        target.write_bytes(data)
        with pytest.raises(UsageError, match=r"^-o: found .*, which pytest-bandwidth did not write in this form"):
            refuse_foreign("-o", target, form)


@pytest.mark.parametrize("form", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", ["test_x.py", "kernel.cu", "pyproject.toml", "b.yaml", "run.json.gz", "x.parquet"])
def test_other_endings_are_refused(tmp_path, form, name):
    with pytest.raises(UsageError, match=f"^-o: found .*{name} with the ending .*, expected "):
        refuse_foreign("-o", tmp_path / name, form)
