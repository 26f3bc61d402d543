"""The commands' frame: one-line errors, exit statuses, and outputs that close, fill up or lack letters."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from children import HANGS_SECONDS
from run_documents import outcome, run_of, save, saved

from pytest_bandwidth import __version__
from pytest_bandwidth.cli import main as cli
from pytest_bandwidth.domain.errors import BandwidthError

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
