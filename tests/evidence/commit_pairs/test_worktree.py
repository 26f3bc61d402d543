"""Another revision in a folder of its own: what it holds, what it leaves alone, and that it goes."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from repositories import committed, git

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.evidence.commit_pairs.worktree import PREFIX, CheckedOut, remove_leftovers, remove_records
from pytest_bandwidth.storage import own_folders


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


def sweep(repo):
    remove_leftovers()
    remove_records(repo)


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
import sys, time
from pathlib import Path
from pytest_bandwidth.evidence.commit_pairs.worktree import CheckedOut
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


def left_over(repo):
    """The tree of a process that was killed: nobody has its lock."""
    left = CheckedOut(repo, "HEAD~1")
    left._owned.release()
    return Path(left.revision.tree)


@pytest.fixture
def leftover(repo):
    return left_over(repo)


def test_what_a_killed_process_left_goes_next_time_and_a_living_ones_stays(repo, start):
    process, tree = start()
    assert stays(repo, tree)
    process.kill()
    process.wait()
    assert (tree / "a.txt").exists()
    CheckedOut(repo, "HEAD").remove()
    assert not tree.parent.exists()
    assert len(worktrees(repo)) == 1


def test_a_leftover_that_is_half_gone_goes_as_well(repo, leftover):
    git(repo, "worktree", "lock", str(leftover))
    (leftover / ".git").unlink()
    sweep(repo)
    assert not leftover.parent.exists()
    assert len(worktrees(repo)) == 1


@pytest.mark.parametrize("name", ["mine/elsewhere", f"{PREFIX}experiment/tree"])
def test_a_users_own_worktree_stays_with_all_that_lies_beside_it(repo, tmp_path, name):
    own = tmp_path / "tmp" / name
    git(repo, "worktree", "add", "-q", "--detach", str(own))
    (own / "work.txt").write_text("not committed yet")
    (own.parent / "notes.txt").write_text("weeks of work")
    CheckedOut(repo, "HEAD").remove()
    assert [line.split()[0] for line in worktrees(repo)] == [str(repo), str(own)]
    assert (own / "work.txt").read_text() == "not committed yet"
    assert sorted(os.listdir(own.parent)) == sorted([own.name, "notes.txt"]), "nothing was created while looking"


def stays(repo, leftover):
    sweep(repo)
    return (leftover / "a.txt").exists() and len(worktrees(repo)) == 2


OTHER_FIELDS = ({"repository": 7}, {"folder": "/tmp/where-it-was"}, {"user": 54321})


def test_a_leftover_that_is_not_surely_the_plugins_own_stays(repo, leftover, monkeypatch):
    folder, mark = leftover.parent, leftover.parent / "mark.json"
    plain = mark.read_text()
    told = json.loads(plain)
    assert all(fields.keys() < told.keys() for fields in OTHER_FIELDS)
    others = [json.dumps({**told, **fields}) for fields in OTHER_FIELDS]
    for text in (*others, "", "null", "{}", "[" * 100_000):
        mark.write_text(text)
        assert stays(repo, leftover), text[:40]
    mark.write_text(plain)
    for missing in ("owner.lock", "mark.json"):
        (folder / missing).rename(folder / "elsewhere")
        assert stays(repo, leftover)
        assert not (folder / missing).exists(), "it gets none"
        (folder / "elsewhere").rename(folder / missing)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o770)  # others may write to it
    assert stays(repo, leftover)
    folder.chmod(0o700)
    with monkeypatch.context() as of_another_machine:
        of_another_machine.setattr(own_folders, "_machine", lambda: "0123abcd")
        assert stays(repo, leftover)
    (folder / "notes.txt").write_text("what a user found out meanwhile")
    sweep(repo)
    assert (len(worktrees(repo)), os.listdir(folder)) == (1, ["notes.txt"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("name", [".", "owner.lock", "mark.json"])
def test_what_another_user_owns_is_not_believed(repo, leftover, name):
    folder = leftover.parent
    os.chown(folder / name, 54321, -1)
    assert stays(repo, leftover)
    os.chown(folder / name, os.getuid(), -1)
    sweep(repo)
    assert not folder.exists()


def test_a_tree_that_cannot_be_seen_from_here_keeps_its_record(repo, tmp_path, start):
    # As in another container, or on another host, that shares the repository and not the temporary folder.
    _, alive = start()
    leftover = left_over(repo)
    alive.parent.rename(tmp_path / "out of sight")
    (leftover / ".git").unlink()  # git itself cannot remove this one
    CheckedOut(repo, "HEAD").remove()
    assert not leftover.parent.exists()
    (tmp_path / "out of sight").rename(alive.parent)
    assert git(alive, "rev-parse", "HEAD") == git(repo, "rev-parse", "HEAD~1")
    assert len(worktrees(repo)) == 2


@pytest.mark.parametrize("with_its_folder", [False, True])
def test_a_leftover_from_before_a_restart_of_the_machine_goes(repo, leftover, monkeypatch, with_its_folder):
    if with_its_folder:
        shutil.rmtree(leftover.parent)  # temporary folders are often in memory
        sweep(repo)
        assert len(worktrees(repo)) == 2
    monkeypatch.setattr(own_folders, "_boot", lambda: "0123abcd")
    sweep(repo)
    assert not leftover.parent.exists()
    assert len(worktrees(repo)) == 1


@pytest.mark.parametrize("repository_is_gone", [False, True])
def test_a_run_in_another_repository_takes_leftovers_and_their_records_away(repo, leftover, repository_is_gone):
    if repository_is_gone:
        shutil.rmtree(repo)
    remove_leftovers()
    assert not leftover.parent.exists()
    assert repository_is_gone or len(worktrees(repo)) == 1


KEEPS_FILES = """
import os, sys, time
from pytest_bandwidth.storage.own_folders import temporary_folder
with temporary_folder() as folder:
    (folder / "file").write_text("text")
    if sys.argv[1] == "forks":
        child = os.fork()
        if child == 0:
            sys.exit()
        os.waitpid(child, 0)
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("what", ["keeps", "forks"])
@pytest.mark.usefixtures("repo")
def test_a_killed_processs_temporary_folder_goes_and_a_living_ones_stays(what):
    command = [sys.executable, "-c", KEEPS_FILES, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        folder = Path(process.stdout.readline().strip())
        remove_leftovers()
        assert (folder / "file").exists()
        process.kill()
    assert (folder / "file").exists()
    remove_leftovers()
    assert not folder.exists()


@pytest.mark.usefixtures("repo")
def test_a_link_with_the_name_of_a_leftover_is_not_followed(tmp_path):
    with own_folders.temporary_folder() as folder:
        name = folder.name
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o700)
    (kept / own_folders.LOCK).touch()
    (tmp_path / "tmp" / name).symlink_to(kept)
    remove_leftovers()
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
