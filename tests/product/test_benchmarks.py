"""Every script under benchmarks/ runs to its end, at its smallest: what it measures here says nothing."""

from __future__ import annotations

import importlib
import re
import shutil
import sys

import pytest
from documented import ROOT, commands_in_text
from making import run

# Arguments that make it short, and what it then prints at least.
SMALLEST = {
    "against.py": (("--rounds=1",), r"right|WRONG"),
    "ceiling.py": (("--rounds=1", "--mib=8"), r"\| triad \|"),
    "code_identity.py": (
        ("--repeat=1", "--indices-mib=8"),
        r"\| Numba function \|(?s:.*)indices: 8 MB in 0\.\d+ s here",
    ),
    "estimators.py": (("--processes=2", "--mib=8"), r"\| ratio of medians \|"),
    "faster_memory.py": (("--seconds=3", "--mib=8"), r"\| NumPy's copy \|"),
    "fleet.py": (("--cards=3", "--tests=2", "--repeat=1"), r"\| 3 \|"),
    "gate.py": (("--mib=8", "--kernel=triad"), r"\| streams \| pytest-benchmark, min:5% \| \d of 1 "),
    "history.py": (("--runs=60", "--tests=8", "--repeat=1"), r"SQL"),
    "judge_simulation.py": (("--trials=20",), r"bimodal"),
    "pairs_simulation.py": (("--trials=20",), r"two speeds"),
    "in_turn.py": (("--pairs=2", "--mib=8", "--kernel=triad"), r"\| triad \| streams \| one after the other \|"),
    "overhead.py": (("--pairs=1",), r"per sample: an empty callable"),
    "new_arrays.py": (("--sets=2", "--mib=8"), r"\| NumPy's sum \|"),
    "placement.py": (("--processes=2", "--mib=8"), r"\| reading the test's arrays \|"),
    "probe_kinds.py": (("--minutes=0", "--mib=1", "--kernel=serial"), r"\| serial \| computes \|"),
    "neighbours.py": (
        ("--judged=1", "--dropped=0", "--mib=8", "--kernel=triad", "--kind=steady"),
        r"\| steady \| pytest-benchmark, min:5% \| \d of 1 \|",
    ),
    "readme.py": ((), r"REGRESSED"),
    "report.py": (("--results=20", "--repeat=1"), r"first render"),
    "run_delay.py": (("--seconds=0.1", "--beside", "none", "bursts"), r"\| NumPy sum, 64 MiB \| \d+ \| 100%"),
    "scratch_place.py": (("--mib=8", "--step=1024"), r"\| 640 \| [\d.]+ \| where the plugin's kernels have it \|"),
    "scale.py": (("100", "--repeat=1"), r"\| 100 \|"),
    "traffic.py": (("--rounds=1", "--largest=10"), r"triad"),
}
# What is measured is valid whatever other processes do meanwhile.
THOUGH_BUSY = "-o bandwidth_busy_processors=1000"
# By ini names: where a script turns the plugin off, its options would be unknown ones.
SHORT = f"{THOUGH_BUSY} -o bandwidth_max_time=0.1 -o bandwidth_settle=never"
# They take a minute and seven, also at their smallest.
LONG = {"against.py", "readme.py"}
# In test_demo.py, test_make.py, test_gpu_session_script.py and tests/card; the page is gpu.py's, the arena gate.py's.
ELSEWHERE = {"arena.py", "card_judging.py", "card_mutations.py", "demo.py", "gpu.py", "gpu_gate.py", "gpu_page.py"}
ELSEWHERE |= {"gpu_session.py"}
MEASURES = ("numba", "cpu")
NEEDS = {
    **dict.fromkeys(("ceiling.py", "estimators.py", "faster_memory.py", "gate.py", "in_turn.py"), MEASURES),
    "scratch_place.py": MEASURES,
    **dict.fromkeys(
        ("overhead.py", "neighbours.py", "new_arrays.py", "placement.py", "probe_kinds.py", "run_delay.py"), MEASURES
    ),
    **dict.fromkeys(LONG, MEASURES),
    "history.py": ("duckdb", "history"),
    "report.py": ("vl_convert", "report"),
    **dict.fromkeys(("code_identity.py", "traffic.py"), ("cuda.bindings", "traffic")),
}


def skip_without_what_it_needs(script):
    module, extra = NEEDS.get(script, ("pytest_bandwidth", ""))
    pytest.importorskip(module, reason=f"{module} is not installed: pip install 'pytest-bandwidth[{extra}]'")
    if script == "ceiling.py" and shutil.which("gcc") is None:
        pytest.skip("no gcc: there is no C to compare with")


@pytest.mark.slow
def test_many_small_tests_are_timed():
    skip_without_what_it_needs("traffic.py")
    result = run(sys.executable, ROOT / "benchmarks" / "scale.py", "--tests=2", "--repeat=1", cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"judge ÷ update: \d", result.stdout)


def test_every_script_is_run():
    assert {file.name for file in (ROOT / "benchmarks").glob("*.py")} == ELSEWHERE | set(SMALLEST)


@pytest.mark.parametrize("command", [c for c in commands_in_text() if c.startswith("python benchmarks/")])
def test_documented_options_are_the_scripts(command):
    _, script, *args = command.split()
    skip_without_what_it_needs(script.removeprefix("benchmarks/"))
    usage = run(sys.executable, script, "--help", cwd=ROOT)
    assert usage.returncode == 0, usage.stderr
    assert [option for option in args if option.startswith("--") and option not in usage.stdout] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", [pytest.param(name, marks=pytest.mark.experiment if name in LONG else ()) for name in sorted(SMALLEST)]
)
def test_script_runs_to_its_end(script):
    skip_without_what_it_needs(script)
    args, printed = SMALLEST[script]
    result = run(sys.executable, ROOT / "benchmarks" / script, *args, cwd=ROOT, PYTEST_ADDOPTS=SHORT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(printed, result.stdout)


@pytest.fixture(scope="module")
def arena():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("arena")


def test_both_limits_reach_the_other_tool(arena, pytester):
    """Given twice, the option keeps its last value: a median that nothing looks at is never red."""
    pytest.importorskip("pytest_benchmark")
    config = pytester.parseconfig(*arena.LIMITS)
    assert [limit.field for limit in config.getoption("benchmark_compare_fail")] == ["median", "min"]


REPORTED = "PASSED test_kernels.py::test_ours[add]\nFAILED test_kernels.py::test_ours[sum] - sum moved 1 MB\n"


def test_what_pytest_failed_is_red_whatever_its_status(arena):
    failed = arena.failed_by_pytest(1, REPORTED, ("add", "sum"))
    kept = arena.Tally()
    kept.add(arena.STRICT, arena.UNCHANGED, 0.0, {"add": "REGRESSED", "sum": "WITHIN"}, failed, 2.0)
    gate = importlib.import_module("gate")
    red, no_verdict = list(gate.cells(kept, arena.STRICT, ("add", "sum"), [0.0]))[:2]
    assert (red.partition(" (")[0], no_verdict) == ("1 of 2", "0")
    assert kept.failed(arena.STRICT, [arena.UNCHANGED], ("add", "sum"), 0.0) == {"WITHIN": 1, "REGRESSED": 0}


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, REPORTED), (1, REPORTED.replace("FAILED", "PASSED")), (1, REPORTED.partition("FAILED")[0]), (4, "")],
    ids=["status 0", "status 1", "no outcome", "usage error"],
)
def test_an_exit_status_that_outcomes_contradict_ends_it(arena, code, text):
    with pytest.raises(SystemExit):
        arena.failed_by_pytest(code, text, ("add", "sum"))


@pytest.mark.slow
def test_a_fleets_history_is_asked_by_card():
    skip_without_what_it_needs("history.py")
    args = ("--fleet", "--cards=8", "--runs=30", "--tests=8", "--repeat=1")
    result = run(sys.executable, ROOT / "benchmarks" / "history.py", *args, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "the card that drifts is named: GPU-0001, of 8" in result.stdout
    assert "SQL: count" in result.stdout


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("--constants", "prior 2 %"),
        ("--files", "two alike, always pooled"),
        ("--longer", "3 × the rounds"),
        ("--estimators", "mean without outliers"),
    ],
)
def test_other_tables_of_the_simulation(table, row):
    result = run(sys.executable, ROOT / "benchmarks/judge_simulation.py", table, "--trials=4", "--spread=2%", cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"| {row} | 5 |" in result.stdout
