"""A history in a bucket: what many writers append is what is read, and whatever a store does is one line."""

from __future__ import annotations

import shutil
import stat
import sys
import warnings
from pathlib import Path

import pytest
from histories import appended, runs_in

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import Address
from pytest_bandwidth.features.history import place as place_module
from pytest_bandwidth.features.history import writing
from pytest_bandwidth.features.history.place import Bucket
from pytest_bandwidth.features.history.reading import known_runs

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[bucket]'")
pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'pytest-bandwidth[bucket]'")

from faulty_store import FaultyStore


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The folder of this user's copies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store(tmp_path) -> Path:
    """Where the files of the bucket lie."""
    return tmp_path / "bucket" / "history"


@pytest.fixture
def address(store) -> Address:
    return Address(f"file://{store}")


@pytest.fixture
def faulty(store, monkeypatch) -> Address:
    monkeypatch.setattr(FaultyStore, "faults", {})
    return Address(f"faulty://{store}")


def copy_of(cache: Path) -> Path:
    (folder,) = (cache / "pytest-bandwidth" / "history").iterdir()
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))


@pytest.mark.parametrize("url", ["file://{}/a [b]*'c", "memory://{}/bucket/history"])
def test_what_is_appended_is_what_is_read(url, tmp_path):
    place = Address(url.format(tmp_path))
    added = appended(place, "r1")
    assert (added.name, str(added)) == ("r1.parquet", f"{place}/r1.parquet")
    assert known_runs(place) == {"r1"}
    appended(place, "r2")
    assert runs_in(place) == ["r1", "r2"]


def test_only_what_is_new_or_of_another_length_is_fetched(faulty, store, cache):
    appended(faulty, "r1")
    appended(faulty, "r2")
    assert runs_in(faulty) == ["r1", "r2"]
    fetched = []
    FaultyStore.faults["get_file"] = lambda path: fetched.append(Path(path).name)
    assert runs_in(faulty) == ["r1", "r2"]
    assert fetched == []
    appended(faulty, "r3")
    (store / "r1.parquet").unlink()
    (copy_of(cache) / "r2.parquet").write_bytes(b"cut")
    assert runs_in(faulty) == ["r2", "r3"]
    assert sorted(fetched) == ["r2.parquet", "r3.parquet"]


def test_the_copy_is_the_users_alone_and_tells_no_secret(store, cache, monkeypatch):
    monkeypatch.setattr(FaultyStore, "faults", {})

    def strip(path):
        return f"{store}{path.rpartition('@host/history')[2]}" if "@host" in path else path

    monkeypatch.setattr(FaultyStore, "_strip_protocol", staticmethod(strip))
    for key in ("hunter2", "hunter3"):  # a new key is no new history
        place = Address(f"faulty://user:{key}@host/history")
        appended(place, key)
        assert known_runs(place)
    folder = copy_of(cache)
    for one in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
    assert (folder / ".address").read_text() == "faulty://***@host/history\n"


def test_a_copy_that_cannot_be_kept_is_said(address, cache):
    appended(address, "r1")
    assert runs_in(address) == ["r1"]
    copy_of(cache).chmod(0o777)
    with pytest.raises(UsageError, match=r"found one that others may write to.*set XDG_CACHE_HOME"):
        runs_in(address)
    shutil.rmtree(cache)
    cache.write_text("a file")
    with pytest.raises(UsageError, match=r"file://.*: cannot be copied to .*: .*set XDG_CACHE_HOME"):
        runs_in(address)


def test_no_history_yet_is_said_and_knows_no_runs(address, store):
    with pytest.raises(UsageError, match=r"\Afile://.*/bucket/history: found no runs, expected"):
        runs_in(address)
    assert known_runs(address) == set()
    store.mkdir(parents=True)
    assert known_runs(address) == set()


def test_a_file_is_no_folder(address, store):
    store.parent.mkdir()
    store.write_text("a file")
    for use in (known_runs, lambda place: appended(place, "r1")):
        with pytest.raises(UsageError, match="found a file, expected a folder for the history"):
            use(address)


class TestErrors:
    """One line each, that names the address."""

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("nope://bucket/history", "nope://bucket/history: cannot be opened: Protocol not known: nope"),
            ("s3://", "s3://: found no folder, expected an address like s3://bucket/history"),
            ("file:///tmp/a?token=hunter2", "file:///tmp/a?***: found a query or fragment, expected none"),
            ("s3://a/b#c", "s3://a/b#***: found a query or fragment, expected none"),
            ("s3://a/b::file:///etc", "found a chain of addresses, expected one"),
        ],
    )
    def test_addresses_that_nothing_opens(self, url, said):
        with pytest.raises(UsageError) as error:
            known_runs(Address(url))
        assert said in str(error.value)
        assert "\n" not in str(error.value)

    def test_what_an_address_needs_and_has_not_is_named(self, address, faulty, monkeypatch):
        def opened(_):
            raise FileNotFoundError(2, "No such file or directory", "/home/someone/key.json")

        monkeypatch.setattr(FaultyStore, "__init__", opened)
        with pytest.raises(UsageError, match=r"cannot be opened: .*No such file .*key\.json'\Z"):
            known_runs(faulty)
        monkeypatch.setitem(sys.modules, "s3fs", None)
        with pytest.raises(UsageError, match=r"\As3://\*\*\*@b/h: cannot be opened: Install s3fs to access S3\Z"):
            known_runs(Address("s3://key:secret@b/h"))
        monkeypatch.setitem(sys.modules, "fsspec", None)
        with pytest.raises(UsageError, match=r"needs fsspec: pip install 'pytest-bandwidth\[bucket\]'"):
            appended(address, "r1")

    @pytest.mark.parametrize(
        ("problem", "said"),
        [
            (PermissionError("Access Denied"), "Access Denied"),
            (PermissionError(), "PermissionError"),
            (TimeoutError(), r"no answer in time \(TimeoutError\)"),
            (ValueError("many\nlines"), "many lines"),
        ],
    )
    def test_whatever_a_store_raises_is_a_line(self, faulty, store, problem, said, recwarn):
        def fail(_):
            warnings.warn("of the store's libraries", DeprecationWarning, stacklevel=1)
            raise problem

        appended(faulty, "r1")
        for method, what, use in (
            ("ls", "listed", known_runs),
            ("get_file", "read", known_runs),
            ("put_file", "written to", lambda place: appended(place, "r2")),
        ):
            FaultyStore.faults = {method: fail}
            with pytest.raises(UsageError, match=rf"\Afaulty://{store}: cannot be {what}: {said}\Z"):
                use(faulty)
        assert names_in(store) == ["r1.parquet"]
        assert not recwarn.list

    def test_a_put_that_fails_half_way_leaves_no_run(self, faulty, store):
        def half(path):
            Path(path).write_bytes(b"PAR1 and then")
            raise OSError("the connection was lost")

        appended(faulty, "r1")
        FaultyStore.faults = {"put_file": half}
        with pytest.raises(UsageError, match="cannot be written to: the connection was lost"):
            appended(faulty, "r2")
        assert [file.name for file in store.iterdir()] == ["r1.parquet"]
        assert runs_in(faulty) == ["r1"]

    def test_a_file_that_no_history_holds_is_named_by_its_address(self, address, store):
        appended(address, "r1")
        (store / "bad.parquet").write_bytes(b"nothing that Parquet knows")
        with pytest.raises(UsageError) as error:
            runs_in(address)
        assert str(error.value).startswith(f"{address}/bad.parquet: cannot be read")
        assert "cache" not in str(error.value)

    def test_another_process_that_keeps_the_copy_is_waited_for_no_longer_than_so(self, address, monkeypatch):
        appended(address, "r1")
        monkeypatch.setattr(place_module, "LOCK_SECONDS", 0.05)
        with (
            place_module.locked_copy(address, 0.0),
            pytest.raises(UsageError, match="another process has been fetching it"),
        ):
            known_runs(address)


class TestHostileNames:
    def test_only_names_of_a_history_are_taken(self, address, store, cache):
        appended(address, "r1")
        for name in (".hidden.parquet", "a b.parquet", "x.parquet.txt", "-x.parquet", "a\nb.parquet", "é.parquet"):
            (store / name).write_bytes(b"x")
        (store / "folder").mkdir()
        assert runs_in(address) == ["r1"]
        assert names_in(copy_of(cache)) == ["r1.parquet"]

    def test_what_a_store_calls_its_files_leads_nowhere_else(self, faulty, store, cache, monkeypatch):
        appended(faulty, "r1")
        outside = store.parent / "outside.parquet"
        shutil.copy(store / "r1.parquet", outside)
        fetched = []
        FaultyStore.faults["get_file"] = fetched.append
        whole = FaultyStore.ls

        def ls(self, path, detail=False, **kwargs):
            size = outside.stat().st_size
            names = (str(outside), f"{path}/../outside.parquet", "/etc/outside.parquet", "..", "")
            hostile = [{"name": name, "size": size, "type": "file"} for name in names]
            return [*whole(self, path, detail=detail, **kwargs), *hostile]

        monkeypatch.setattr(FaultyStore, "ls", ls)
        with pytest.raises(UsageError, match="changes faster than it can be read"):
            runs_in(faulty)
        assert {Path(path).parent for path in fetched} == {store}
        assert names_in(copy_of(cache)) == ["r1.parquet"]

    def test_a_link_or_folder_of_a_runs_name_is_refused(self, address, store):
        appended(address, "r1")
        (store / "r2.parquet").symlink_to("/etc/passwd")
        with pytest.raises(UsageError, match=r"\Afile://.*/r2\.parquet: found no plain file"):
            runs_in(address)

    def test_count_and_size_are_bounded_before_anything_is_fetched(self, faulty, monkeypatch):
        appended(faulty, "r1")
        appended(faulty, "r2")
        FaultyStore.faults["get_file"] = pytest.fail
        with monkeypatch.context() as patch:
            patch.setattr(place_module, "FILES_AT_MOST", 1)
            with pytest.raises(UsageError, match="found 2 files, expected at most 1"):
                runs_in(faulty)
        monkeypatch.setattr(place_module, "BYTES_OF_FILE_AT_MOST", 100)
        with pytest.raises(UsageError, match=r"/r\d\.parquet: larger than"):
            runs_in(faulty)

    def test_no_foreign_file_keeps_a_run_out_and_one_of_its_name_is_not_written_over(self, address, store, monkeypatch):
        appended(address, "r1")
        before = (store / "r1.parquet").read_bytes()
        (store / "r2.parquet").mkdir()
        (store / "r3.parquet").symlink_to("/etc/passwd")
        monkeypatch.setattr(place_module, "FILES_AT_MOST", 1)
        appended(address, "r4")
        assert (store / "r4.parquet").is_file()
        for name in ("r1", "r2"):
            with pytest.raises(UsageError, match=rf"\Afile://.*/{name}\.parquet: is there already"):
                appended(address, name, "test_other")
        assert (store / "r1.parquet").read_bytes() == before

    def test_a_store_that_tells_no_sizes_is_refused(self, faulty, monkeypatch):
        appended(faulty, "r1")
        entries = [{"name": "r1.parquet", "size": None, "type": "file"}]
        monkeypatch.setattr(FaultyStore, "ls", lambda *_, **__: entries)
        with pytest.raises(UsageError, match="found no size, expected a store that gives"):
            runs_in(faulty)


class TestMerging:
    @pytest.fixture(autouse=True)
    def soon(self, monkeypatch):
        monkeypatch.setattr(writing, "RUNS_BEFORE_MERGE", 4)

    def fill(self, place: Address, runs: range) -> None:
        for i in runs:
            appended(place, f"r{i:02d}")

    def test_two_that_merge_at_once_write_the_same_file(self, faulty, store, monkeypatch, tmp_path):
        """The second has listed the same runs, and one more; the first merges before the second puts its file."""
        with monkeypatch.context() as patch:
            patch.setattr(writing, "RUNS_BEFORE_MERGE", 100)
            self.fill(faulty, range(5))
        bucket, put = Bucket(faulty), []

        def other_merges(path):
            if Path(path).name.startswith(".merged") and not put:
                put.append(path)
                monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
                writing.merge_bucket_where_due(bucket, bucket.names())
                assert len(names_in(store)) == 2

        FaultyStore.faults["put_file"] = other_merges
        writing.merge_bucket_where_due(bucket, bucket.names())
        assert put
        merged, left = names_in(store)
        assert merged.startswith("merged-r00-")
        assert left == "r04.parquet"
        assert runs_in(faulty) == [f"r{i:02d}" for i in range(5)]

    @pytest.mark.parametrize("method", ["put_file", "rm_file"])
    def test_trouble_with_merging_is_no_trouble_with_appending(self, faulty, method):
        def fail(path):
            if method != "put_file" or "merged" in path:
                raise PermissionError("Access Denied")

        self.fill(faulty, range(3))
        FaultyStore.faults = {method: fail}
        appended(faulty, "r03")
        FaultyStore.faults = {}
        assert runs_in(faulty) == ["r00", "r01", "r02", "r03"]
        appended(faulty, "r04")
        assert runs_in(faulty) == ["r00", "r01", "r02", "r03", "r04"]

    def test_nothing_is_merged_from_a_copy_in_use_nor_with_a_bad_file(self, address, store):
        self.fill(address, range(3))
        with place_module.locked_copy(address, 0.0):
            appended(address, "r03")
        assert len(names_in(store)) == 4
        (store / "bad.parquet").write_bytes(b"x")
        appended(address, "r04")
        assert names_in(store) == ["bad.parquet", *(f"r{i:02d}.parquet" for i in range(5))]

    def test_runs_that_are_merged_while_they_are_fetched_are_found_in_their_file(self, faulty, store):
        self.fill(faulty, range(3))
        merged = []

        def merge(path):
            if not merged:
                merged.append(path)
                self.fill(Address(f"file://{store}"), range(3, 4))

        FaultyStore.faults["get_file"] = merge
        assert runs_in(faulty) == [f"r{i:02d}" for i in range(4)]

    def test_runs_that_a_merge_hides_between_two_requests_of_a_listing_are_found(self, faulty, monkeypatch):
        """What is listed first has not the merged file yet, what is listed later no longer the runs."""
        self.fill(faulty, range(4))
        whole, turns = FaultyStore.ls, iter([True])
        monkeypatch.setattr(
            FaultyStore, "ls", lambda *args, **kwargs: [] if next(turns, False) else whole(*args, **kwargs)
        )
        assert runs_in(faulty) == [f"r{i:02d}" for i in range(4)]
