"""Suspects that pairs against the commit of their baseline settle, in a repository whose kernels take virtual time."""

import json
import shutil

import pytest
from repositories import git

COMMITTED = "from virtual_time import sleep\nSECONDS = {}\ndef pause(name):\n    sleep(SECONDS.get(name, 0.001))\n"
# 1.1 ms become 1.3 ms: 15 % below.
SLOWED = COMMITTED.replace("{}", "dict(slowed=0.0012, gone=0.0012, dirty=0.0012, unlike=0.0012, late=0.0012)")
TEST = """
def test_{name}(bandwidth):
    bandwidth(lambda: kern.pause({name!r}), reads=10**6, label="k")
"""
HEADER = "schema: 1\ndevice: {name: scripted device, memory_gib: 1, kind: cpu}\nentries:\n"
NAMES = ("slowed", "machine", "gone", "dirty", "blunt", "once")
# Of the probe's time, 0.1 ms.
SHARE = 0.1 / 1.1


def entry(key, commit, share=SHARE, judged_on="relative", dirty=False):
    gbps = 10 * share
    more = ", dirty: true" if dirty else ""
    run = (
        f"      - {{gbps: {gbps:.6g}, probe_gbps: 10, relative: {share:.6g}, samples: 30, commit: '{commit}'{more}}}\n"
    )
    return f"  {key} @ k:\n    bandwidth: {gbps:.6g} GB/s\n    judged_on: {judged_on}\n    runs:\n{5 * run}"


@pytest.fixture
def repo(slept, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p bandwidth -p no:unraisableexception")
    slept.file("pytest.ini", "[pytest]\npythonpath = .\nbandwidth_busy_processors = 1000\n")
    slept.file("kern.py", COMMITTED)
    slept.file("test_old.py", "import kern\n" + "".join(TEST.format(name=name) for name in NAMES))
    git(slept.path, "init", "-q")
    git(slept.path, "add", "-A")
    git(slept.path, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-qm", "one")
    return slept


def judged(repo, entries, *args):
    repo.file("b.yaml", HEADER + "".join(entries))
    document = repo.document("--bandwidth-baseline=b.yaml", *args)
    rows = {row["key"].partition("::test_")[2].partition(" ")[0]: row for row in document["results"]}
    assert len(git(repo.path, "worktree", "list").splitlines()) == 1
    return {name: (row["status"], row["code"], row["reason"]) for name, row in rows.items()}


def test_each_suspect_has_the_best_last_word_that_is_at_hand(repo):
    commit = git(repo.path, "rev-parse", "--short=12", "HEAD").strip()
    repo.file("kern.py", SLOWED)
    repo.file("test_new.py", "import kern\n" + TEST.format(name="unlike"))
    repo.file("test_old.py", (repo.path / "test_old.py").read_text(encoding="utf-8") + TEST.format(name="late"))
    old = "test_old.py::test_"
    entries = [
        entry(f"{old}slowed", commit),
        entry(f"{old}machine", commit, share=1.3 * SHARE),
        entry(f"{old}gone", "0123456789ab"),
        entry(f"{old}dirty", commit, dirty=True),
        entry(f"{old}blunt", commit, judged_on="gbps"),
        entry("test_new.py::test_unlike", commit),
        entry(f"{old}late", commit),
    ]
    found = judged(repo, entries, "--bandwidth-settle=unsure")
    assert {name: of[:2] for name, of in found.items()} == {
        "slowed": ("REGRESSED", "pairs"),
        "machine": ("DEVICE", "commit"),
        "gone": ("REGRESSED", "drop"),
        "dirty": ("REGRESSED", "drop"),
        "blunt": ("WITHIN", "pairs"),
        "once": ("NO_BASELINE", "no-entry"),
        "unlike": ("REGRESSED", "drop"),
        "late": ("REGRESSED", "drop"),
    }
    name = f"the baseline's commit ({commit[:10]})"
    assert found["slowed"][2].startswith(f"15.4 % below {name} in 5 pairs of fresh processes")
    rows = json.loads((repo.path / "run.json").read_text(encoding="utf-8"))["results"]
    (message,) = (row["message"] for row in rows if row["key"].startswith(f"{old}slowed"))
    assert "Likely cause: what changed since the baseline's commit, not the device" in message
    assert found["machine"][2].startswith(f"it lost more than its code explains: 0.0 % below {name} in 5 pairs")
    why = {key: found[key][2].partition("not held to the old code: ")[2] for key in ("gone", "dirty", "unlike", "late")}
    assert why == {
        "gone": "the baseline's commit (0123456789) is not in this repository: fetch it (shallow clones hold the "
        "newest only)",
        "dirty": "the baseline's runs are of a tree with changes or sources that were not committed",
        "unlike": f"{name} has no test_new.py",
        "late": f"{name} has no such test",
    }


def test_without_being_asked_to_what_stored_runs_cannot_tell_stays_untold_and_never_takes_no_pairs(repo):
    commit = git(repo.path, "rev-parse", "--short=12", "HEAD").strip()
    repo.file("kern.py", SLOWED)
    entries = [
        entry("test_old.py::test_slowed", commit),
        entry("test_old.py::test_blunt", commit, judged_on="gbps"),
    ]
    tests = ("test_old.py::test_slowed", "test_old.py::test_blunt")
    found = judged(repo, entries, "--bandwidth-settle=never", *tests)
    assert {name: of[:2] for name, of in found.items()} == {
        "slowed": ("REGRESSED", "drop"),
        "blunt": ("INSUFFICIENT", "noise"),
    }
    assert judged(repo, entries, tests[1])["blunt"][0] == "INSUFFICIENT"
    assert judged(repo, entries, "--bandwidth-strict", tests[1])["blunt"][0] == "WITHIN"


def test_a_shallow_clone_leaves_the_word_to_fresh_processes_and_says_what_to_fetch(repo, tmp_path_factory):
    commit, origin = git(repo.path, "rev-parse", "--short=12", "HEAD").strip(), tmp_path_factory.mktemp("origin")
    repo.file("kern.py", SLOWED)
    git(repo.path, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-qam", "two")
    git(origin, "clone", "-q", "--bare", str(repo.path), "all.git")
    shutil.rmtree(repo.path / ".git")
    git(repo.path, "init", "-q")
    git(repo.path, "fetch", "-q", "--depth", "1", (origin / "all.git").as_uri(), "HEAD")
    git(repo.path, "reset", "-q", "FETCH_HEAD")
    found = judged(repo, [entry("test_old.py::test_slowed", commit)], "test_old.py::test_slowed")
    status, code, reason = found["slowed"]
    assert (status, code) == ("REGRESSED", "drop")
    assert reason.endswith(
        f"; not held to the old code: the baseline's commit ({commit[:10]}) is not in this repository: "
        "fetch it (shallow clones hold the newest only)"
    )


def test_a_commit_that_cannot_be_run_leaves_the_word_to_fresh_processes_and_says_why(repo):
    repo.file("kern.py", "import nowhere_to_be_found\n")
    git(repo.path, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-qam", "two")
    commit = git(repo.path, "rev-parse", "--short=12", "HEAD").strip()
    repo.file("kern.py", SLOWED)
    found = judged(repo, [entry("test_old.py::test_slowed", commit)], "test_old.py::test_slowed")
    status, code, reason = found["slowed"]
    assert (status, code) == ("REGRESSED", "drop")
    assert "not held to the old code: " in reason
    assert "nowhere_to_be_found" in reason
