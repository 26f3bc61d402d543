"""What git tells of a tree: whether the commit holds all that runs there."""

from pathlib import Path

import pytest
from repositories import git

from pytest_bandwidth.session.git import uncommitted_files
from pytest_bandwidth.session.publishing.environment import uncommitted_beside

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
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-qm", "one")
    return tmp_path


@pytest.mark.parametrize(
    "name", ["helper.py", "src/new.cu", "sub/deep/inc.h", "LOADED.PTX", "ext.pyd", " blank.py", "ü\n.cpp", "old.pyc"]
)
def test_code_that_is_not_tracked_may_be_part_of_what_runs(repo, name):
    assert uncommitted_files(repo) == []
    put(repo, name)
    assert uncommitted_files(repo) == [name]
    assert uncommitted_files(repo / "src") == [name], "seen from any folder of the tree"


@pytest.mark.parametrize(
    "names",
    [
        ["run.json", "report.html", "notes.txt", "new.yaml", "table.csv", "more.bin"],
        ["ext.so", "build/made.c"],
        ["__pycache__/test_a.cpython-311.pyc", "src/__pycache__/k.pyc"],
        ["env/pyvenv.cfg", "env/bin/activate_this.py", "env/lib/site-packages/numpy/core.py"],
    ],
    ids=["data and reports", "ignored", "caches", "an environment"],
)
def test_what_is_no_code_of_the_tree_does_not_count(repo, names):
    for name in names:
        put(repo, name)
    assert uncommitted_files(repo) == []


def test_an_environment_hides_its_own_files_alone(repo):
    for name in ("env/pyvenv.cfg", "env/lib/x.py", "environment.py"):
        put(repo, name)
    assert uncommitted_files(repo) == ["environment.py"]
    (repo / "environment.py").unlink()
    put(repo, "pyvenv.cfg")  # the checkout is an environment itself
    assert uncommitted_files(repo) == []
    put(repo, "helper.py")
    assert uncommitted_files(repo) == ["helper.py"]


@pytest.mark.parametrize("name", ["test_a.py", "data.bin"])
@pytest.mark.parametrize("staged", [False, True])
def test_any_tracked_file_that_differs_counts(repo, name, staged):
    put(repo, name, "changed")
    if staged:
        git(repo, "add", name)
    assert uncommitted_files(repo) == [name]


def test_a_file_that_is_moved_or_gone_counts(repo):
    git(repo, "mv", "src/k.cu", "src/moved.cu")
    assert uncommitted_files(repo) == ["src/k.cu", "src/moved.cu"]
    git(repo, "mv", "src/moved.cu", "src/k.cu")
    assert uncommitted_files(repo) == []
    (repo / "data.bin").unlink()
    assert uncommitted_files(repo) == ["data.bin"]


@pytest.mark.parametrize("baseline", ["baselines/gpu.yaml", "baselines"])
def test_what_updates_write_is_no_part_of_what_ran(repo, baseline, monkeypatch):
    monkeypatch.chdir(repo)
    put(repo, "baselines/gpu.yaml", "changed")
    put(repo, f"baselines/code/{PTX}")
    assert uncommitted_files(repo) == ["baselines/gpu.yaml", f"baselines/code/{PTX}"]
    assert uncommitted_beside(repo, Path(baseline)) == []
    put(repo, "baselines/code/kernel.ptx")  # somebody's own
    assert uncommitted_beside(repo, repo / baseline) == ["baselines/code/kernel.ptx"]


@pytest.mark.parametrize("baseline", ["other.yaml", "other"])
def test_of_another_baseline_everything_counts(repo, baseline):
    put(repo, f"baselines/code/{PTX}")
    assert uncommitted_beside(repo, repo / baseline) == [f"baselines/code/{PTX}"]


def test_nothing_is_known_of_what_is_no_repository(tmp_path):
    assert uncommitted_files(tmp_path) is None
    assert uncommitted_beside(tmp_path, tmp_path / "b.yaml") is None
