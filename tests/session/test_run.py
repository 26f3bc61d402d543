"""What a document says of where and when its run took place."""

import pytest
from repositories import committed, git

from pytest_bandwidth.session.run import commit_of_run, describe

GIVEN = "0a" * 20


def commit_in(folder):
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text(folder.name)
    return committed(folder, folder.name)


def test_the_commit_is_the_tests_own_where_a_hook_of_another_repository_runs_them(tmp_path, monkeypatch):
    ours, other = commit_in(tmp_path / "ours"), commit_in(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    found = describe(tmp_path / "ours", 0.0)
    assert ours != other
    assert (found["commit"], found["uncommitted_changes"], found["root"]) == (ours, False, ".")


def test_the_root_and_the_start_are_told_and_outside_a_repository_nothing_of_one(tmp_path):
    found = describe(tmp_path, 0.0)
    assert (found["commit"], found["uncommitted_changes"], found["root"]) == (None, None, None)
    commit_in(tmp_path / "ours")
    (tmp_path / "ours/gpu/tests").mkdir(parents=True)
    assert describe(tmp_path / "ours/gpu/tests", 0.0)["root"] == "gpu/tests"
    assert describe(tmp_path, 1_700_000_000.9)["started_at"] == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("given", "variables", "named"),
    [
        (GIVEN, {"GITHUB_SHA": "1" * 40}, GIVEN),
        (None, {"GITHUB_SHA": GIVEN}, GIVEN),
        (None, {"CI_COMMIT_SHA": GIVEN}, GIVEN),
        (None, {"GITHUB_SHA": "main\n::error::forged", "CI_COMMIT_SHA": GIVEN}, GIVEN),
        (None, {"GITHUB_SHA": "main"}, None),
    ],
)
def test_where_there_is_no_git_the_commit_is_given(tmp_path, monkeypatch, given, variables, named):
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert commit_of_run(tmp_path, given) == named
