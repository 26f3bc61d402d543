"""Another revision in a folder of its own: what it holds, what it leaves alone, and that it goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from repositories import committed, git

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.evidence.commit_pairs.worktree import CheckedOut
from pytest_bandwidth.storage import own_folders
from pytest_bandwidth.storage.own_folders import remove_temporary_folders, temporary_folder


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """Two commits and an uncommitted change; temporary folders lie in a folder of the test's own."""
    folder, temporary = tmp_path / "repo", tmp_path / "tmp"
    folder.mkdir()
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    for text in ("one", "two"):
        (folder / "a.txt").write_text(text)
        committed(folder, text)
    (folder / "a.txt").write_text("three")
    (folder / "new.txt").write_text("new")
    return folder


def worktrees(repo):
    return git(repo, "worktree", "list").splitlines()


def test_holds_the_revision_and_leaves_the_repository_alone(repo, tmp_path, monkeypatch):
    with monkeypatch.context() as in_a_hook:
        in_a_hook.setenv("GIT_INDEX_FILE", str(repo / "index-of-a-hook"))
        in_a_hook.setenv("GIT_DIR", str(repo / "nowhere"))
        checked_out = CheckedOut(repo, "HEAD~1")
    assert not (repo / "index-of-a-hook").exists()
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
        ("no-such-branch", r"'no-such-branch' is not a commit of .*shallow clones"),
        ("--detach", "found '--detach', expected a git revision"),
        ("", "found '', expected a git revision"),
    ],
)
def test_what_is_no_commit_is_an_error_of_one_line(repo, name, message):
    with pytest.raises(UsageError, match=message) as error:
        CheckedOut(repo, name)
    assert "\n" not in str(error.value)
    assert len(worktrees(repo)) == 1


KEEPS = """
import os, sys, time
from pathlib import Path
from pytest_bandwidth.evidence.commit_pairs.worktree import CheckedOut
from pytest_bandwidth.storage.own_folders import temporary_folder
if sys.argv[1] == "a tree":
    kept = CheckedOut(Path.cwd(), "HEAD~1")
    print(Path(kept.revision.tree, "a.txt"), flush=True)
    time.sleep(600)
with temporary_folder() as folder:
    (folder / "file").write_text("text")
    if sys.argv[1] == "a folder that a fork had, too":
        child = os.fork()
        if child == 0:
            sys.exit()
        os.waitpid(child, 0)
    print(folder / "file", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("what", ["a tree", "a folder", "a folder that a fork had, too"])
def test_what_a_killed_process_left_goes_next_time_and_a_living_ones_stays(repo, tmp_path, what):
    command = [sys.executable, "-c", KEEPS, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=repo) as process:
        file = Path(process.stdout.readline().strip())
        remove_temporary_folders()
        assert file.exists()
        process.kill()
    assert file.exists()
    CheckedOut(repo, "HEAD").remove()
    assert not file.exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_users_own_worktree_stays(repo, tmp_path):
    own = tmp_path / "tmp" / "pytest-bandwidth-tmp-experiment" / "tree"
    git(repo, "worktree", "add", "-q", "--detach", str(own))
    (own / "work.txt").write_text("not committed yet")
    CheckedOut(repo, "HEAD").remove()
    assert [line.split()[0] for line in worktrees(repo)] == [str(repo), str(own)]
    assert (own / "work.txt").read_text() == "not committed yet"
    assert os.listdir(own.parent) == ["tree"], "nothing was created while looking"


@pytest.fixture
def leftover(repo):
    """Return the temporary folder of a process that was killed, without a lock."""
    with temporary_folder() as folder:
        name = folder.name
    left = repo.parent / "tmp" / name
    left.mkdir(mode=0o700)
    (left / own_folders.LOCK).touch()
    return left


def stays(leftover):
    remove_temporary_folders()
    return leftover.exists()


def test_a_folder_that_is_not_surely_a_dead_processes_stays(leftover, monkeypatch):
    (leftover / own_folders.LOCK).rename(leftover / "elsewhere")
    assert stays(leftover)
    assert not (leftover / own_folders.LOCK).exists(), "it gets none"
    (leftover / "elsewhere").rename(leftover / own_folders.LOCK)
    leftover.chmod(0o770)  # others may write to it
    assert stays(leftover)
    leftover.chmod(0o700)
    with monkeypatch.context() as of_another_machine:
        of_another_machine.setattr(own_folders, "_machine", lambda: "0123abcd")
        assert stays(leftover)
    unfinished = leftover.rename(leftover.with_name(f".{leftover.name}"))
    assert stays(unfinished)
    os.utime(unfinished, (1, 1))
    assert not stays(unfinished), "nobody takes as long to make one"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("name", [".", "owner.lock"])
def test_what_another_user_owns_stays(leftover, name):
    os.chown(leftover / name, 54321, -1)
    assert stays(leftover)
    os.chown(leftover / name, os.getuid(), -1)
    assert not stays(leftover)


def test_a_link_with_the_name_of_a_leftover_is_not_followed(leftover, tmp_path):
    kept = leftover.rename(tmp_path / "kept")
    leftover.symlink_to(kept)
    remove_temporary_folders()
    assert kept.exists()


@pytest.fixture
def with_submodule(tmp_path, repo):
    """Return the repository with a submodule `sub`, which holds `deep`, in a commit `old` and one `new`."""
    for name, within in (("deep", None), ("sub", "deep"), ("repo", "sub")):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "version.h").write_text("old")
        if within is not None:
            committed(folder)
            git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / within))
            git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init", "--recursive")
        committed(folder, "old")
    for folder in (repo / "sub", repo):
        (folder / "version.h").write_text("new")
        committed(folder, "new")
    return repo


def test_submodules_are_those_of_the_commit_and_the_users_stay(with_submodule, tmp_path):
    before = git(with_submodule, "status", "--porcelain"), git(with_submodule / "sub", "rev-parse", "HEAD")
    checked_out = CheckedOut(with_submodule, "HEAD~1")
    tree = Path(checked_out.revision.tree)
    assert (tree / "sub" / "version.h").read_text() == "old"
    assert (tree / "sub" / "deep" / "version.h").read_text() == "old"
    assert (with_submodule / "sub" / "version.h").read_text() == "new"
    checked_out.remove()
    assert before == (git(with_submodule, "status", "--porcelain"), git(with_submodule / "sub", "rev-parse", "HEAD"))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_submodule_that_the_users_tree_lacks_stays_empty(with_submodule):
    git(with_submodule, "submodule", "--quiet", "deinit", "--force", "sub")
    checked_out = CheckedOut(with_submodule, "HEAD")
    assert list(Path(checked_out.revision.tree, "sub").iterdir()) == []
    checked_out.remove()


def test_a_submodules_commit_that_its_clone_lacks_is_named(with_submodule, tmp_path):
    git(with_submodule, "update-index", "--cacheinfo", f"160000,{'5' * 40},sub")
    git(with_submodule, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-qm", "not pushed")
    with pytest.raises(UsageError, match=r"submodule sub of commit .* is at 5555555.*git -C sub fetch may bring it"):
        CheckedOut(with_submodule, "HEAD")
    assert list((tmp_path / "tmp").iterdir()) == []
