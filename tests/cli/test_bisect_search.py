"""Which commit is judged next, and what is left when none is: on real histories, nothing measured."""

import itertools
import math

import pytest
from repositories import git

from pytest_bandwidth.cli.bisect import Bisection, check_order, described, modules_in
from pytest_bandwidth.domain.errors import UsageError


class History:
    """A repository of empty commits, by subject."""

    def __init__(self, path):
        self.path = path
        self.numbers = itertools.count()
        git(path, "init", "-q", "-b", "main")

    def git(self, *args):
        return git(self.path, "-c", "user.name=n", "-c", "user.email=e@localhost", *args).strip()

    def commit(self, subject):
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def line(self, count):
        # Each subject differs: two empty commits of one parent, subject and second are the same commit.
        return [self.commit(str(next(self.numbers))) for _ in range(count)]


@pytest.fixture
def history(tmp_path):
    return History(tmp_path)


def searched(bisection, is_bad):
    """Judge by `is_bad`, None for what cannot be judged; return how many were, and what is left."""
    steps = 0
    while (commit := bisection.next()) is not None:
        steps += 1
        if is_bad(commit) is None:
            bisection.skipped.append(commit)
        elif is_bad(commit):
            bisection.bad = commit
        else:
            bisection.good.append(commit)
    return steps, bisection.in_order()


def test_each_commit_of_a_line_is_found_in_as_many_steps_as_halving_takes(history):
    line = history.line(20)
    for first in range(1, 20):
        steps, left = searched(
            Bisection(history.path, [line[0]], line[-1]), lambda one, at=first: line.index(one) >= at
        )
        assert left == [line[first]]
        assert steps <= math.ceil(math.log2(19))


def test_what_cannot_be_judged_is_left_beside_the_first_and_passed_over_elsewhere(history):
    line = history.line(12)
    steps, left = searched(
        Bisection(history.path, [line[0]], line[-1]), lambda one: None if one in line[4:7] else line.index(one) >= 6
    )
    assert left == line[7:3:-1]
    assert steps <= 8


def test_branches_are_searched_too(history):
    start = history.commit("start")
    history.git("checkout", "-qb", "side")
    side = history.line(3)
    history.git("checkout", "-q", "main")
    history.line(3)
    history.git("merge", "-q", "--no-ff", "-m", "merged", "side")
    last = history.commit("last")
    bad = {side[1], side[2], history.git("rev-parse", "HEAD~1"), last}
    assert searched(Bisection(history.path, [start], last), lambda one: one in bad)[1] == [side[1]]


def test_the_good_commit_has_to_come_first(history):
    line = history.line(2)
    history.git("checkout", "-qb", "side", line[0])
    aside = history.commit("aside")
    history.git("checkout", "-q", "--orphan", "other")
    stranger = history.commit("stranger")
    check_order(history.path, line[0], line[1])
    for good, bad, message in (
        (line[1], line[0], "is not an ancestor of BAD"),
        (aside, line[1], f"their last common commit is {line[0][:10]}"),
        (line[0], line[0], "the same commit"),
        (stranger, line[1], "no commit in common: fetch the history"),
    ):
        with pytest.raises(UsageError, match=message):
            check_order(history.path, good, bad)


def test_names_of_modules_and_what_a_commit_says(history):
    for name in ("src/kern/__init__.py", "tests/test_a.py", "no-name.py", "a.txt"):
        (history.path / name).parent.mkdir(parents=True, exist_ok=True)
        (history.path / name).write_text("")
    history.git("add", "-A")
    commit = history.commit("with Ümläuts: and a colon")
    assert modules_in(history.path, commit) == {"src", "kern", "__init__", "tests", "test_a"}
    subject, by = described(history.path, commit)
    assert (subject, by[:3]) == ("with Ümläuts: and a colon", "n, ")
