"""Paths of a run: those of the ini file are relative to it, those of the command line to where it was typed."""

import subprocess
import sys

import pytest
from user_project import COPY, LINK

INI = """[pytest]
addopts = -p no:randomly -p no:hypothesispytest -p no:benchmark
bandwidth_busy_processors = 1000
bandwidth_runs = 1
bandwidth_baseline = baselines/host.yaml
bandwidth_json = out/run.json
"""


def test_a_run_in_a_folder_below_uses_the_files_of_the_ini(project, monkeypatch):
    (project.path / "pytest.ini").write_text(INI)
    project.file("sub/test_copy.py", COPY)
    monkeypatch.chdir(project.path / "sub")
    project.run_here("--bandwidth-update").assert_outcomes(passed=1)
    assert (project.path / "baselines" / "host.yaml").exists()
    assert (project.path / "out" / "run.json").exists()
    assert [path.name for path in (project.path / "sub").iterdir() if path.name != "__pycache__"] == ["test_copy.py"]
    result = project.run_here("--bandwidth-tolerance=99%")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*baseline: {project.path}/baselines/host.yaml*"])
    # What is typed is relative to where it was typed.
    (project.path / "baselines" / "host.yaml").unlink()
    project.run_here("--bandwidth-update", "--bandwidth-baseline=own.yaml", "-o", "bandwidth_json=own.json")
    assert (project.path / "sub" / "own.yaml").exists()
    assert (project.path / "sub" / "own.json").exists()
    assert not (project.path / "baselines" / "host.yaml").exists()


FOLDER, FOREIGN = "expected a folder", "which pytest-bandwidth did not write"
# What an option names that cannot be written, and what is said of it.
REFUSED = {
    "json=a_folder": "found the folder *a_folder, expected a file to write",
    "html=a_file/x.html": f"found the file *a_file, {FOLDER}",
    "json=": "found nothing, expected a path",
    "baseline=a_file/": f"found 'a_file/', which is a file, {FOLDER}",
    "json=s3://b/h": "found the address 's3://b/h', expected a path",
    "json=test_copy.py": "found *test_copy.py with the ending .py, expected .json",
    "csv=run.json": "found *run.json with the ending .json, expected .csv",
    "html=Makefile": f"found *Makefile, {FOREIGN}",
    "json=package.json": f"found *package.json, {FOREIGN}",
    "csv=data.csv": f"found *data.csv, {FOREIGN}",
    "dir=a_file": f"found the file *a_file, {FOLDER}",
    "profile=a_file/p": f"found the file *a_file, {FOLDER}",
    **{f"{name}=loop": "found *loop, which cannot be opened (Too many levels" for name in ("json", "dir", "history")},
    **{f"{name}={'a' * 300}": f"*{'a' * 300}" for name in ("json", "dir")},
}


@pytest.mark.in_process
def test_an_output_that_cannot_be_written_is_said_before_any_test(project):
    project.file("test_copy.py", COPY + "    open('ran', 'w')\n")
    project.file("a_file", "")
    theirs = {"Makefile": "all:\n", "package.json": '{"name": "x"}\n', "data.csv": "a,b\n"}
    for name, text in theirs.items():
        project.file(name, text)
    (project.path / "a_folder").mkdir()
    (project.path / "loop").symlink_to("loop")
    for option, said in REFUSED.items():
        result = project.run_here(f"--bandwidth-{option}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: --bandwidth-{option.partition('=')[0]}: {said}*"])
    missing = project.run_here(f"--bandwidth-baseline={'a' * 300}")
    missing.stderr.fnmatch_lines([f"ERROR: *{'a' * 300}*"])
    looped = project.run_here("--bandwidth-baseline=loop", "--bandwidth-update")
    looped.stderr.fnmatch_lines(["ERROR: --bandwidth-baseline: found *loop, which cannot be opened (Too many levels*"])
    assert missing.ret == looped.ret == pytest.ExitCode.USAGE_ERROR
    assert not (project.path / "ran").exists()
    assert {name: (project.path / name).read_text() for name in theirs} == theirs


# Root may write anywhere by two rights of Linux's, which a process gives up for itself and for what it becomes.
AS_ANY_USER = """
import ctypes, os, sys
drop_from_bounds, may_write_anywhere, may_read_anywhere = 24, 1, 2
if os.getuid() == 0:
    for right in (may_write_anywhere, may_read_anywhere):
        if ctypes.CDLL(None).prctl(drop_from_bounds, right) != 0:
            sys.exit(77)
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
"""


@pytest.mark.processes
def test_an_output_where_this_user_may_not_write_is_said_before_any_test(project):
    project.file("test_copy.py", COPY + "    open('ran', 'w')\n")
    folder = project.path / "a_folder"
    folder.mkdir(mode=0o500)
    for option in ("--bandwidth-html=a_folder/x.html", "--bandwidth-dir=a_folder", "--bandwidth-history=a_folder/h"):
        command = [sys.executable, "-c", AS_ANY_USER, "--bandwidth-device=cpu", option]
        done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
        if done.returncode == 77:
            pytest.skip("this root may not give up the right to write anywhere")
        name = option.partition("=")[0]
        said = f"ERROR: {name}: found the folder {folder}, where this user may not write, expected another"
        assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (4, f"{said}{LINK}")
    assert not (project.path / "ran").exists()


def test_no_output_takes_the_place_of_the_baseline_or_of_another(project):
    project.file("test_copy.py", COPY)
    text = "schema: 2\ntests:\n  test_copy.py::test_copy:\n    bandwidth: 1 MB/s\n"
    kept = project.file("kept/b.yaml", text)
    for options, said in (
        (
            ("--bandwidth-baseline=kept/b.yaml", "--bandwidth-json=kept/b.yaml"),
            "--bandwidth-json: found the baseline*",
        ),
        (("--bandwidth-baseline=kept", "--bandwidth-html=kept/b.yaml"), "--bandwidth-html: found the baseline *"),
        (("--bandwidth-json=x", "--bandwidth-csv=./x"), "--bandwidth-csv: found *x, which --bandwidth-json writes*"),
    ):
        result = project.run_here(*options)
        assert result.ret == 4
        result.stderr.fnmatch_lines([f"ERROR: {said}"])
    assert kept.read_text() == text
