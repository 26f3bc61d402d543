"""What `-o` names is written whole or not at all, by each command that has it."""

import pytest
from full_disks import file_size_limit
from run_documents import outcome, run_of, save

from pytest_bandwidth.features.history.writing import append
from pytest_bandwidth.reports.text_safe import aligned

KEY = "tests/test_a.py::test_copy"


@pytest.fixture(params=["document", "history"])
def writes(request, tmp_path):
    """The arguments of a command that has something to write, up to `-o`; every output is longer than a few bytes."""
    rows = [outcome(KEY, 700.0)]
    run = run_of(*rows, environment={"started_at": "2026-01-01T00:00:00Z"})
    if request.param == "history":
        pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")
        append(tmp_path / "store", run, rows)
        return ("history", tmp_path / "store", "-o"), ".html"
    return ("report", save(tmp_path / "run.json", run), "-o"), ".csv"


def test_a_full_disk_leaves_the_old_file(command, writes, tmp_path):
    arguments, ending = writes
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / f"page{ending}"
    command(*arguments, path)
    old = path.read_bytes()
    with file_size_limit(16):
        said = command(*arguments, path)
    assert said.status == 2
    assert said.err.endswith("File too large\n")
    assert [(file, file.read_bytes()) for file in folder.iterdir()] == [(path, old)]


def test_a_folder_that_is_not_there_is_made_as_by_a_run_or_that_is_told(command, writes, tmp_path):
    arguments, ending = writes
    path = tmp_path / "missing" / "deep" / f"page{ending}"
    said = command(*arguments, path)
    assert (said.status, said.err) == (0, f"wrote {path}\n")
    assert path.stat().st_size > 0
    (tmp_path / "file").write_text("")
    said = command(*arguments, tmp_path / "file" / f"page{ending}")
    assert said.status == 2
    assert f"{tmp_path / 'file'}: cannot be read or written: " in said.err


def test_tables_align_and_shorten_by_the_columns_that_characters_take():
    heading, wide, plain = aligned(("name", "GB/s"), (("測" * 20, "1"), ("b", "22")), width=30)
    assert heading == f"{'name':24}  GB/s"
    assert wide == f"測測…{'測' * 9} {'1':>6}"  # 23 columns, and one to fill
    assert plain == f"{'b':24}  {'22':>4}"
