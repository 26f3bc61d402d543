"""Compare kernels of two commits of a git repository on the card."""

import re
from pathlib import Path

from card_processes import MACHINE_CODE, Card
from repositories import committed, git
from test_kept_machine_code import NOT_KEPT, OLD_DRIVER
from test_old_code_on_the_card import HALVED_LAUNCH, MORE, SLOWER, TESTS, judged, source

# Beside a launch from a graph the old kernel runs in one of its own.
FROM_A_GRAPH = """
@pytest.mark.bandwidth(tolerance="3%")
def test_graph(bandwidth):
    x, y = bandwidth.random(2 * N, "float32"), bandwidth.xp.zeros(N + 1, "float32")
    kernel, args = bandwidth.kernel("copies.cu", "copy_2"), (x, y, np.int32(N))
    bandwidth.launch(kernel, 16, 256, args, reads=4 * N, writes=4 * N, graph=True)
"""


def test_against_a_revision_changed_kernels_are_measured_beside_their_old_code(card: Card, tmp_path: Path) -> None:
    """The revision hands machine code over: its PTX is as new as this code's, which the driver refuses."""
    folder = tmp_path / "user"  # beside trees of commits, which lie in the card's folder
    folder.mkdir()
    (folder / "copies.cu").write_text(source({3: MORE}))
    (folder / "test_copies.py").write_text(TESTS + FROM_A_GRAPH)
    committed(folder, "fast", "copies.cu", "test_copies.py")
    (folder / "copies.cu").write_text(source({2: MORE, 4: MORE}))
    tests = TESTS.replace("HALVED = WIDER = ()", "HALVED, WIDER = (4,), ()")
    (folder / "test_copies.py").write_text(tests + FROM_A_GRAPH)
    expected = {2: SLOWER, 3: ("IMPROVED", "old-kernel"), 4: SLOWER, "graph": SLOWER}
    rows, _ = judged(card, folder, expected, "--bandwidth-against=HEAD", env=MACHINE_CODE, **OLD_DRIVER)
    assert {row["gbps"] for name, row in rows.items() if name not in expected} == {None}
    slower = rows[2]
    assert len(slower["fresh"]) == 4
    assert "slower than the old code (tolerance 3.0 %)" in slower["reason"]
    assert NOT_KEPT not in slower["reason"]
    accesses = "in its code, loads of 32 bits 5 → 10, stores of 32 bits 5 → 6"
    sectors = "(; sectors of 32 bytes 256 → 272 a block)?"  # counted where that takes no more than seconds
    assert re.search(f"likely cause  the kernel's code changed; {accesses}{sectors}; registers ", slower["message"])
    assert "--bandwidth-against stores no figures" in slower["message"]
    assert "\n+ ld.global" in slower["code_diff"]
    assert "faster than the old code (tolerance 3.0 %)" in rows[3]["reason"]
    assert HALVED_LAUNCH in rows[4]["message"]
    assert rows["graph"]["method"].endswith("+graph")
    assert len(git(folder, "worktree", "list").splitlines()) == 1
