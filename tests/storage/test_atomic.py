"""Whatever happens while a file is written, its path holds the old bytes or the new, and nothing else is left."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from full_disks import file_size_limit

from pytest_bandwidth.storage.atomic import NotOnDisk, replacing, write_whole

LIMIT = 4096


@contextmanager
def umask(value: int) -> Iterator[None]:
    old = os.umask(value)
    try:
        yield
    finally:
        os.umask(old)


def mode_of(path: Path) -> int:
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


def test_an_interrupted_writer_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def write():
        with replacing(path) as partial:
            partial.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["a"])


@pytest.mark.parametrize("path", ["missing/a", "folder"])
def test_an_error_names_the_file_that_was_asked_for(tmp_path, path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory") as found:
        write_whole(tmp_path / path, b"1")
    assert (found.value.filename, found.value.filename2) == (str(tmp_path / path), None)
    assert os.listdir(tmp_path) == ["folder"]


def test_the_root_is_no_file():
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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, problem: int | None = None) -> None:
        self.done: list[str] = []
        sync, replace = os.fsync, os.replace

        def fsync(descriptor: int) -> None:
            folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            self.done.append("folder" if folder else f"file of {os.fstat(descriptor).st_size}")
            if folder and problem is not None:
                raise OSError(problem, os.strerror(problem))
            sync(descriptor)

        def replaced(old: Path, new: Path) -> None:
            self.done.append("name")
            replace(old, new)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", replaced)


@pytest.mark.parametrize(("durable", "done"), [(True, ["file of 3", "name", "folder"]), (False, ["name"])])
def test_bytes_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch, durable, done):
    disk = Disk(monkeypatch)
    write_whole(tmp_path / "a", b"123", durable=durable)
    assert disk.done == done


@pytest.mark.parametrize("problem", [errno.EINVAL, errno.EACCES])
def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path, monkeypatch, problem):
    disk = Disk(monkeypatch, problem)
    write_whole(tmp_path / "a", b"1", durable=True)
    assert disk.done[-1] == "folder"


def test_a_disk_that_fails_is_told(tmp_path, monkeypatch):
    Disk(monkeypatch, errno.EIO)
    with pytest.raises(NotOnDisk, match="Input/output error"):
        write_whole(tmp_path / "a", b"1", durable=True)
    assert os.listdir(tmp_path) == ["a"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
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


def test_a_folder_in_the_files_place_is_named(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    with pytest.raises(IsADirectoryError, match=str(folder)):
        write_whole(folder, b"whole")
