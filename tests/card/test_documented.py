"""The CUDA page's test and the tutorial's commands on the card, as written but for device, sizes and budgets."""

import re
import subprocess
from pathlib import Path

from card_processes import Card
from documented import BLOCKS, commands, plain, printed, words

ADDOPTS = (
    "-p no:cacheprovider -p no:randomly -p no:benchmark -p no:xdist -p no:hypothesispytest --bandwidth-max-time=0.05 "
    "-obandwidth_runs=2"
)
# The card executes every thread; its cache is as much smaller as the arrays.
LARGE, SMALL = re.compile(r"1 << 2[456]"), "1 << 18"
SETTINGS: dict[str, object] = {"L2_BYTES": 64 << 10}
PASSING = {"OK", "IMPROVED"}
CUDA = [block for block in BLOCKS if block.page == "cuda.md"]
TUTORIAL = [block for block in BLOCKS if block.page == "tutorial.md"]


def typed(card: Card, folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a documented command in a user's folder, on the card."""
    program, *args = words(command.replace("--bandwidth-device=cpu ", "").replace("--bandwidth-device=cpu", ""), folder)
    module = {"pytest": "pytest", "pytest-bandwidth": "pytest_bandwidth.cli"}[program]
    return card.run(["-m", module, *args], SETTINGS, cwd=folder, env={"PYTEST_ADDOPTS": ADDOPTS, "COLUMNS": "120"})


def statuses(shown: str) -> set[str]:
    """Return the statuses of all measurements, from the summary's last line."""
    (line,) = re.findall(r"^\d measured: (.*)$", shown, re.MULTILINE)
    return set(re.findall(r"[A-Z_]+", line))


def test_the_test_of_the_cuda_page_is_judged_by_its_baseline(card: Card, tmp_path: Path) -> None:
    (test,) = [block for block in CUDA if block.kind == "python" and "def test_" in block.text]
    (tmp_path / "test_triad.py").write_text(LARGE.sub(SMALL, test.text), encoding="utf-8")
    update, judge = [c for b in CUDA for c in commands(b.text) if c.startswith("pytest --bandwidth-baseline")]
    for command, expected in ((update, {"SAVED"}), (judge, PASSING)):
        done = typed(card, tmp_path, command)
        assert done.returncode == 0, done.stdout + done.stderr
        assert statuses(done.stdout) <= expected, done.stdout
    (shown,) = [block for block in CUDA if block.kind == "text"]
    assert printed(shown).search(plain(done.stdout)), done.stdout


def test_the_tutorial_finds_its_strided_kernel_by_time(card: Card, tmp_path: Path) -> None:
    kernels = [block for block in TUTORIAL if block.kind == "cuda"]
    shown = []
    for block in TUTORIAL:
        if block is kernels[1]:
            continue
        if block.kind in ("cuda", "python") and block.file is not None:
            (tmp_path / block.file).write_text(LARGE.sub(SMALL, block.text), encoding="utf-8")
        elif block.kind == "console" and not block.text.startswith("pip install "):
            timed = [command for command in commands(block.text) if "--bandwidth-device=traffic" not in command]
            for command in timed:
                done = typed(card, tmp_path, command)
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
                shown.append(done.stdout)
    measured, updated, listed, judged = shown
    assert statuses(measured) == {"UNDECIDED"}
    assert statuses(updated) == {"SAVED"}
    assert "test_scale.py::test_scale" in listed
    assert statuses(judged) <= PASSING, judged

    # Each thread its own sectors: what counting tells without a GPU, time tells on one.
    assert kernels[1].file is not None
    (tmp_path / kernels[1].file).write_text(kernels[1].text, encoding="utf-8")
    done = typed(card, tmp_path, "pytest --bandwidth-baseline=baselines/")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"REGRESSED: [\d.]+ % slower than the old code", done.stdout), done.stdout
    assert "moved 524 kB in " in done.stdout
