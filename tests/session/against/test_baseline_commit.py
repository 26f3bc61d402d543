"""The commit that a baseline's runs name: found in real repositories, or why it is not at hand."""

import pytest
from repositories import git

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.session.against.baseline_commit import BaselineCommits, NotAtHand

TEST = "tests/test_a.py"


def commit(repo, text):
    (repo / "tests").mkdir(exist_ok=True)
    (repo / TEST).write_text(text)
    git(repo, "add", "-A")
    git(repo, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-qm", text)
    return git(repo, "rev-parse", "HEAD").strip()


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def entry(*runs):
    """An entry whose runs name these commits, the newest last; a text with a `+` is of a tree that was not clean."""
    named = (Run(1.0) if run is None else Run(1.0, commit=run.removesuffix("+"), dirty="+" in run) for run in runs)
    return Entry("k", runs=tuple(named))


def found(repo, *runs, file=None):
    return BaselineCommits(repo).commit_of(entry(*runs), repo / TEST if file is None else file)


def why_not(repo, *runs, file=None):
    with pytest.raises(NotAtHand) as reason:
        found(repo, *runs, file=file)
    assert "\n" not in str(reason.value)
    return str(reason.value)


def test_the_newest_clean_commit_that_has_the_tests_file_is_taken(repo):
    first, second = commit(repo, "one"), commit(repo, "two")
    assert found(repo, first[:12], second[:12]) == second
    assert found(repo, second[:12], first[:12]) == first
    assert found(repo, first[:12], f"{second[:12]}+", None) == first
    new = repo / "tests" / "test_new.py"
    assert why_not(repo, second[:12], file=new) == f"the baseline's commit ({second[:10]}) has no test_new.py"
    new.write_text("")
    third = commit(repo, "three")
    assert found(repo, third[:12], second[:12], file=new) == third


@pytest.mark.parametrize("runs", [(), (None,), (None, None)])
def test_runs_of_which_no_commit_is_known_say_so(repo, runs):
    assert why_not(repo, *runs) == "no commit is known of the baseline's runs"


def test_runs_of_trees_that_were_not_clean_say_so(repo):
    dirty = f"{commit(repo, 'one')[:12]}+"
    said = "the baseline's runs are of a tree with changes or sources that were not committed"
    assert why_not(repo, dirty, None) == said


def test_a_folder_in_no_repository_says_so(tmp_path):
    said = why_not(tmp_path, "0123456789ab")
    assert said.startswith("git is not to be had: ")
    assert "not a git repository" in said


def test_a_machine_without_git_says_so(repo, tmp_path, monkeypatch):
    first = commit(repo, "one")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_not(repo, first[:12]).startswith("git is not to be had: git could not run: ")


def test_a_test_that_lies_outside_of_the_repository_says_so(repo, tmp_path):
    first = commit(repo, "one")
    assert why_not(repo, first[:12], file=tmp_path / "test_out.py") == "test_out.py lies outside of the repository"


def test_a_shallow_clone_without_the_commit_says_how_to_get_it(repo, tmp_path):
    first, second = commit(repo, "one"), commit(repo, "two")
    git(tmp_path, "clone", "-q", "--depth", "1", repo.as_uri(), "shallow")
    shallow = tmp_path / "shallow"
    assert found(shallow, first[:12], second[:12]) == second
    said = why_not(shallow, first[:12])
    assert said.startswith(f"the baseline's commit ({first[:10]}) is not in this repository: fetch it ")
    git(shallow, "fetch", "-q", "--unshallow")
    assert found(shallow, first[:12]) == first


@pytest.mark.parametrize("name", ["HEAD", "--help", "main", "0123456 --output=x", "012345"])
def test_what_is_no_hash_never_reaches_gits_command_line(repo, name):
    commit(repo, "one")
    assert why_not(repo, name) == "the baseline's runs name no commit by its hash"


@pytest.mark.parametrize("digits", [7, 12, 40])
def test_a_branch_with_the_name_of_a_commit_is_not_taken_for_it(repo, digits):
    first, second = commit(repo, "one"), commit(repo, "two")
    git(repo, "update-ref", f"refs/heads/{first[:digits]}", second)
    assert found(repo, first[:digits]) == first


def test_a_branch_is_not_taken_for_a_commit_that_is_not_there(repo):
    second = commit(repo, "one")
    git(repo, "update-ref", "refs/heads/0123456789ab", second)
    assert "(0123456789) is not in this repository: fetch it " in why_not(repo, "0123456789ab")
