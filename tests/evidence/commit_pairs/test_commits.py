"""The commit that a baseline's runs name: found in real repositories, or why it is not at hand."""

from __future__ import annotations

import pytest
from repositories import committed, git

from pytest_bandwidth.domain.baseline import Baseline, Entry, Run
from pytest_bandwidth.evidence.commit_pairs.commits import BaselineCommits, NoOldCode

TEST = "tests/test_a.py"


def commit(repo, text):
    (repo / "tests").mkdir(exist_ok=True)
    (repo / TEST).write_text(text)
    return committed(repo, text)


@pytest.fixture
def repo(tmp_path):
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


def baseline(*runs, path=None, line=None, following=None, anchor=None):
    """A baseline whose entry's runs name these commits, the newest last; `+`: the tree had uncommitted changes."""
    named = (Run(1.0) if run is None else Run(1.0, commit=run.removesuffix("+"), dirty="+" in run) for run in runs)
    kept = Entry("k", runs=tuple(named), line=line, anchor=anchor)
    entries = {"k": kept} if following is None else {"k": kept, "other": Entry("other", line=following)}
    return Baseline(None, entries, path=None if path is None else str(path))


def found(repo, *runs, file=None, anchors=False, **entry):
    commits = BaselineCommits(repo, baseline(*runs, **entry), anchors=anchors)
    return commits.commit_with("k", repo / TEST if file is None else file)


def why_not(repo, *runs, file=None, **entry):
    with pytest.raises(NoOldCode) as reason:
        found(repo, *runs, file=file, **entry)
    assert "\n" not in str(reason.value)
    return str(reason.value)


def test_the_newest_clean_commit_with_the_tests_file_is_taken(repo):
    first, second = commit(repo, "one"), commit(repo, "two")
    assert found(repo, first[:12], second[:12]) == second
    assert found(repo, second[:12], first[:12]) == first
    assert found(repo, first[:12], f"{second[:12]}+", None) == first
    new = repo / "tests" / "test_new.py"
    assert why_not(repo, second[:12], file=new).startswith(f"{second[:10]} has no test_new.py")
    new.write_text("")
    third = commit(repo, "three")
    assert found(repo, third[:12], second[:12], file=new) == third


@pytest.mark.parametrize("runs", [(), (None,), (None, None), ("dirty", None)])
def test_runs_without_a_commit_or_with_uncommitted_changes_say_so(repo, runs):
    dirty = f"{commit(repo, 'one')[:12]}+"
    what = "were taken with uncommitted changes" if "dirty" in runs else "name no commit"
    said = why_not(repo, *(run and dirty for run in runs))
    assert said == f"the baseline's runs {what}; this is the default branch itself"


def written(repo, text):
    file = repo / "base.yaml"
    file.write_text(text)
    return file, commit(repo, text)


def test_the_commit_that_touched_the_entrys_lines_serves_dirty_runs(repo):
    dirty = f"{commit(repo, 'one')[:12]}+"
    file, second = written(repo, "tests:\n  k:\n    bandwidth: 1\n  other:\n    bandwidth: 2\n")
    _, third = written(repo, "tests:\n  k:\n    bandwidth: 1\n  other:\n    bandwidth: 3\n")
    assert found(repo, dirty, path=file, line=2, following=4) == second
    # The last entry reaches to the end of the file.
    assert found(repo, dirty, path=file, line=4) == third


def test_lines_that_are_not_committed_name_no_commit(repo):
    dirty = f"{commit(repo, 'one')[:12]}+"
    file, _ = written(repo, "tests:\n  k:\n    bandwidth: 1\n")
    file.write_text("tests:\n  k:\n    bandwidth: 2\n")
    # Uncommitted lines are a change, so HEAD holds the code before it.
    assert found(repo, dirty, path=file, line=2) == git(repo, "rev-parse", "HEAD").strip()


def test_a_baseline_outside_the_repository_is_not_blamed(repo, tmp_path):
    commit(repo, "one")
    said = why_not(repo, None, path=tmp_path / "base.yaml", line=2)
    assert "the baseline lies outside of the repository" in said


def test_the_merge_base_serves_entries_written_by_hand(repo):
    first = commit(repo, "one")
    git(repo, "checkout", "-q", "-b", "feature")
    commit(repo, "two")
    assert found(repo) == first


def test_a_squashed_branchs_commit_falls_back_to_the_lines(repo):
    first = commit(repo, "one")
    file, squashed = written(repo, "tests:\n  k:\n    bandwidth: 1\n")
    orphan = "0123456789ab"
    assert found(repo, orphan, path=file, line=2) == squashed
    assert first != squashed


def test_an_anchors_commit_is_taken_alone(repo):
    first, second = commit(repo, "one"), commit(repo, "two")
    assert found(repo, second[:12], anchor=Run(1.0, commit=first), anchors=True) == first
    with pytest.raises(NoOldCode, match="no anchor with a commit"):
        found(repo, second[:12], anchors=True)


@pytest.mark.parametrize(("without_git", "why"), [(False, "not a git repository"), (True, "git could not run: ")])
def test_a_folder_in_no_repository_and_a_machine_without_git_say_so(tmp_path, monkeypatch, without_git, why):
    if without_git:
        monkeypatch.setenv("PATH", str(tmp_path))
    said = why_not(tmp_path, "0123456789ab")
    assert said.startswith("git cannot be used here: ")
    assert why in said


def test_a_test_outside_the_repository_says_so(repo, tmp_path):
    first = commit(repo, "one")
    assert why_not(repo, first[:12], file=tmp_path / "test_out.py") == "test_out.py lies outside of the repository"


def test_a_shallow_clone_finds_what_it_has(repo, tmp_path):
    first, second = commit(repo, "one"), commit(repo, "two")
    git(tmp_path, "clone", "-q", "--depth", "1", repo.as_uri(), "shallow")
    shallow = tmp_path / "shallow"
    assert found(shallow, first[:12], second[:12]) == second
    assert f"{first[:10]} is not in this shallow clone" in why_not(shallow, first[:12])
    assert BaselineCommits(shallow, baseline(first[:12])).has_any() is False
    assert BaselineCommits(shallow, baseline(first[:12], second[:12])).has_any() is True
    git(shallow, "fetch", "-q", "--unshallow")
    assert found(shallow, first[:12]) == first


@pytest.mark.parametrize("name", ["HEAD", "--help", "main", "0123456 --output=x", "012345"])
def test_what_is_no_hash_never_reaches_gits_command_line(repo, name):
    commit(repo, "one")
    assert why_not(repo, name).startswith("the baseline's runs name no commit by its hash")
