"""The commit that an update's runs name: whether it holds all that ran."""

import pytest
from repositories import committed, git

from pytest_bandwidth import baseline as baseline_files

TEST = """
from virtual_time import sleep

def test_pause(bandwidth):
    bandwidth(lambda: sleep(0.001), reads=10**6)
"""


@pytest.fixture
def repo(slept):
    slept.file("test_pause.py", TEST)
    git(slept.path, "init", "-q")
    return slept


def updated(repo, *options):
    """What the newest run of one more update says of its commit, and the lines of that update."""
    result = repo.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update", *options)
    result.assert_outcomes(passed=1)
    run = baseline_files.load(repo.path / "b.yaml").entries["test_pause.py::test_pause"].runs[-1]
    return (run.commit, run.dirty), [line for line in result.outlines if "not committed" in line]


def test_a_run_is_of_its_commit_where_that_holds_all_code(repo):
    """An update of no commit names the file that makes it so."""
    assert updated(repo)[0] == (None, False), "before the first commit there is none to name but one that is given"
    assert updated(repo, "-o", f"bandwidth_commit={'0a' * 20}")[0] == ("0a" * 20, False)
    (repo.path / "b.yaml").unlink()
    first = committed(repo.path, "one", "test_pause.py", "pytest.ini")
    repo.file(f"code/{'0a' * 16}.ptx", "an update's own")
    assert updated(repo) == ((first, False), []), "what updates wrote is no code of the tree"
    repo.file("helper.py", "")
    assert updated(repo)[0] == (first, True), "the commit has no helper.py"
    second = committed(repo.path, "two")
    assert updated(repo) == ((second, False), []), "the baseline, which is tracked by now, is the update's own, too"
    repo.file("helper.py", "changed = True")
    run, (line,) = updated(repo)
    assert run == (second, True)
    assert line.startswith("bandwidth: helper.py is not committed: commit it before this update, ")
    repo.file("other.cu", "")
    _, (line,) = updated(repo)
    assert line.startswith("bandwidth: helper.py and 1 more is not committed: ")
