"""Compare kernels of two commits of a git repository on the card."""

import re
from pathlib import Path

import pytest
from card_processes import Card
from repositories import git
from test_old_code_on_the_card import (
    AS_FAST,
    CHANGED,
    MORE,
    ONLY,
    SLOWER,
    TESTS,
    changed_alone,
    regressed_alone,
    run,
    source,
)

# A function that launches a kernel: its code is known by the files that the test read.
CALLED = f"""
@pytest.mark.bandwidth(tolerance="3%")
def test_called(bandwidth):
    x, y = bandwidth.random(2 * N, "float32"), bandwidth.xp.zeros(N + 1, "float32")
    kernel = bandwidth.kernel("copies.cu", "copy_{CHANGED}")
    bandwidth(lambda: kernel((16,), (256,), (x, y, np.int32(N))), reads=4 * N, writes=4 * N)
"""
CALLED_ONLY = ("-k", "test_called")
# Launches beside which no old kernel runs: here with a larger array than in the commit, and from a graph.
LAUNCHED_SO = f"""
@pytest.mark.bandwidth(tolerance="3%")
def test_launched_so(bandwidth):
    kernel = bandwidth.kernel("copies.cu", "copy_{CHANGED}")
    for label, size, more in (("larger", 2, {{}}), ("graph", 2, {{"graph": True}})):
        x, y = bandwidth.random(size * N, "float32"), bandwidth.xp.zeros(N + 1, "float32")
        args = (x, y, np.int32(N))
        bandwidth.launch(kernel, 16, 256, args, reads=4 * N, writes=4 * N, label=label, **more)
"""
AGAINST = "--bandwidth-against=HEAD"
HARMLESS = "if (n < 0) y[1] = 2;"


def commit(folder: Path, subject: str) -> str:
    """Commit all but what runs write; returns the hash."""
    git(folder, "add", "copies.cu", "test_copies.py")
    git(folder, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-qm", subject)
    return git(folder, "rev-parse", "HEAD").strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A user's repository of one commit, whose tree is clean."""
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "copies.cu").write_text(source())
    (folder / "test_copies.py").write_text(TESTS + CALLED)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "fast")
    return folder


def untouched(folder: Path) -> bool:
    return len(git(folder, "worktree", "list").splitlines()) == 1


def test_against_a_revision_the_changed_kernel_alone_is_measured_beside_its_old_code(card: Card, repo: Path) -> None:
    changed, others, _ = regressed_alone(card, repo, AGAINST, "-k", "test_copy")
    assert {(row["gbps"], row["reason_code"]) for row in others} == {(None, "code-unchanged")}
    assert len(changed["fresh"]) == 4
    assert "slower than the old code (tolerance 3.0 %)" in changed["reason"]
    accesses = "in its code, loads of 32 bits 5 → 10, stores of 32 bits 5 → 6"
    sectors = "(; sectors of 32 bytes 256 → 272 a block)?"  # counted where that takes no more than seconds
    assert re.search(f"likely cause  the kernel's code changed; {accesses}{sectors}; registers ", changed["message"])
    assert "--bandwidth-against stores nothing that could be updated" in changed["message"]
    assert "\n+ ld.global" in changed["code_diff"]
    assert untouched(repo)


def test_against_a_revision_a_kernel_that_is_launched_otherwise_is_held_to_its_old_launch(
    card: Card, repo: Path
) -> None:
    tests = repo / "test_copies.py"
    tests.write_text(tests.read_text().replace("kernel, 16, 256,", "kernel, 32, 128,"))
    (repo / "copies.cu").write_text(source(MORE))
    changed = changed_alone(card, repo, SLOWER, AGAINST)
    assert "the launch changed: grid 16 → 32, block 256 → 128" in changed["message"]


def test_against_a_revision_a_kernel_that_became_faster_is_told(card: Card, repo: Path) -> None:
    (repo / "copies.cu").write_text(source(MORE))
    commit(repo, "slow")
    (repo / "copies.cu").write_text(source())
    changed = changed_alone(card, repo, (0, "IMPROVED", "old-kernel"), AGAINST)
    assert "faster than the old code (tolerance 3.0 %)" in changed["reason"]


def test_pairs_decide_where_the_old_kernel_cannot_run(card: Card, repo: Path) -> None:
    tests = repo / "test_copies.py"
    tests.write_text(TESTS + LAUNCHED_SO)
    commit(repo, "launched so")
    tests.write_text(tests.read_text().replace('("larger", 2, {})', '("larger", 3, {})'))
    (repo / "copies.cu").write_text(source(MORE))
    status, shown, rows = card.judged(repo, AGAINST, "-k", "test_launched_so")
    whys = {
        "larger": "its launch had other arguments, or they are not known",
        "graph": "it is launched from a graph",
    }
    assert (status, {row["label"] for row in rows}) == (1, set(whys)), shown
    for row in rows:
        assert (row["status"], row["reason_code"]) == ("REGRESSED", "pairs"), shown
        assert row["verdict"]["runs"] == 8  # processes on a GPU have their own addresses
        assert f"; the old kernel did not run: {whys[row['label']]}" in row["reason"]


def test_code_known_by_files_is_compared_with_its_baselines_commit(card: Card, repo: Path) -> None:
    name = git(repo, "rev-parse", "HEAD").strip()
    status, shown, rows = run(card, repo, "--bandwidth-update", *CALLED_ONLY)
    assert (status, [set(row["code_identity"]) for row in rows.values()]) == (0, [{"function", "launch"}]), shown
    (repo / "copies.cu").write_text(source(MORE))
    status, shown, rows = run(card, repo, *CALLED_ONLY)
    (called,) = rows.values()
    assert (status, called["status"], called["reason_code"]) == (1, "REGRESSED", "pairs"), shown
    assert f" (commit {name[:10]}, 8 pairs, ± " in called["message"], called["message"]
    assert "likely cause  copies.cu changed" in called["message"]
    assert untouched(repo)


def test_old_code_decides_what_stored_figures_cannot(card: Card, repo: Path) -> None:
    """One run is too few for the tolerance; what runs next to its old code needs none."""
    status, shown, _ = run(card, repo, "--bandwidth-update", *ONLY)
    assert status == 0, shown
    (repo / "copies.cu").write_text(source(HARMLESS))
    status, shown, rows = run(card, repo, "-obandwidth_settle=never", "--bandwidth-strict", *ONLY)
    assert (status, {row["reason_code"] for row in rows.values()}) == (1, {"too-noisy"}), shown
    assert {row["status"] for row in rows.values()} == {"UNDECIDED"}
    changed_alone(card, repo, AS_FAST)
