"""Another revision in a folder of its own: what it holds, what it leaves alone, and that it goes."""

import json
import os
import stat
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
        ("defaced", r"'defaced' is no commit of .*; a branch of such a name is refs/heads/NAME"),
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


@pytest.fixture
def start(repo):
    """Starts processes that keep HEAD~1 checked out: process and tree of each."""
    processes = []

    def started():
        processes.append(subprocess.Popen([sys.executable, "-c", KEEPS, str(repo)], stdout=subprocess.PIPE, text=True))
        return processes[-1], Path(processes[-1].stdout.readline().strip())

    yield started
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def leftover(start):
    """The tree of a process that was killed."""
    process, tree = start()
    process.kill()
    process.wait()
    return tree


def test_what_a_killed_process_left_goes_next_time_and_a_living_ones_stays(repo, start):
    process, tree = start()
    remove_leftovers(repo)
    assert (tree / "a.txt").exists()
    assert len(worktrees(repo)) == 2
    process.kill()
    process.wait()
    assert (tree / "a.txt").exists()
    CheckedOut(repo, "HEAD").remove()
    assert not tree.parent.exists()
    assert len(worktrees(repo)) == 1


def test_a_leftover_that_is_half_gone_goes_as_well(repo, leftover):
    git(repo, "worktree", "lock", str(leftover))
    (leftover / ".git").unlink()
    remove_leftovers(repo)
    assert not leftover.parent.exists()
    assert len(worktrees(repo)) == 1


@pytest.mark.parametrize("name", ["mine/elsewhere", f"{PREFIX}experiment/mine", f"{PREFIX}experiment/tree"])
def test_a_users_own_worktree_stays_with_all_that_lies_beside_it(repo, tmp_path, name):
    own = tmp_path / "tmp" / name
    git(repo, "worktree", "add", "-q", "--detach", str(own))
    (own / "work.txt").write_text("not committed yet")
    (own.parent / "notes.txt").write_text("weeks of work")
    CheckedOut(repo, "HEAD").remove()
    assert [line.split()[0] for line in worktrees(repo)] == [str(repo), str(own)]
    assert (own / "work.txt").read_text() == "not committed yet"
    assert sorted(os.listdir(own.parent)) == sorted([own.name, "notes.txt"]), "nothing was created while looking"


def test_only_what_the_plugin_made_goes_and_what_lies_beside_it_stays(repo, leftover):
    notes = leftover.parent / "notes.txt"
    notes.write_text("what a user found out meanwhile")
    remove_leftovers(repo)
    assert len(worktrees(repo)) == 1
    assert list(leftover.parent.iterdir()) == [notes]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("repository", "/another/.git"),
        ("folder", "/tmp/where-it-was"),
        ("host", "another-host"),
        ("boot", "3f0c4c4e-0000-0000-0000-000000000000"),
        ("user", 54321),
    ],
)
def test_a_leftover_with_another_mark_stays(repo, leftover, key, value):
    mark = leftover.parent / "mark.json"
    told = json.loads(mark.read_text())
    assert key in told
    mark.write_text(json.dumps({**told, key: value}))
    remove_leftovers(repo)
    assert (leftover / "a.txt").exists()
    assert len(worktrees(repo)) == 2


@pytest.mark.parametrize("garbage", ["", "[", "null", "{}", "[" * 100_000])
def test_a_leftover_with_a_garbled_mark_stays(repo, leftover, garbage):
    (leftover.parent / "mark.json").write_text(garbage)
    remove_leftovers(repo)
    assert (leftover / "a.txt").exists()


@pytest.mark.parametrize("missing", ["owner.lock", "mark.json"])
def test_a_leftover_without_lock_or_mark_stays_and_gets_none(repo, leftover, missing):
    (leftover.parent / missing).unlink()
    remove_leftovers(repo)
    assert (leftover / "a.txt").exists()
    assert not (leftover.parent / missing).exists()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner here")
def test_a_folder_that_others_may_write_to_is_not_believed(repo, leftover):
    assert stat.S_IMODE(leftover.parent.stat().st_mode) == 0o700
    leftover.parent.chmod(0o770)
    remove_leftovers(repo)
    assert (leftover / "a.txt").exists()


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("name", [".", "owner.lock", "mark.json"])
def test_what_another_user_owns_is_not_believed(repo, leftover, name):
    folder = leftover.parent
    os.chown(folder / name, 54321, -1)
    remove_leftovers(repo)
    assert (leftover / "a.txt").exists()
    assert len(worktrees(repo)) == 2
    os.chown(folder / name, os.getuid(), -1)
    remove_leftovers(repo)
    assert not folder.exists()


def test_a_tree_that_cannot_be_seen_from_here_keeps_its_record(repo, tmp_path, start):
    # As in another container, or on another host, that shares the repository and not the temporary folder.
    (_, alive), (killed, leftover) = start(), start()
    killed.kill()
    killed.wait()
    alive.parent.rename(tmp_path / "out of sight")
    (leftover / ".git").unlink()  # git itself cannot remove this one
    CheckedOut(repo, "HEAD").remove()
    assert not leftover.parent.exists()
    (tmp_path / "out of sight").rename(alive.parent)
    assert git(alive, "rev-parse", "HEAD") == git(repo, "rev-parse", "HEAD~1")
    assert len(worktrees(repo)) == 2
