"""Another revision in a folder of its own: what it holds, what it leaves alone, and that it goes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from repositories import git

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.session.against.checkout import PREFIX, CheckedOut, remove_leftovers


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """Two commits and an uncommitted change; temporary folders lie in a folder of the test's own."""
    folder, temporary = tmp_path / "repo", tmp_path / "tmp"
    folder.mkdir()
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    git(folder, "init", "-q")
    git(folder, "config", "user.name", "n")
    git(folder, "config", "user.email", "e@localhost")
    for text in ("one", "two"):
        (folder / "a.txt").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", text)
    (folder / "a.txt").write_text("three")
    (folder / "new.txt").write_text("new")
    return folder


def worktrees(repo):
    return git(repo, "worktree", "list").splitlines()


def test_holds_the_revision_and_leaves_the_repository_alone(repo, tmp_path):
    checked_out = CheckedOut(repo, "HEAD~1")
    revision = checked_out.revision
    tree = Path(revision.tree)
    assert (tree / "a.txt").read_text() == "one"
    assert not (tree / "new.txt").exists()
    assert revision.commit == git(repo, "rev-parse", "HEAD~1").strip()
    assert revision.counterpart(repo / "sub" / "x.py") == tree / "sub" / "x.py"
    assert revision.counterpart(tmp_path) is None
    (tree / "left.txt").write_text("what a test leaves")
    checked_out.remove()
    checked_out.remove()
    assert len(worktrees(repo)) == 1
    assert list((tmp_path / "tmp").iterdir()) == []
    assert (repo / "a.txt").read_text() == "three"
    assert git(repo, "status", "--porcelain") == " M a.txt\n?? new.txt\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-such-branch", r"'no-such-branch' is no commit of .*shallow clones"),
        ("--detach", "found '--detach', expected a git revision"),
        ("", "found '', expected a git revision"),
        ("HEAD:a.txt", "is no commit of"),
    ],
)
def test_what_is_no_commit_is_an_error_of_one_line(repo, name, message):
    with pytest.raises(UsageError, match=message) as error:
        CheckedOut(repo, name)
    assert "\n" not in str(error.value)
    assert len(worktrees(repo)) == 1


def test_outside_of_any_repository(tmp_path):
    with pytest.raises(UsageError, match="needs a git repository"):
        CheckedOut(tmp_path, "HEAD")


def test_neither_the_repositorys_hooks_nor_a_hooks_environment_take_part(repo, monkeypatch):
    hook = repo / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {repo}/hooked\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_INDEX_FILE", str(repo / "index-of-a-hook"))
    monkeypatch.setenv("GIT_DIR", str(repo / "nowhere"))
    checked_out = CheckedOut(repo, "HEAD~1")
    assert (Path(checked_out.revision.tree) / "a.txt").read_text() == "one"
    checked_out.remove()
    assert not (repo / "hooked").exists()
    assert not (repo / "index-of-a-hook").exists()


KEEPS = """
import sys, time
from pathlib import Path
from pytest_bandwidth.session.against.checkout import CheckedOut
kept = CheckedOut(Path(sys.argv[1]), "HEAD~1")
print(kept.revision.tree, flush=True)
time.sleep(600)
"""


def test_what_a_killed_process_left_goes_next_time_and_a_living_ones_stays(repo):
    process = subprocess.Popen([sys.executable, "-c", KEEPS, str(repo)], stdout=subprocess.PIPE, text=True)
    try:
        tree = Path(process.stdout.readline().strip())
        remove_leftovers(repo)
        assert (tree / "a.txt").exists()
        assert len(worktrees(repo)) == 2
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert (tree / "a.txt").exists()
        CheckedOut(repo, "HEAD").remove()
        assert not tree.parent.exists()
        assert len(worktrees(repo)) == 1
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_leftovers_that_are_half_gone_go_as_well_and_those_of_others_stay(repo, tmp_path):
    own, gone = tmp_path / "mine", tmp_path / "tmp" / f"{PREFIX}gone"
    git(repo, "worktree", "add", "-q", "--detach", str(own))
    git(repo, "worktree", "add", "-q", "--detach", "--lock", str(gone / "tree"))
    (gone / "tree" / ".git").unlink()
    remove_leftovers(repo)
    assert not gone.exists()
    assert [line.split()[0] for line in worktrees(repo)] == [str(repo), str(own)]
