"""--bandwidth-against from the outside: the tests of a git repository, with changes that are not committed."""

import os
import subprocess
import sys
import time

import pytest
import virtual_time
from children import HANGS_SECONDS, heeded
from repositories import committed, git
from user_project import INI_OF_COMMITS

KERNEL = "from virtual_time import sleep\ndef pause():\n    sleep({})\n"
TEST = """
import numpy as np
import pytest
import kern

@pytest.mark.bandwidth(judged_on="gbps", tolerance="50%")
def test_kernel(bandwidth):
    a, b = bandwidth.random(1 << 18, "float32"), bandwidth.empty(1 << 18, "float32")
    def kernel():
        np.copyto(b, a)
        kern.pause()
    bandwidth(kernel, reads=a, writes=b)

@pytest.mark.bandwidth(judged_on="gbps", tolerance="50%")
def test_large(bandwidth):
    bandwidth(lambda: kern.pause(), reads=10**9)
"""
NEW = "\ndef test_new(bandwidth):\n    bandwidth(len, 'abc', reads=100)\n"


@pytest.fixture
def repo(to_commit):
    """One commit; in the working tree the kernel takes ten times as long and there is a test more."""
    to_commit.file("kern.py", KERNEL.format(0.002))
    to_commit.file("test_kernel.py", TEST)
    committed(to_commit.path)
    to_commit.file("kern.py", KERNEL.format(0.02))
    to_commit.file("test_kernel.py", TEST + NEW)
    return to_commit


def worktrees(project):
    return len(git(project.path, "worktree", "list").splitlines())


def test_a_slowed_kernel_fails_and_a_new_test_has_no_baseline(repo):
    result = repo.run("--bandwidth-against=HEAD", "--bandwidth-json=run.json")
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.re_match_lines(
        [
            r"bandwidth: .*; baseline: HEAD \([0-9a-f]{10}\)",
            r"REGRESSED: 8\d\.\d % slower than the old code \(tolerance 50\.0 %\)",
            r" +old code +\S+ GB/s \(HEAD \([0-9a-f]{10}\), \d+ pairs, ± \S+ %\)",
            r" +accept it +in code review: .*",
            r"test_kernel\.py:\d+: REGRESSED",
            r"test_new .* UNDECIDED( +no old measurement)?",
        ]
    )
    assert "--bandwidth-update" not in result.stdout.str()
    kernel, large, new = repo.told()["results"]
    assert kernel["baseline"]["runs"][0]["commit"] == git(repo.path, "rev-parse", "HEAD").strip()
    assert (new["status"], new["reason_code"]) == ("UNDECIDED", "not-there")
    assert new["reason"].endswith("has no such test")
    assert (large["status"], large["reason_code"]) == ("REGRESSED", "pairs")
    # This host has no memory for two sets of a gigabyte: those processes follow each other, as on a GPU. Each has
    # addresses of its own, so that more pairs have to agree.
    alternate = {row["nodeid"]: row["verdict"]["facts"]["alternate"] for row in (kernel, large)}
    assert list(alternate.values()) == [True, False]
    assert large["verdict"]["runs"] == virtual_time.FEWEST_UNALIKE
    assert worktrees(repo) == 1


def test_workers_of_xdist_share_the_controllers_worktree(repo):
    pytest.importorskip("xdist")
    repo.file("pytest.ini", f"{INI_OF_COMMITS}addopts = -p xdist\n")
    repo.file("test_later.py", NEW)
    result = repo.run("-n1", "--bandwidth-against=HEAD", "test_later.py")
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines(
        [r".*UNDECIDED +no old measurement", r"UNDECIDED .*HEAD \([0-9a-f]{10}\) has no test_later\.py"]
    )
    assert worktrees(repo) == 1


def test_what_cannot_be_is_told_before_any_test_and_before_workers(repo):
    pytest.importorskip("xdist")
    for args, message in (
        (("--bandwidth-against=nope",), "*'nope' is not a commit of *fetch it*"),
        (("--bandwidth-against=HEAD", "--bandwidth-update", "--bandwidth-baseline=b.yaml"), "*drop one*"),
        (("-p", "xdist", "-n1", "--bandwidth-against=nope"), "*'nope' is not a commit of *"),
    ):
        result = repo.run_here(*args)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([message])
        assert worktrees(repo) == 1


MEASURES_NOTHING = ("--fixtures-per-test", "--collect-only", "--bandwidth-disable", "--bandwidth-skip")


def test_only_what_measures_needs_a_repository(project):
    project.file("test_new.py", NEW)
    for option in MEASURES_NOTHING:
        assert project.run_here("--bandwidth-against=HEAD", option).ret == pytest.ExitCode.OK, option
    result = project.run_here("--bandwidth-against=HEAD")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--bandwidth-against needs a git repository*"])


def test_no_worktree_is_left_where_pytest_is_told_to_end(repo):
    """By Ctrl-C, while a child of the other revision sleeps in its test."""
    number = heeded("SIGINT")
    repo.file(
        "test_kernel.py",
        TEST.replace(
            "    a, b", "    import os, time; open(os.environ['ASLEEP'], 'a').write('x'); time.sleep(1)\n    a, b"
        ),
    )
    committed(repo.path, "two")
    repo.file("kern.py", KERNEL.format(0.03))
    asleep = repo.path / "asleep"
    command = [sys.executable, "-m", "pytest", "--bandwidth-against=HEAD", "--bandwidth-device=cpu"]
    with (repo.path / "output").open("w") as output:
        process = subprocess.Popen(
            command, cwd=repo.path, env={**os.environ, "ASLEEP": str(asleep)}, stdout=output, stderr=output
        )
        try:
            # The child there that tells its code, the run, a child here, a child there.
            while not (asleep.exists() and len(asleep.read_text()) == 4):
                assert process.poll() is None, (repo.path / "output").read_text()
                time.sleep(0.05)  # its children are not ours: their file is all that they tell
            assert worktrees(repo) == 2
            process.send_signal(number)
            assert process.wait(HANGS_SECONDS) == pytest.ExitCode.INTERRUPTED
        finally:
            process.kill()
            process.wait()
    assert worktrees(repo) == 1


STARTS = """
import os
import subprocess
import sys
import numpy as np

DEPTH = int(os.environ.get("DEPTH", "0"))

def test_outer(bandwidth):
    with open("depths", "a") as file:
        print(DEPTH, file=file)
    if DEPTH < 2:
        os.environ["DEPTH"] = str(DEPTH + 1)
        subprocess.run([sys.executable, "-m", "pytest", "-q", "test_inner.py"], check=True, timeout=100)
        os.environ["DEPTH"] = str(DEPTH)
    a, b = bandwidth.random(1 << 18, "float32"), bandwidth.empty(1 << 18, "float32")
    bandwidth(np.copyto, b, a, reads=a, writes=b)
"""
INNER = """
def test_inner():
    with open("inner", "a") as file:
        print("ran", file=file)
"""


def test_a_test_that_starts_pytest_does_not_multiply_itself(repo):
    repo.file("test_outer.py", STARTS)
    repo.file("test_inner.py", INNER)
    committed(repo.path, "starts pytest")
    result = repo.run("--bandwidth-against=HEAD", "test_outer.py")
    result.assert_outcomes(passed=1)
    depths = (repo.path / "depths").read_text().split()
    assert set(depths) == {"0"}
    assert (repo.path / "inner").read_text().split() == ["ran"] * len(depths)


TESTS = """
import numpy as np
import pytest
import kern

def measured(bandwidth, **more):
    a, b = bandwidth.random(1 << 18, "float32"), bandwidth.empty(1 << 18, "float32")
    def kernel():
        np.copyto(b, a)
        kern.pause()
    return bandwidth(kernel, reads=a, writes=b, code="the same", **more)

def test_same(bandwidth):
    assert measured(bandwidth, label="one").value is None
    measured(bandwidth, label="two")

@pytest.mark.bandwidth(min_gbps=1e-6)
def test_floor(bandwidth):
    assert measured(bandwidth).gbps > 0

@pytest.mark.bandwidth(judged_on="gbps", tolerance="50%")
def test_uses_its_figures(bandwidth):
    assert measured(bandwidth).gbps > 0
"""
SITE = """
import os
import pytest_bandwidth.evidence.processes.child as child
real = child.Child.__init__
def noted(self, command, folder, request, *more, **named):
    with open(os.environ["STARTED"], "a") as file:
        file.write(f"{'tells' if request.reports_code else 'measures'}\\n")
    real(self, command, folder, request, *more, **named)
child.Child.__init__ = noted
"""


def test_the_same_code_takes_no_measurement_but_for_floors_and_for_tests_that_use_figures(to_commit, monkeypatch):
    """Fresh processes note why they were started."""
    project = to_commit
    monkeypatch.setenv("STARTED", str(project.path / "started"))
    for name, text in {"conftest.py": SITE, "kern.py": KERNEL.format(0.002), "test_kernel.py": TESTS}.items():
        project.file(name, text)
    committed(project.path)
    result = project.run("--bandwidth-against=HEAD", "--bandwidth-json=run.json", "--bandwidth-baseline=b.yaml")
    result.assert_outcomes(passed=3)
    result.stdout.re_match_lines([r"bandwidth: .*; baseline: HEAD \([0-9a-f]{10}\); b.yaml is not read"])
    rows = {row["key"].partition("::")[2]: row for row in project.told()["results"]}
    assert {name: (row["status"], row["gbps"] is None) for name, row in rows.items()} == {
        "test_same @ one": ("OK", True),
        "test_same @ two": ("OK", True),
        "test_floor": ("OK", False),  # by its floor, which no other revision decides
        "test_uses_its_figures": ("OK", False),
    }
    assert {rows[f"test_same @ {label}"]["reason_code"] for label in ("one", "two")} == {"code-unchanged"}
    started = (project.path / "started").read_text().split()
    assert started == ["tells", *["measures"] * (len(started) - 1)]
