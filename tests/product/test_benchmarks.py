"""Every script under benchmarks/ runs to its end with its smallest arguments; its figures do not matter here."""

import functools
import re
import sys

import pytest
from documented import ROOT, commands_in_text
from repositories import run

# Arguments that make it short, and a pattern of its output.
SMALLEST = {
    "code_identity.py": (
        ("--repeat=1", "--indices-mib=8", "--file=rope.cu"),
        r"\| Numba function \|(?s:.*)indices: 8 MB in 0\.\d+ s here",
    ),
    "gate.py": (
        ("--mib=8", "--kernel=triad", "--mode=strict", "--dropped=0"),
        r"\| streams \| pytest-benchmark, min:5% \| \d of 1 ",
    ),
    "history.py": (("--runs=60", "--tests=8", "--repeat=1", "--skip-change-points"), r"SQL"),
    "kernel_facts.py": (
        ("--operation=copy", "--arch=sm_90"),
        r"\| copy_f32x4 \| \d+ \| 0 \| \d+ of \d+ \| - \| 4: 64 B \| \d+ \| 16.0 \|",
    ),
    "judge_simulation.py": (("--trials=20",), r"bimodal"),
    "pairs_simulation.py": (("--trials=20",), r"two speeds"),
    "in_turn.py": (
        (
            *("--pairs=2", "--mib=8", "--kernel=triad", "--drop=10%"),
            *("--way=alternate, both separate", "--way=one after the other"),
        ),
        r"\| alternate, both separate \|(?s:.*)\| triad \| streams \| one after the other \|",
    ),
    "overhead.py": (("--pairs=1",), r"heavy modules loaded: \[\]"),
    "plateau.py": (("--seconds=0.01",), r"triad, GB/s(?s:.*)\| 384 \|"),
    "scale.py": (("100", "--repeat=1"), r"\| 100 \|"),
    "traffic.py": (("--rounds=1", "--largest=10"), r"\| triad \| 1,024 \|(?s:.*)\| 2\^18 \|"),
}
# Measurements are valid while other processes run.
THOUGH_BUSY = "-o bandwidth_busy_processors=1000"
# By ini names: where a script turns the plugin off, its command-line options would be unknown.
SHORT = f"{THOUGH_BUSY} -o bandwidth_max_time=0.1 -o bandwidth_settle=never"
# In test_demo.py, test_make.py, test_gpu_scripts.py, browser/test_pictures.py and tests/card; the page is
# gpu.py's, the arena gate.py's.
ELSEWHERE = {"arena.py", "card_judging.py", "card_mutations.py", "demo.py", "gpu.py", "gpu_gate.py", "gpu_page.py"}
ELSEWHERE |= {"gpu_session.py", "pictures.py"}
NEEDS = {
    **dict.fromkeys(("gate.py", "in_turn.py", "plateau.py"), ("numba", "cpu")),
    "history.py": ("duckdb", "history"),
    **dict.fromkeys(("code_identity.py", "kernel_facts.py", "traffic.py"), ("cuda.bindings", "traffic")),
}


def skip_without_what_it_needs(script):
    module, extra = NEEDS.get(script, ("pytest_bandwidth", ""))
    pytest.importorskip(module, reason=f"{module} is not installed: pip install 'pytest-bandwidth[{extra}]'")


def test_every_script_is_run():
    assert {file.name for file in (ROOT / "benchmarks").glob("*.py")} == ELSEWHERE | set(SMALLEST)


@functools.cache
def usage_of(script):
    usage = run(sys.executable, script, "--help", cwd=ROOT)
    assert usage.returncode == 0, usage.stderr
    return usage.stdout


@pytest.mark.parametrize("command", [c for c in commands_in_text() if c.startswith("python benchmarks/")])
def test_documented_options_are_the_scripts(command):
    _, script, *args = command.split()
    skip_without_what_it_needs(script.removeprefix("benchmarks/"))
    assert [option for option in args if option.startswith("--") and option not in usage_of(script)] == []


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(SMALLEST))
def test_script_runs_to_its_end(script):
    skip_without_what_it_needs(script)
    args, printed = SMALLEST[script]
    result = run(sys.executable, ROOT / "benchmarks" / script, *args, cwd=ROOT, PYTEST_ADDOPTS=SHORT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(printed, result.stdout)
