"""Changed or unknown code is compared with the commit of its baseline, in a repository of virtual time."""

import shutil
from dataclasses import replace

import pytest
from baseline_files import write_baseline
from repositories import committed, git

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run

COMMITTED = (
    "from virtual_time import sleep\nSLOW = {}\ndef pause(name):\n    sleep(0.0012 if name in SLOW else 0.001)\n"
)
# 1.1 ms become 1.3 ms: 15.4 % of the bandwidth are lost.
SLOWED = COMMITTED.replace("{}", "('slowed', 'well_stored', 'gone', 'dirty', 'added')")
TEST = """
def test_{name}(bandwidth):
    for name in {labels}:
        bandwidth(lambda: kern.pause(name), reads=10**6, label=name)
"""
DEVICE = BaselineDevice("scripted device", 1, "cpu")
# All measurements of one test share its pairs.
LABELS = ("slowed", "well_stored", "badly_stored", "gone", "dirty", "unknown")
# Of the probe's time, 0.1 ms.
SHARE, SLOW_SHARE = 0.1 / 1.1, 0.1 / 1.3
OLD = "test_old.py::test_all"


def entry(key, commit, share=SHARE, anchor="", *, dirty=False):
    gbps = 10 * share
    runs = (Run(gbps, 10.0, share, 30, commit=commit, dirty=dirty),) * 5
    first = Run(gbps, relative=share, commit=anchor) if anchor else None
    return Entry(key, gbps, judged_on="relative", anchor=first, runs=runs)


def write(repo, entries):
    write_baseline(repo.path / "b.yaml", Baseline(DEVICE, {one.key: one for one in entries}))


def commit(repo, message):
    return committed(repo.path, message)


@pytest.fixture
def repo(to_commit, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    to_commit.file("kern.py", COMMITTED)
    to_commit.file("test_old.py", "import kern\n" + TEST.format(name="all", labels=LABELS))
    commit(to_commit, "one")
    to_commit.inside = True  # the pairs are processes all the same
    return to_commit


def head(repo):
    return git(repo.path, "rev-parse", "HEAD").strip()


def judged(repo, entries, *args):
    """Return status, rule and reason of each measurement, by its label."""
    write(repo, entries)
    document = repo.document("--bandwidth-baseline=b.yaml", *args)
    assert len(git(repo.path, "worktree", "list").splitlines()) == 1
    return {row["label"]: (row["status"], row["reason_code"], row["reason"]) for row in document["results"]}


def test_a_commit_that_brought_slow_code_with_its_baseline_is_no_old_code(repo):
    """The runs' own commit is gone, as after a squash: the lines' commit holds the code of now."""
    repo.file("kern.py", SLOWED)
    other = {"function": "0" * 32, "launch": "0" * 32}
    entries = [replace(entry(f"{OLD} @ slowed", "0123456789ab"), code=other)]
    write(repo, entries)
    commit(repo, "a baseline, and slow code")
    status, rule, _ = judged(repo, entries)["slowed"]
    assert (status, rule) == ("REGRESSED", "stored")


def test_the_runs_commit_is_old_code_where_only_a_library_changed_since(repo):
    other = {"function": "0" * 32, "launch": "0" * 32}
    found = judged(repo, [replace(entry(f"{OLD} @ slowed", head(repo), 1.3 * SHARE), code=other)])
    assert found["slowed"][:2] == ("OK", "pairs")


def test_old_code_decides_whatever_stored_figures_say(repo):
    first = head(repo)
    repo.file("kern.py", SLOWED)
    repo.file("test_old.py", "import kern\n" + TEST.format(name="all", labels=(*LABELS, "added")))
    found = judged(
        repo,
        [
            entry(f"{OLD} @ slowed", first),
            entry(f"{OLD} @ well_stored", first, SLOW_SHARE),
            entry(f"{OLD} @ badly_stored", first, 1.3 * SHARE),
            # No run names a commit to run: the one that the changes are made to is compared.
            entry(f"{OLD} @ gone", "0123456789ab"),
            entry(f"{OLD} @ dirty", first, dirty=True),
            entry(f"{OLD} @ added", first),
        ],
    )
    assert {label: one[:2] for label, one in found.items()} == {
        "slowed": ("REGRESSED", "pairs"),
        "well_stored": ("REGRESSED", "pairs"),
        "badly_stored": ("OK", "pairs"),
        "gone": ("REGRESSED", "pairs"),
        "dirty": ("REGRESSED", "pairs"),
        "unknown": ("UNDECIDED", "no-entry"),
        "added": ("REGRESSED", "stored"),
    }
    assert found["slowed"][2] == "15.4 % slower than the old code (tolerance 5.0 %)"
    assert found["badly_stored"][2] == "costs at most 0.0 %: 0.0 % slower than the old code"
    name = f"commit {first[:10]}"
    assert found["added"][2].endswith(
        f"; the old code did not run: {name} has the test, but does not measure this in it"
    )


def test_where_no_old_code_runs_stored_figures_decide(repo):
    repo.file("kern.py", "import nowhere_to_be_found\n")
    broken = commit(repo, "two")
    repo.file("kern.py", SLOWED)
    shares = {"slowed": SLOW_SHARE / 0.949, "well_stored": SLOW_SHARE / 0.951}  # past the gate, and within it
    entries = [entry(f"{OLD} @ {label}", broken, share) for label, share in shares.items()]
    for args in ((), ("-o", "bandwidth_settle=never")):
        found = judged(repo, entries, *args)
        assert [found[label][:2] for label in shares] == [("REGRESSED", "stored"), ("OK", "stored")]
        why = found["slowed"][2]
        assert ("the old code did not run: " in why) is ("nowhere_to_be_found" in why) is (args == ())


def test_the_anchors_commit_shows_what_many_baselines_lost(repo):
    first = head(repo)
    repo.file("kern.py", SLOWED)
    entries = [entry(f"{OLD} @ slowed", commit(repo, "two"), SLOW_SHARE, anchor=first)]
    assert judged(repo, entries, "--bandwidth-against=anchor")["slowed"] == (
        "REGRESSED",
        "pairs",
        "15.4 % slower than the old code (tolerance 5.0 %)",
    )


@pytest.fixture
def shallow(repo, tmp_path_factory):
    """Return how to clone only the newest commits of a repository that has three; the first is the baseline's."""
    first, origin = head(repo), tmp_path_factory.mktemp("origin")
    repo.file("kern.py", SLOWED)
    commit(repo, "two")
    repo.file("kern.py", SLOWED + "# three\n")
    commit(repo, "three")
    git(origin, "clone", "-q", "--bare", str(repo.path), "all.git")

    def cloned(depth):
        shutil.rmtree(repo.path / ".git")
        git(repo.path, "init", "-q")
        git(repo.path, "fetch", "-q", "--depth", str(depth), (origin / "all.git").as_uri(), "HEAD")
        git(repo.path, "reset", "-q", "FETCH_HEAD")
        write(repo, [entry(f"{OLD} @ slowed", first)])
        return repo

    return cloned


REFUSED = "ERROR: found a shallow clone without the commits of the baseline's runs, expected them, "


def test_a_shallow_clone_is_refused_in_ci(shallow, monkeypatch):
    repo = shallow(1)
    for said in ("true", "1"):
        monkeypatch.setenv("CI", said)
        result = repo.run("--bandwidth-baseline=b.yaml")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        (line,) = filter(None, result.errlines)
        assert line.startswith(REFUSED)
        assert "fetch-depth: 0 (GitHub)" in line
        assert "GIT_DEPTH: 0 (GitLab)" in line
    assert repo.run("--bandwidth-baseline=b.yaml", "-o", "bandwidth_settle=never").ret == pytest.ExitCode.TESTS_FAILED


def test_outside_of_ci_a_shallow_clone_says_what_it_does_not_have(shallow, monkeypatch):
    monkeypatch.setenv("CI", "false")
    rows = {row["label"]: row for row in shallow(1).document("--bandwidth-baseline=b.yaml")["results"]}
    assert (rows["slowed"]["status"], rows["slowed"]["reason_code"]) == ("REGRESSED", "stored")
    assert " is not in this shallow clone" in rows["slowed"]["reason"]


def test_an_anchor_that_a_shallow_clone_lacks_is_named(shallow, monkeypatch):
    monkeypatch.setenv("CI", "false")
    repo = shallow(1)
    first = "1234567890" * 4
    status, code, reason = judged(repo, [entry(f"{OLD} @ slowed", first, anchor=first)], "--bandwidth-against=anchor")[
        "slowed"
    ]
    assert (status, code) == ("UNDECIDED", "not-there")
    why = "there is no measurement of the anchor's commit to compare with; 1234567890 is not in this shallow clone"
    assert reason == f"{why}: fetch the whole history"
