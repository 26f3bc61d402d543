"""The commit that an update's runs name: whether it holds all that ran."""

import pytest
from repositories import committed, git

from pytest_bandwidth import baseline as baseline_files

TEST = """
from virtual_time import sleep

def test_pause(bandwidth):
    bandwidth(lambda: sleep(0.001), reads=10**6)
"""
PTX = f"code/{'0a' * 16}.ptx"


def commit(repo):
    return committed(repo.path, "more")


@pytest.fixture
def repo(slept):
    slept.file("test_pause.py", TEST)
    git(slept.path, "init", "-q")
    return slept


def update(repo, *options):
    result = repo.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update", *options)
    result.assert_outcomes(passed=1)
    return result.stdout


def updated(repo, *options):
    """What the newest run of one more update says of its commit."""
    update(repo, *options)
    run = baseline_files.load(repo.path / "b.yaml").entries["test_pause.py::test_pause"].runs[-1]
    return run.commit, run.dirty


def test_a_run_is_of_its_commit_where_that_holds_all_code(repo):
    first = commit(repo)
    assert updated(repo) == (first, False)
    repo.file(PTX, "an update's own")
    assert updated(repo) == (first, False), "what updates wrote is no code of the tree"
    repo.file("helper.py", "")
    assert updated(repo) == (first, True), "the commit has no helper.py"
    second = commit(repo)
    assert updated(repo) == (second, False)
    assert updated(repo) == (second, False), "the baseline, which is tracked by now, is the update's own, too"
    repo.file("helper.py", "changed = True")
    assert updated(repo) == (second, True)


def test_before_the_first_commit_there_is_none_to_name_but_the_one_that_is_given(repo):
    assert updated(repo) == (None, False)
    assert updated(repo, "-o", f"bandwidth_commit={'0a' * 20}") == ("0a" * 20, False)


def test_an_update_of_no_commit_names_the_file_that_makes_it_so(repo):
    commit(repo)
    update(repo).no_fnmatch_line("*not committed*")
    repo.file("helper.py", "")
    update(repo).fnmatch_lines(["bandwidth: helper.py is not committed: commit it before this update, *"])
    repo.file("other.cu", "")
    update(repo).fnmatch_lines(["bandwidth: helper.py and 1 more is not committed: *"])
