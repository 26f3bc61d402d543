"""The commands' frame: one-line errors, exit statuses, and outputs that close, fill up or lack letters."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from children import HANGS_SECONDS
from full_disks import file_size_limit
from run_documents import outcome, run_of, save, saved

from pytest_bandwidth import __version__
from pytest_bandwidth.cli import main as cli
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.reports.text_safe import aligned

HOSTILE = "tests/\x1b[31mred\u202e.py::test_x"


def console_script(*arguments, **more):
    command = [sys.executable, "-m", "pytest_bandwidth.cli", *map(str, arguments)]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": HANGS_SECONDS}
    return subprocess.run(command, text=True, check=False, **piped | more)


def test_version(command):
    assert command("--version") == (0, f"pytest-bandwidth {__version__}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("no-such-command",),
        ("compare",),
        ("baseline",),
        ("baseline", "prune"),
        ("baseline", "show", "a.yaml", "--unknown"),
        ("report",),
        ("selftest", "--runs", "many"),
        ("compare", "a.json", "b.json", "--fail-on", "\x1b[31m"),
        ("report", "/nowhere/\x1b[31m\n.json"),
        ("device", "--device", "nothing"),
        ("fleet", "tests/gpu"),
        ("fleet", "-o", "."),
        ("fleet", "-o", "/dev/null/fleet.json"),
    ],
    ids=" ".join,
)
def test_unusable_arguments_are_one_line(command, arguments):
    said = command(*arguments)
    assert said.status == 2
    assert said.out == ""
    assert said.err.startswith("pytest-bandwidth")
    assert len(said.err.splitlines()) == 1
    assert said.err.removesuffix("\n").isprintable()


def test_several_lines_of_an_error_become_one(command, monkeypatch):
    def fails(_):
        raise BandwidthError("nvrtc:\n  line 3: no such thing\x1b[0m\n  line 4: likewise")

    monkeypatch.setattr(import_module("pytest_bandwidth.cli.device"), "run", fails)
    said = "pytest-bandwidth device: nvrtc: line 3: no such thing\\x1b[0m line 4: likewise\n"
    assert command("device") == (2, "", said)


def test_hostile_names_are_harmless_in_every_table(command, tmp_path):
    files = [save(tmp_path / f"{i}.json", run_of(outcome(HOSTILE, 800.0))) for i in range(2)]
    baseline = tmp_path / "a.yaml"
    baseline.write_text('schema: 2\ntests:\n  "x\\tx": {bandwidth: 3 GB/s}\n', encoding="utf-8")
    for arguments in (("compare", *files), ("report", files[0]), ("baseline", "show", baseline)):
        said = command(*arguments)
        assert said.status == 0
        assert all(line.isprintable() for line in said.out.splitlines())
        assert "\u202e" not in said.out


def test_reader_that_has_seen_enough(tmp_path):
    """`| head` closes the pipe, which takes half of it: no traceback, and a status that is no verdict."""
    run = saved(tmp_path / "run.json", {f"tests/t.py::test_{i}": 1.0 + i for i in range(1500)})
    command = [sys.executable, "-m", "pytest_bandwidth.cli", "report", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(HANGS_SECONDS) == cli.PIPE_CLOSED


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here, where no write finds room")
def test_output_that_cannot_be_written(tmp_path):
    run = saved(tmp_path / "run.json", {"t.py::t": 1.0})
    with Path("/dev/full").open("w") as full:
        done = console_script("report", run, stdout=full)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "No space left" in done.stderr


def test_terminal_that_lacks_letters(tmp_path):
    run = saved(tmp_path / "run.json", {"t.py::test_größe": 1.0})
    done = console_script("report", run, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert r"test_gr\xf6\xdfe" in done.stdout


def test_start_imports_nothing_that_is_heavy():
    """--help and errors come at once; what is heavy is imported by the command that needs it."""
    code = "import sys, pytest_bandwidth.cli.main as c, pytest_bandwidth.features.history.command\n"
    code += "try: c.main(['--version'])\nexcept SystemExit: pass\n"
    code += "print([m for m in ('numpy', 'pytest', 'yaml', 'cupy', 'duckdb', 'ruptures') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


KEY = "tests/test_a.py::test_copy"


@pytest.fixture
def writes(tmp_path):
    """The arguments of a command that has something to write, up to `-o`."""
    return "report", save(tmp_path / "run.json", run_of(outcome(KEY, 700.0))), "-o"


def test_a_full_disk_leaves_the_old_file(command, writes, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "page.csv"
    command(*writes, path)
    old = path.read_bytes()
    with file_size_limit(16):
        said = command(*writes, path)
    assert said.status == 2
    assert said.err.endswith("File too large\n")
    assert [(file, file.read_bytes()) for file in folder.iterdir()] == [(path, old)]


def test_a_folder_that_is_not_there_is_made_as_by_a_run_or_that_is_told(command, writes, tmp_path):
    path = tmp_path / "missing" / "deep" / "page.csv"
    said = command(*writes, path)
    assert (said.status, said.err) == (0, f"wrote {path}\n")
    assert path.stat().st_size > 0
    (tmp_path / "file").write_text("")
    said = command(*writes, tmp_path / "file" / "page.csv")
    assert said.status == 2
    assert f"{tmp_path / 'file'}: cannot be read or written: " in said.err


def test_tables_align_and_shorten_by_the_columns_that_characters_take():
    heading, wide, plain = aligned(("name", "GB/s"), (("測" * 20, "1"), ("b", "22")), width=30)
    assert heading == f"{'name':24}  GB/s"
    assert wide == f"測測…{'測' * 9} {'1':>6}"  # 23 columns, and one to fill
    assert plain == f"{'b':24}  {'22':>4}"
