"""A revision that a command builds: once, in a folder and an environment of its own, for so long."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from children import HANGS_SECONDS, gone
from repositories import committed, git

from pytest_bandwidth.cli.bisect import how_built
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.evidence.commit_pairs import build as building
from pytest_bandwidth.evidence.commit_pairs.build import Build, BuildFailed, Built, make_environment, run_build
from pytest_bandwidth.evidence.commit_pairs.worktree import CheckedOut


def commit(repo, text):
    (repo / "a.txt").write_text(text)
    return committed(repo, text)


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """Two commits; temporary and cached folders lie in folders of the test's own."""
    for name in ("repo", "tmp", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "make_environment", Path.mkdir)  # a real one takes most of a build's time
    commit(tmp_path / "repo", "one")
    commit(tmp_path / "repo", "two")
    return tmp_path / "repo"


def built(repo, command, name="HEAD", told=None):
    return Built(repo, name, Build(command, repo), [].append if told is None else told.append)


def kept(repo):
    folder = repo.parent / "cache" / "pytest-bandwidth" / "builds"
    return sorted(folder.iterdir()) if folder.exists() else []


@pytest.fixture
def failure(repo):
    """Build HEAD by a command and return why that failed, with the seconds it took."""
    (repo.parent / "environment").mkdir()

    def failed(command, seconds=HANGS_SECONDS):
        checked_out = CheckedOut(repo, "HEAD")
        log = repo.parent / "build.log"
        begun = time.monotonic()
        try:
            with pytest.raises(BuildFailed) as why:
                run_build(Build(command, repo), checked_out.revision, repo.parent / "environment", log, seconds=seconds)
        finally:
            checked_out.remove()
        assert "\n" not in str(why.value)
        return str(why.value), time.monotonic() - begun

    return failed


def test_a_commit_is_built_once_in_its_own_tree(repo, tmp_path):
    count, told = tmp_path / "count", []
    command = f"cat a.txt > built.so; echo once >> {count}"
    for name, text in (("HEAD", "two"), ("HEAD", "two"), ("HEAD~1", "one")):
        one = built(repo, command, name, told)
        assert (Path(one.revision.tree) / "built.so").read_text() == text
        one.remove()
        one.remove()
    assert count.read_text().split() == ["once", "once"]
    assert [re.sub(r"\(.*", "", line) for line in told] == ["builds HEAD ", "builds HEAD~1 "]
    built(repo, f"{command}; true").remove()
    assert len(count.read_text().split()) == 3, "another command is another build"
    assert git(repo, "status", "--porcelain") == ""


def test_python_and_pip_are_of_an_environment_on_top_of_this_one(repo, monkeypatch):
    monkeypatch.setattr(building, "make_environment", make_environment)
    for variable in ("PIP_TARGET", "PIP_PREFIX", "PIP_USER"):
        monkeypatch.setenv(variable, "/elsewhere")
    one = built(
        repo,
        # An environment of the user's, and what is no code, may change in their tree.
        f"touch {repo}/notes.txt; mkdir {repo}/v; touch {repo}/v/pyvenv.cfg {repo}/v/x.py;"
        "python -c 'import sys; print(sys.prefix); import numpy' > p; pip --version > q;"
        "echo $PIP_TARGET $PIP_PREFIX $PIP_USER $PIP_NO_INPUT > said",
    )
    tree, environment = Path(one.revision.tree), Path(one.revision.python).parent.parent
    assert (tree / "p").read_text().strip() == str(environment)
    assert (tree / "said").read_text().split() == ["0", "1"], "nothing is installed elsewhere"
    asked = "import pip, pytest_bandwidth, site, sys; print(sys.prefix); import numpy; print(numpy.__file__)"
    asked += "; print(*site.getsitepackages())"
    said = subprocess.run([one.revision.python, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert said.split()[0] == str(environment)
    assert said.split()[1].startswith(sysconfig.get_path("purelib"))
    assert sysconfig.get_path("purelib") in said.split()[2:], "CUDA's packages look for NVRTC there"
    one.remove()


def test_a_failure_is_one_line_with_the_logs_end(repo):
    with pytest.raises(BuildFailed) as why:
        built(repo, "echo first; echo 'ext.c:7: error: expected ;' >&2; echo last; exit 3")
    (folder,) = kept(repo)
    assert re.fullmatch(
        r"bandwidth_build failed at HEAD \([0-9a-f]{10}\) with exit status 3: it said 'ext\.c:7: error: expected ;'; "
        rf"all of it is in {re.escape(str(folder / 'build.log'))}",
        str(why.value),
    )
    assert sorted(os.listdir(folder)) == ["build.log", "owner.lock"]
    assert len(git(repo, "worktree", "list").splitlines()) == 1


def test_a_build_that_asks_for_input_ends_at_once(failure):
    for command in ("read answer", "python -W ignore -c 'import getpass; getpass.getpass()'"):
        why, seconds = failure(command)
        assert "failed at HEAD" in why
        assert seconds < HANGS_SECONDS / 2


@pytest.mark.parametrize(
    ("command", "seconds", "said"),
    [("trap '' TERM; sleep 600", 4, "did not end in 4 s at HEAD"), ("exit 3", HANGS_SECONDS, "failed at HEAD")],
    ids=["hangs", "fails"],
)
def test_what_a_build_started_is_ended_with_it(failure, tmp_path, monkeypatch, command, seconds, said):
    monkeypatch.setattr(building, "_GRACE_SECONDS", 0.5)
    started = f"sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600' & until test -s {tmp_path}/pid; do sleep 0.1; done"
    why, _ = failure(f"{started}; {command}", seconds=seconds)
    assert said in why
    assert gone((tmp_path / "pid").read_text().strip())


def test_a_build_that_writes_into_the_users_tree_is_refused(repo, failure):
    extension = repo / "src" / "ext.so"
    extension.parent.mkdir()
    for existed in (False, True):
        if existed:
            extension.write_text("mine")
        why, _ = failure(f"echo theirs > {extension}")
        assert f"wrote into {repo} at HEAD" in why
        assert str(extension) in why


def test_a_build_that_installs_into_this_environment_is_refused(failure, tmp_path, monkeypatch):
    place = tmp_path / "site-packages"
    place.mkdir()
    found = sysconfig.get_path
    mine = {"purelib": str(place), "platlib": str(place)}
    monkeypatch.setattr(
        sysconfig, "get_path", lambda name, **more: mine[name] if not more and name in mine else found(name, **more)
    )
    why, _ = failure(f"touch {place}/__editable__.ext.pth")
    assert "wrote into this Python environment at HEAD" in why


GARBLED = ("[" * 100_000, '{"tree": 7}')


def test_a_tree_that_was_changed_or_whose_record_is_garbled_is_built_anew(repo, tmp_path):
    command = f"echo once >> {tmp_path}/count"
    built(repo, command).remove()
    changes = (("tree/a.txt", "what a test wrote"), *(("built.json", text) for text in GARBLED))
    for number, (file, text) in enumerate(changes, 2):
        (kept(repo)[0] / file).write_text(text)
        again = built(repo, command)
        assert (Path(again.revision.tree) / "a.txt").read_text() == "two"
        again.remove()
        assert len((tmp_path / "count").read_text().split()) == number, text[:40]


def test_a_cache_that_somebody_cleared_is_filled_again(repo):
    built(repo, "true").remove()
    shutil.rmtree(kept(repo)[0].parent)
    again = built(repo, "true")
    assert (Path(again.revision.tree) / "a.txt").read_text() == "two"
    again.remove()


def test_the_builds_that_were_used_last_are_kept(repo, monkeypatch):
    monkeypatch.setattr(building, "MOST_KEPT", 2)
    in_use = built(repo, "echo 0")
    for number in range(1, 4):
        built(repo, f"echo {number}").remove()
        time.sleep(0.02)
    logs = {(folder / "build.log").read_text().strip() for folder in kept(repo)}
    assert logs == {"0", "2", "3"}, "the oldest is in use"
    assert len(git(repo, "worktree", "list").splitlines()) == 1 + 3
    in_use.remove()
    monkeypatch.setattr(building, "MOST_KEPT_BYTES", 0)
    built(repo, "echo 4").remove()
    assert [(folder / "build.log").read_text().strip() for folder in kept(repo)] == ["4"]
    assert len(git(repo, "worktree", "list").splitlines()) == 2


BUILDS = """
import sys
from pathlib import Path
from pytest_bandwidth.evidence.commit_pairs.build import Build
from pytest_bandwidth.evidence.commit_pairs.build import Built
one = Built(Path(sys.argv[1]), "HEAD", Build(sys.argv[2], Path(sys.argv[1])), lambda _: None)
print(one.revision.tree, flush=True)
sys.stdin.read()
"""


def start(repo, command):
    return subprocess.Popen(
        [sys.executable, "-c", BUILDS, str(repo), command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_processes_that_want_the_same_build_share_it(repo, tmp_path):
    command = f"echo once >> {tmp_path}/count; sleep 1"
    processes = [start(repo, command) for _ in range(3)]
    trees = {process.stdout.readline() for process in processes}  # all three use it at one time
    for process in processes:
        process.communicate()
    assert len(trees) == 1
    assert (tmp_path / "count").read_text().split() == ["once"]


def test_a_killed_processs_build_ends_and_is_begun_anew(repo, tmp_path):
    command = f"test -e {tmp_path}/pid && exit; echo $$ > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/pid; sleep 600"
    with start(repo, command) as process:
        while not (tmp_path / "pid").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert gone((tmp_path / "pid").read_text().strip())
    built(repo, command).remove()
    assert json.loads((kept(repo)[0] / "built.json").read_text())["bytes"] > 0


def test_a_cache_inside_the_repository_is_refused(repo, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(repo / ".cache"))
    with pytest.raises(UsageError, match="set XDG_CACHE_HOME to a folder outside"):
        built(repo, "true")
    assert not (repo / ".cache").exists()


def test_a_folder_that_others_may_write_to_is_refused(repo):
    built(repo, "true").remove()
    (folder,) = kept(repo)
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="found one that others may write to"):
        built(repo, "true")


INIS = {
    "pyproject.toml": "[tool.pytest.ini_options]\nbandwidth_build = 'make'\n",
    "sub/pytest.ini": "[pytest]\nbandwidth_build = make\n",
}


@pytest.mark.parametrize("name", INIS)
def test_bisect_builds_as_the_bad_commits_ini_file_says(repo, name):
    (repo / "sub").mkdir()
    (repo / name).write_text(INIS[name])
    bad = commit(repo, "three")
    (repo / name).unlink()
    file, folder = repo / "sub" / "test_a.py", (repo / name).parent
    assert how_built(repo, bad, file, []) == Build("make", folder)
    assert how_built(repo, bad, file, ["-o", "bandwidth_build=other"]) == Build("other", folder)
    assert how_built(repo, bad, file, ["--override-ini=bandwidth_build=", "-x"]) is None
    assert how_built(repo, git(repo, "rev-parse", "HEAD~1").strip(), file, []) is None


def test_an_ini_file_that_cannot_be_read_is_an_error_of_one_line(repo):
    (repo / "pyproject.toml").write_text("[tool.pytest\n")
    with pytest.raises(UsageError, match="expected pytest's ini file") as why:
        how_built(repo, commit(repo, "three"), repo / "test_a.py", [])
    assert "\n" not in str(why.value)
