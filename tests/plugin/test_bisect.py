"""`pytest-bandwidth bisect` from the outside: in real git repositories, with real processes."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
import virtual_time
from children import HANGS_SECONDS, SUPPORT, heeded
from repositories import git

INI = """[pytest]
addopts = -p no:randomly -p no:hypothesispytest -p no:benchmark -p no:cacheprovider {addopts}
bandwidth_device = {device}
bandwidth_busy_processors = 1000
bandwidth_max_time = 0.05
bandwidth_min_samples = 5
pythonpath = .
"""
KERNEL = """
extern "C" __global__ void copy(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
"""
FAST, REVERSED, STRIDED = (
    KERNEL.format(body="y[i] = x[i];"),
    KERNEL.format(body="y[i] = x[n - 1 - i];"),
    KERNEL.format(body="y[i] = x[i * 32 % n + i * 32 / n];"),
)
COUNTED = """
import numpy as np
import pytest

N = 1 << 10

@pytest.mark.parametrize("blocks", [4])
def test_copy(bandwidth, blocks):
    x, y = bandwidth.random(N), bandwidth.empty(N)
    kernel = bandwidth.kernel("copy.cu", "copy")
    bandwidth.launch(kernel, blocks, N // blocks, (x, y, np.int32(N)), reads=x, writes=y)
"""
TEST = "test_copy.py::test_copy[4]"
# Takes as long as it says, by `virtual_time`.
SLEEPS = """
import numpy as np
import pytest
from virtual_time import sleep

import kern

@pytest.mark.bandwidth(judged_on="gbps", tolerance="20%")
def test_pause(bandwidth):
    a, b = bandwidth.random(1 << 12), bandwidth.empty(1 << 12)
    def kernel():
        np.copyto(b, a)
        sleep(kern.SECONDS)
    bandwidth(kernel, reads=a, writes=b)
"""


class Repo:
    """A repository whose commits are told apart by their subjects. Its working tree is broken, and stays as it is."""

    def __init__(self, path, device="traffic", addopts=""):
        self.path = path
        self.commits = {}
        path.mkdir()
        git(path, "init", "-q", "-b", "main")
        (path / "pytest.ini").write_text(INI.format(device=device, addopts=addopts))

    def git(self, *args):
        return git(self.path, "-c", "user.name=n", "-c", "user.email=e@localhost", *args)

    def commit(self, subject, **texts):
        """Commit files, by name with _ for the dot; None takes one away."""
        for name, text in texts.items():
            file = self.path / re.sub("_(?=(py|cu)$)", ".", name)
            file.unlink() if text is None else file.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        self.commits[subject] = self.git("rev-parse", "HEAD").strip()

    def start(self, *args, **more):
        """Start the command; the folder's own files are of no use to it."""
        for file in self.path.glob("[a-z]*.*"):
            file.write_text("raise SystemExit('nothing of the working tree runs')")
        command = [sys.executable, "-m", "pytest_bandwidth.cli", "bisect", *args]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.path, **piped, **more)

    def bisect(self, *args):
        """Run the command, see that it leaves nothing behind; return exit status, output, errors."""
        with self.start(*args) as process:
            out, err = process.communicate(timeout=HANGS_SECONDS)
        self.check_untouched()
        return process.returncode, out, err

    def check_untouched(self):
        changed = self.git("status", "--porcelain", "--ignored").splitlines()
        assert {line[:3] for line in changed} <= {" M "}
        assert len(self.git("worktree", "list").splitlines()) == 1

    def found(self, *args):
        """Run it for programs; return its exit status, statuses by subject, subjects that may be the first, reasons."""
        status, out, err = self.bisect("--json", *args)
        assert out, err
        document = json.loads(out)
        subjects = {commit: subject for subject, commit in self.commits.items()}
        judged = {subjects[one["commit"]]: one for one in document["judged"]}
        statuses = {subject: one["status"] for subject, one in judged.items()}
        reasons = {subject: one["reason"] for subject, one in judged.items()}
        return status, statuses, [subjects[commit] for commit in document["first_bad"]], reasons


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch, alone):
    """A temporary folder of the command's own, to see what it leaves there."""
    del alone
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert [left.name for left in folder.iterdir() if left.name != f"pytest-bandwidth-{os.getuid()}"] == []


@pytest.fixture
def counted(tmp_path):
    """A repository whose test is counted: fast, then with a comment."""
    pytest.importorskip("cuda.bindings", reason="NVRTC compiles here: pip install 'pytest-bandwidth[traffic]'")
    repo = Repo(tmp_path / "repo")
    repo.commit("fast", copy_cu=FAST, test_copy_py=COUNTED)
    repo.commit("a comment", copy_cu="// so fast\n" + FAST)
    return repo


@pytest.mark.smoke
def test_the_first_bad_commit_is_found_and_equal_code_takes_no_measurement(counted):
    repo = counted
    repo.commit("reversed", copy_cu=REVERSED)
    repo.commit("slow", copy_cu=STRIDED)
    repo.commit("later", copy_cu=STRIDED + "// later\n")
    status, out, err = repo.bisect("main~4", "main", TEST)
    assert status == 1, err
    said, short = out.splitlines(), {subject: commit[:10] for subject, commit in repo.commits.items()}
    assert said[0].startswith(f"{TEST}: 4 commits after main~4 ({short['fast']}), on traffic ")
    assert said[1].startswith(f"{short['later']} REGRESSED: ")
    assert sorted(said[2:-2]) == sorted(
        [
            f"{short['slow']} REGRESSED: the code is that of {short['later']}",
            f"{short['reversed']} OK: no count has changed",
            *(line for line in said if line.startswith(short["a comment"]) and "OK: the code is that of" in line),
        ]
    )
    assert said[-2] == f"the first commit at which {TEST} is REGRESSED against main~4 ({short['fast']}):"
    assert re.fullmatch(rf"{repo.commits['slow']} slow \(n, \d{{4}}-\d\d-\d\d\)", said[-1])


def test_what_cannot_be_judged_is_passed_over_and_named(counted):
    repo = counted
    repo.commit("no kernel", copy_cu="what is this")
    repo.commit("no test", test_copy_py="")
    repo.commit("does not import", copy_cu=STRIDED, test_copy_py="import nothing_of_that_name\n" + COUNTED)
    repo.commit("slow", test_copy_py=COUNTED)
    status, statuses, first, reasons = repo.found("main~5", "main", TEST)
    assert status == 125
    assert statuses == {
        "slow": "REGRESSED",
        "no kernel": None,
        "no test": None,
        "does not import": None,
        "a comment": "OK",
    }
    assert first == ["slow", "does not import", "no test", "no kernel"]
    assert "the test fails at commit " in reasons["no kernel"]
    assert re.fullmatch(r"commit [0-9a-f]{10} has no such test", reasons["no test"])
    assert "nothing_of_that_name" in reasons["does not import"]


def test_where_the_bad_commit_has_not_regressed_there_is_nothing_to_find(counted, monkeypatch):
    """And no worker is started, though the ini file asks for some."""
    pytest.importorskip("xdist")
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.delenv("PYTEST_ADDOPTS")
    (counted.path / "pytest.ini").write_text(INI.format(device="traffic", addopts="-n 2"))
    counted.commit("later", copy_cu=REVERSED)
    status, out, err = counted.bisect("main~2", "main", TEST)
    assert status == 0, err
    assert f"{counted.commits['later'][:10]} OK: no count has changed" in out
    assert out.splitlines()[-1] == f"{TEST} is not REGRESSED there: nothing to find"


def test_a_bad_commit_that_cannot_be_judged_is_told(counted):
    counted.commit("no kernel", copy_cu="what is this")
    status, out, err = counted.bisect("main~2", "main", TEST)
    assert status == 125, err
    assert "skipped: the test fails at commit " in out
    assert out.splitlines()[-1] == f"{TEST} could not be judged"


BAD_USE = [
    (("nope", "main", TEST), "bisect: GOOD: 'nope' is not a commit of .*fetch it"),
    (("main", "main~1", TEST), r"GOOD \(.*\) is not an ancestor of BAD \(.*\): their last common commit is "),
    (("main~1", "main", "test_copy.py"), "TEST is 'test_copy.py', expected one as pytest names it"),
    (("main~1", "main", "test_copy.py::test_copy"), "has no such test: expected one .* with its parameters"),
    (("main~1", "main", "test_none.py::test_copy"), "has no test_none.py"),
    (("--timeout", "0", "main~1", "main", TEST), "--timeout: found '0', expected seconds, more than 0"),
]


def test_bad_use_is_told_in_a_line(counted, command, monkeypatch, tmp_path):
    monkeypatch.chdir(counted.path)
    for args, message in BAD_USE:
        said = command("bisect", *args)
        assert (said.status, said.out) == (2, "")
        assert re.search(message, said.err), said.err
        assert len(said.err.splitlines()) == 1
    monkeypatch.chdir(tmp_path)
    said = command("bisect", "a", "b", "t.py::t")
    assert said.status == 2
    assert "bisect: it needs a git repository" in said.err


def test_pairs_of_two_commits_run_the_code_of_each_and_none_of_the_working_tree(tmp_path, monkeypatch):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(virtual_time.SITE)
    repo = Repo(tmp_path / "repo", "cpu")
    # What a .pth file does: the working tree is on sys.path of every process.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (site, SUPPORT, repo.path))))
    for subject, seconds in {"fast": 0.01, "less": 0.011, "slow": 0.02}.items():
        repo.commit(subject, kern_py=f"SECONDS = {seconds}  # {subject}\n", test_pause_py=SLEEPS)
    status, out, err = repo.bisect("main~2", "main", "test_pause.py::test_pause")
    assert status == 1, err
    assert out.splitlines()[-1].startswith(f"{repo.commits['slow']} slow")
    assert re.search(
        rf"{repo.commits['slow'][:10]} REGRESSED: .* % slower than the old code \(tolerance 20\.0 %\)", out
    )
    assert re.search(rf"{repo.commits['less'][:10]} OK: ", out)


def test_nothing_is_left_where_it_is_told_to_end(counted, monkeypatch, tmp_path):
    number = heeded("SIGHUP")
    pid = tmp_path / "pid"
    monkeypatch.setenv("ASLEEP", str(pid))
    waits = "    import os, time, pathlib; pathlib.Path(os.environ['ASLEEP']).write_text(str(os.getpid()))\n"
    counted.commit("hangs", test_copy_py=COUNTED.replace("    x, y", f"{waits}    time.sleep(600)\n    x, y"))
    with counted.start("main~2", "main", TEST) as process:
        try:
            until = time.monotonic() + HANGS_SECONDS
            while not (pid.exists() and pid.read_text()) and time.monotonic() < until and process.poll() is None:
                time.sleep(0.05)
            assert len(counted.git("worktree", "list").splitlines()) == 3, "the good one's, and the one that hangs"
            process.send_signal(number)
            _, err = process.communicate(timeout=HANGS_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "interrupted\n")
    counted.check_untouched()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
