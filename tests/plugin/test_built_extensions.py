"""An extension in C that is built and not committed, judged against its commit: and what a whole run touches."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata

import pytest
from repositories import committed, git
from user_project import INI_OF_COMMITS, LINK

SOURCE = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

static PyObject *copy(PyObject *self, PyObject *args) {
    Py_buffer to, from;
    if (!PyArg_ParseTuple(args, "w*y*", &to, &from)) return NULL;
    for (int i = 0; i < %d; i++) {
        memmove(to.buf, from.buf, from.len);
        __asm__ volatile("" ::: "memory");
    }
    PyBuffer_Release(&to);
    PyBuffer_Release(&from);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"copy", copy, METH_VARARGS, ""}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "ext", "", -1, methods};
PyMODINIT_FUNC PyInit_ext(void) { return PyModule_Create(&module); }
"""
SETUP = """
from setuptools import Extension, setup
setup(name="ext-of-a-test", version="1", py_modules=[], ext_modules=[Extension("ext", ["ext.c"])])
"""
TEST = """
from pathlib import Path

import pytest

import ext

@pytest.mark.bandwidth(tolerance="30%")
def test_copy(bandwidth):
    x, y = bandwidth.random(1 << 20, "float32"), bandwidth.empty(1 << 20, "float32")
    bandwidth(ext.copy, y, x, reads=x, writes=y, code=Path(ext.__file__).read_bytes())
"""
IN_PLACE = "python setup.py -q build_ext --inplace"
EDITABLE = "pip install -q -e . --no-build-isolation"

AUTHOR = ("-c", "user.name=n", "-c", "user.email=e@localhost")
pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
    pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="needs setuptools"),
]


def lay_out(folder):
    """Write source, set-up and test of an extension that copies once."""
    (folder / "ext.c").write_text(SOURCE % 1)
    (folder / "setup.py").write_text(SETUP)
    (folder / "test_ext.py").write_text(TEST)
    (folder / ".gitignore").write_text("*.so\nbuild/\n*.egg-info/\n__pycache__/\n.pytest_cache/\n")


def can_install():
    """Whether setuptools can make what an editable install needs, by itself or by the package wheel."""
    version = tuple(int(part) for part in metadata.version("setuptools").split(".")[:2])
    found = {name for name in ("pip", "wheel") if importlib.util.find_spec(name) is not None}
    return "pip" in found and ("wheel" in found or version >= (70, 1))


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Return what puts an extension that copies so many times into a project, source and library; built once each."""
    folder = tmp_path_factory.mktemp("extension")
    lay_out(folder)

    @functools.cache
    def built(times):
        (folder / "ext.c").write_text(SOURCE % times)
        command = [sys.executable, *IN_PLACE.split()[1:], "--force"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        (file,) = folder.glob("*.so")
        return file.name, file.read_bytes()

    def put(project, times=1):
        name, library = built(times)
        project.file("ext.c", SOURCE % times)
        (project.path / name).unlink(missing_ok=True)
        (project.path / name).write_bytes(library)

    return put


@pytest.fixture
def repo(project, build, alone, monkeypatch, tmp_path_factory):
    """One commit of an extension, which is built here."""
    del alone
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    lay_out(project.path)
    project.file("pytest.ini", INI_OF_COMMITS)
    committed(project.path)
    build(project)
    return project


def verdict(result):
    (row,) = {line for line in result.outlines if line.startswith("test_ext.py::test_copy ")}
    return re.search(r"  ([A-Z]+  .+)$", row)[1]


@pytest.mark.skipif(not can_install(), reason="needs pip, and setuptools 70.1 or the package wheel")
def test_a_slowed_extension_is_regressed_and_an_equal_one_not_timed(repo, build):
    """By an editable install; the tests below build in place."""
    against = ("--bandwidth-against=HEAD", "-o", f"bandwidth_build={EDITABLE}")
    result = repo.run(*against)
    assert verdict(result) == "OK  code unchanged"
    assert sum("bandwidth: builds HEAD" in line for line in result.outlines) == 1
    build(repo, times=12)
    result = repo.run(*against)
    assert verdict(result) == "REGRESSED  time"
    assert not any("bandwidth: builds" in line for line in result.outlines), "it was built before"
    result.assert_outcomes(failed=1)
    assert git(repo.path, "status", "--porcelain", "--untracked-files=no") == " M ext.c\n"


def test_an_extension_that_is_not_built_there_or_cannot_be_is_said_before_measuring(repo):
    result = repo.run("--bandwidth-against=HEAD")
    result.assert_outcomes(errors=1)
    said = r".*ext.*so: a loaded extension is not in git at HEAD .*: say .* bandwidth_build = .*"
    result.stdout.re_match_lines([said, "0 measured"])
    fails = repo.run("--bandwidth-against=HEAD", "-o", "bandwidth_build=echo 'error: no compiler'; exit 1")
    assert fails.ret == pytest.ExitCode.USAGE_ERROR
    fails.stderr.fnmatch_lines(
        [f"ERROR: bandwidth_build failed at HEAD * 'error: no compiler'; all of it is in *build.log{LINK}"]
    )


def test_a_changed_extension_is_compared_with_its_commit_as_built(repo, build):
    repo.file("pytest.ini", f"{INI_OF_COMMITS}bandwidth_build = {IN_PLACE}\n")
    git(repo.path, *AUTHOR, "commit", "-qam", "two")
    repo.run("--bandwidth-baseline=b.yaml", "--bandwidth-update", "--bandwidth-runs=1").assert_outcomes(passed=1)
    build(repo, times=12)
    result = repo.run("--bandwidth-baseline=b.yaml")
    assert verdict(result) == "REGRESSED  time"
    result.stdout.re_match_lines([r"REGRESSED: .* slower than the old code \(tolerance 30\.0 %\)"])


def test_bisect_builds_each_commit(repo):
    asked = f"bandwidth_build = {IN_PLACE}\nbandwidth_device = cpu\nbandwidth_max_time = 0.05\n"
    repo.file("pytest.ini", INI_OF_COMMITS + asked)
    for times in (1, 12, 12):
        repo.file("ext.c", SOURCE % times)
        git(repo.path, *AUTHOR, "commit", "-qam", f"{times} times", "--allow-empty")
    command = [sys.executable, "-m", "pytest_bandwidth.cli", "bisect", "HEAD~2", "HEAD", "test_ext.py::test_copy"]
    done = subprocess.run(command, cwd=repo.path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(git(repo.path, "rev-parse", "HEAD~1").strip())


CONNECTS = re.compile(r"connect\(\d+(?:<[^>]*>)?, \{sa_family=AF_INET6?,")
# Calls that make, change or remove what they name, and what `open` is told by then.
CHANGE = "creat|unlink|rename|mkdir|rmdir|link|symlink|chmod|truncate|utime"
WRITES = re.compile(rf"(?:O_WRONLY|O_RDWR|O_CREAT|^\d+ +(?:{CHANGE})\w*\()")
# Of the calls that name a file, not those that only ask whether it is there: most of what Python does at its start.
TRACED = f"{CHANGE}|open|execve|connect"
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("command", [None, IN_PLACE])
@pytest.mark.usefixtures("slept")  # nothing is timed, and so no Numba is loaded under strace
def test_a_whole_run_writes_its_worktrees_records_alone_and_connects_to_no_host(repo, build, tmp_path_factory, command):
    trace = tmp_path_factory.mktemp("trace") / "trace"
    if command is None:  # a worktree for this run alone
        for name in ("ext.c", "setup.py"):
            (repo.path / name).unlink()
        for file in repo.path.glob("*.so"):
            file.unlink()
        repo.file("test_ext.py", "def test_copy(bandwidth):\n    bandwidth(sum, [1], reads=100)\n")
        git(repo.path, *AUTHOR, "commit", "-qam", "two")
    else:
        build(repo, times=2)
    # All but these calls run at full speed: by itself strace stops a process at every call of the kernel.
    traced = ["strace", "-f", "--seccomp-bpf", "-qq", "-s", "4096", "-y", "-e", f"trace=/^({TRACED})"]
    pytest_command = [sys.executable, "-m", "pytest", "--bandwidth-device=cpu", "--bandwidth-max-time=0.05"]
    asked = ["--bandwidth-against=HEAD", "--bandwidth-tolerance=90%", "--bandwidth-json=run.json"]  # the first look
    build_option = [] if command is None else ["-o", f"bandwidth_build={command}"]
    done = subprocess.run(
        [*traced, "-o", str(trace), *pytest_command, *asked, *build_option],
        cwd=repo.path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "ptrace" in done.stderr and not trace.exists():
        pytest.skip("strace may not trace here")
    lines = trace.read_text(errors="replace").splitlines()
    assert any('/git"' in line and "execve" in line for line in lines), done.stdout
    assert (repo.path / "run.json").exists(), done.stdout
    records = str(repo.path / ".git" / "worktrees")
    written = {path for line in lines if WRITES.search(line) for path in named(line, repo.path)}
    assert any(path.startswith(records) for path in written), "strace shows what is written"
    inside = {path for path in written if path.startswith(str(repo.path / ".git"))}
    assert sorted(path for path in inside if not path.startswith(records)) == []
    assert [line for line in lines if CONNECTS.search(line)] == []


def named(line, folder):
    """The paths of a call that succeeded: each after the descriptor that strace shows the folder of."""
    if "= -1" in line:
        return
    for match in QUOTED.finditer(line):
        at = re.findall(r"<([^<>]*)>", line[: match.start()])
        yield os.path.normpath(os.path.join(at[-1] if at else folder, match[1]))
