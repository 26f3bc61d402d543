"""Every script under benchmarks/ runs to its end with its smallest arguments; its figures do not matter here."""

import functools
import re
import shutil
import sys

import pytest
from documented import ROOT, commands_in_text
from repositories import run

# Arguments that make it short, and a pattern of its output.
SMALLEST = {
    "ceiling.py": (("--rounds=1", "--mib=8"), r"\| triad \|"),
    "code_identity.py": (
        ("--repeat=1", "--indices-mib=8", "--file=topk.cu"),
        r"\| Numba function \|(?s:.*)indices: 8 MB in 0\.\d+ s here",
    ),
    "fleet.py": (("--cards=3", "--tests=2", "--repeat=1"), r"\| 3 \|"),
    "gate.py": (
        ("--mib=8", "--kernel=triad", "--mode=strict", "--dropped=0"),
        r"\| streams \| pytest-benchmark, min:5% \| \d of 1 ",
    ),
    "history.py": (("--runs=60", "--tests=8", "--repeat=1", "--skip-change-points"), r"SQL"),
    "honest.py": (("--pairs=1", "--mib=3"), r"ratio +\d(?s:.*)plain_again"),
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
    "overhead.py": (("--pairs=1",), r"per sample: an empty callable"),
    "report.py": (("--results=20", "--repeat=1"), r"first render"),
    "scale.py": (("100", "--repeat=1"), r"\| 100 \|"),
    "traffic.py": (("--rounds=1", "--largest=10"), r"\| 2\^10 \|(?s:.*)\| triad \| 16 \|"),
}
# Measurements are valid while other processes run.
THOUGH_BUSY = "-o bandwidth_busy_processors=1000"
# By ini names: where a script turns the plugin off, its command-line options would be unknown.
SHORT = f"{THOUGH_BUSY} -o bandwidth_max_time=0.1 -o bandwidth_settle=never"
# In test_demo.py, test_make.py, test_gpu_scripts.py, browser/test_pictures.py and tests/card; the page is
# gpu.py's, the arena gate.py's.
ELSEWHERE = {"arena.py", "card_judging.py", "card_mutations.py", "demo.py", "gpu.py", "gpu_gate.py", "gpu_page.py"}
ELSEWHERE |= {"gpu_session.py", "pictures.py"}
MEASURES = ("numba", "cpu")
NEEDS = {
    **dict.fromkeys(("ceiling.py", "gate.py", "honest.py", "in_turn.py", "overhead.py"), MEASURES),
    "history.py": ("duckdb", "history"),
    "report.py": ("vl_convert", "report"),
    **dict.fromkeys(("code_identity.py", "kernel_facts.py", "traffic.py"), ("cuda.bindings", "traffic")),
}


def skip_without_what_it_needs(script):
    module, extra = NEEDS.get(script, ("pytest_bandwidth", ""))
    pytest.importorskip(module, reason=f"{module} is not installed: pip install 'pytest-bandwidth[{extra}]'")
    if script == "ceiling.py" and shutil.which("gcc") is None:
        pytest.skip("no gcc: there is no C to compare with")


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


# Of scripts that do two things the other: what it needs, its arguments, a pattern of its output.
MORE = {
    "scale.py": ("traffic.py", ("--tests=2", "--repeat=1"), r"judge ÷ update: \d"),
    "history.py": (
        "history.py",
        ("--fleet", "--cards=8", "--runs=30", "--tests=8", "--repeat=1"),
        r"(?s)(?=.*reported as drifting: GPU-0001, of 8 cards).*SQL: count",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "needs", "args", "printed"),
    [*((name, name, *SMALLEST[name]) for name in sorted(SMALLEST)), *((name, *more) for name, more in MORE.items())],
)
def test_script_runs_to_its_end(script, needs, args, printed):
    skip_without_what_it_needs(needs)
    result = run(sys.executable, ROOT / "benchmarks" / script, *args, cwd=ROOT, PYTEST_ADDOPTS=SHORT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(printed, result.stdout)
