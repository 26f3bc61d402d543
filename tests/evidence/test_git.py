"""What git tells of a tree, and that asking it changes and starts nothing."""

import os
from pathlib import Path

import pytest
from repositories import committed, git

from pytest_bandwidth.cli.bisect import described, modules_in
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.evidence.commit_pairs.worktree import CheckedOut
from pytest_bandwidth.evidence.git import commit_named, commit_of_hash, current_commit, uncommitted_files
from pytest_bandwidth.evidence.git import git as asked
from pytest_bandwidth.session.run import uncommitted_code

PTX = f"{'0a' * 16}.ptx"


def put(folder, name, text=""):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def repo(tmp_path):
    """A repository with a test, a kernel, data and a baseline, all committed."""
    for name in ("test_a.py", "src/k.cu", "data.bin", "baselines/gpu.yaml"):
        put(tmp_path, name)
    put(tmp_path, ".gitignore", "*.so\nbuild/\n")
    committed(tmp_path)
    return tmp_path


CODE = ["helper.py", "src/new.cu", "sub/deep/inc.h", "LOADED.PTX", "ext.pyd", " blank.py", "ü\n.cpp", "old.pyc"]
NO_CODE = {
    "data and reports": ["run.json", "report.html", "notes.txt", "new.yaml", "table.csv", "more.bin"],
    "ignored": ["ext.so", "build/made.c"],
    "caches": ["__pycache__/test_a.cpython-311.pyc", "src/__pycache__/k.pyc"],
}


def test_code_that_is_not_tracked_may_be_part_of_what_runs_and_nothing_else(repo):
    assert uncommitted_files(repo) == []
    for kind, names in NO_CODE.items():
        for name in names:
            put(repo, name)
        assert uncommitted_files(repo) == [], kind
    for name in CODE:
        put(repo, name)
    for folder in (repo, repo / "src"):
        assert sorted(uncommitted_files(folder)) == sorted(CODE), "seen from any folder of the tree"


def test_any_tracked_file_that_differs_is_moved_or_gone_counts(repo):
    for name in ("test_a.py", "data.bin"):
        put(repo, name, "changed")
    git(repo, "add", "data.bin")
    git(repo, "mv", "src/k.cu", "src/moved.cu")
    (repo / "baselines/gpu.yaml").unlink()
    assert uncommitted_files(repo) == ["baselines/gpu.yaml", "data.bin", "src/k.cu", "src/moved.cu", "test_a.py"]


def test_what_updates_write_is_no_part_of_what_ran(repo, monkeypatch):
    monkeypatch.chdir(repo)
    put(repo, "baselines/gpu.yaml", "changed")
    put(repo, f"baselines/code/{PTX}")
    everything = ["baselines/gpu.yaml", f"baselines/code/{PTX}"]
    assert uncommitted_files(repo) == everything
    for baseline in ("baselines/gpu.yaml", "baselines"):
        assert uncommitted_code(repo, Path(baseline)) == []
    for another in ("other.yaml", "other"):
        assert uncommitted_code(repo, repo / another) == everything
    put(repo, "baselines/code/kernel.ptx")  # somebody's own
    for baseline in ("baselines/gpu.yaml", "baselines"):
        assert uncommitted_code(repo, repo / baseline) == ["baselines/code/kernel.ptx"]


def test_nothing_is_known_of_what_is_no_repository(tmp_path):
    assert uncommitted_files(tmp_path) is None
    assert uncommitted_code(tmp_path, tmp_path / "b.yaml") is None


def commit(repo, text):
    put(repo, "data.bin", text)
    return committed(repo, text, "-u")


def contents(folder):
    """All files below a folder, with what they hold and when they were written."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def describe(repo):
    """All that a run with a document asks."""
    return current_commit(repo), uncommitted_files(repo), commit_named(repo, "HEAD")


def test_asking_writes_nothing_below_dot_git(repo):
    os.utime(repo / "data.bin", (1, 1))  # the index holds another time, which git would put right there
    before = contents(repo / ".git")
    describe(repo)
    assert contents(repo / ".git") == before


def test_a_git_that_hangs_is_ended(repo, monkeypatch):
    put(repo, "bin/git", "#!/bin/sh\nexec sleep 600\n")
    (repo / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(repo / "bin"), prepend=os.pathsep)
    monkeypatch.setattr("pytest_bandwidth.evidence.git._SHORT_SECONDS", 0.1)
    assert current_commit(repo) is None
    with pytest.raises(UsageError, match=r"took longer than 0\.1 seconds"):
        asked(repo, "status", seconds=0.1)


# A watcher of files, pagers, an editor, an alias, an external diff, a text of files, signatures, ssh, credentials and
# questions.
NAMES_A_PROGRAM = (
    *("core.fsmonitor", "core.pager", "pager.status", "core.editor", "alias.status", "diff.external"),
    *("diff.bin.textconv", "gpg.program", "core.sshCommand", "credential.helper", "core.askPass"),
)
HOOKS = ("post-checkout", "reference-transaction", "post-index-change", "fsmonitor-watchman")


def test_no_program_that_the_configuration_names_is_run(repo, tmp_path):
    ran, folder = tmp_path / "ran", tmp_path / "bin"
    assert current_commit(repo) == git(repo, "rev-parse", "HEAD").strip()
    for name in (*HOOKS, *NAMES_A_PROGRAM):
        put(folder, name, f"#!/bin/sh\necho $0 >> {ran}\n")
        (folder / name).chmod(0o755)
    put(repo, ".gitattributes", "*.bin diff=bin\n")
    put(repo, "data.bin", "changed")
    named = {key: f"{'!' if key.startswith('alias') else ''}{folder / key}" for key in NAMES_A_PROGRAM}
    for key, value in {"log.showSignature": "true", "core.hooksPath": str(folder), **named}.items():
        git(repo, "config", key, value)
    describe(repo)
    described(repo, current_commit(repo))
    modules_in(repo, current_commit(repo))
    CheckedOut(repo, "HEAD").remove()
    assert not ran.exists()


def test_a_clone_without_all_objects_fetches_none_to_read(repo, tmp_path):
    first = commit(repo, "one")
    git(repo, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--no-checkout", repo.as_uri(), "partial")
    blob = git(repo, "rev-parse", f"{first}:data.bin").strip()
    with pytest.raises(UsageError):
        asked(tmp_path / "partial", "cat-file", "-p", blob)


def test_a_hash_means_its_commit_and_no_name(repo):
    first, second = commit(repo, "one"), commit(repo, "two")
    for ref in (f"refs/{kind}/{first[:digits]}" for kind in ("heads", "tags") for digits in (7, 12, 39, 40)):
        git(repo, "update-ref", ref, second)
        digits = ref.rpartition("/")[2]
        assert commit_named(repo, digits) == commit_of_hash(repo, digits) == first
        assert commit_named(repo, f"{digits}~0") == first
        assert commit_named(repo, ref) == second


def test_a_name_that_looks_like_a_hash_and_the_hash_of_what_is_no_commit_name_none(repo):
    git(repo, "branch", "defaced")
    for name in ("defaced", "defaced~1"):
        with pytest.raises(UsageError, match="found 0 commits whose hash begins with defaced"):
            commit_named(repo, name)
    assert commit_named(repo, "refs/heads/defaced") == current_commit(repo)
    blob = git(repo, "rev-parse", "HEAD:data.bin").strip()
    tag = git(repo, "-c", "user.name=n", "-c", "user.email=e@localhost", "tag", "-am", "t", "t") or "t"
    for one in (blob, git(repo, "rev-parse", f"refs/tags/{tag}").strip()):
        with pytest.raises(UsageError, match="found 0 commits"):
            commit_of_hash(repo, one)
