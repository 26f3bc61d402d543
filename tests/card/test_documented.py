"""The CUDA page's test on the card, as written but for device, sizes and budgets."""

import re
from pathlib import Path

from card_processes import Card
from documented import BLOCKS, commands, plain, printed, words

ADDOPTS = (
    "-p no:cacheprovider -p no:randomly -p no:benchmark -p no:xdist -p no:hypothesispytest --bandwidth-max-time=0.05 "
    "-obandwidth_runs=2"
)
CUDA = [block for block in BLOCKS if block.page == "cuda.md"]


def test_the_test_of_the_cuda_page_is_judged_by_its_baseline(card: Card, tmp_path: Path) -> None:
    (test,) = [block for block in CUDA if block.kind == "python" and "def test_" in block.text]
    # The card executes every thread; its cache is as much smaller as the arrays.
    (tmp_path / "test_triad.py").write_text(re.sub(r"1 << 2[456]", "1 << 18", test.text), encoding="utf-8")
    update, judge = [c for b in CUDA for c in commands(b.text) if c.startswith("pytest --bandwidth-baseline")]
    for command, expected in ((update, {"SAVED"}), (judge, {"OK", "IMPROVED"})):
        environment = {"PYTEST_ADDOPTS": ADDOPTS, "COLUMNS": "120"}
        args = ["-m", *words(command, tmp_path)]
        done = card.run(args, {"L2_BYTES": 64 << 10}, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        (line,) = re.findall(r"^\d measured: (.*)$", done.stdout, re.MULTILINE)
        assert set(re.findall(r"[A-Z_]+", line)) <= expected, done.stdout
    (shown,) = [block for block in CUDA if block.kind == "text"]
    assert printed(shown).search(plain(done.stdout)), done.stdout
