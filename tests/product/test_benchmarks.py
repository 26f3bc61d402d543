"""Every script under benchmarks/ runs to its end with its smallest arguments; its figures do not matter here."""

import functools
import importlib
import re
import runpy
import shutil
import sys

import pytest
from documented import ROOT, commands_in_text
from repositories import run

# Arguments that make it short, and a pattern of its output.
SMALLEST = {
    "ceiling.py": (("--rounds=1", "--mib=8"), r"\| triad \|"),
    "code_identity.py": (
        ("--repeat=1", "--indices-mib=8"),
        r"\| Numba function \|(?s:.*)indices: 8 MB in 0\.\d+ s here",
    ),
    "fleet.py": (("--cards=3", "--tests=2", "--repeat=1"), r"\| 3 \|"),
    "gate.py": (
        ("--mib=8", "--kernel=triad", "--mode=strict", "--dropped=0"),
        r"\| streams \| pytest-benchmark, min:5% \| \d of 1 ",
    ),
    "history.py": (("--runs=60", "--tests=8", "--repeat=1", "--skip-change-points"), r"SQL"),
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
    "traffic.py": (("--rounds=1", "--largest=10"), r"triad"),
}
# Measurements are valid while other processes run.
THOUGH_BUSY = "-o bandwidth_busy_processors=1000"
# By ini names: where a script turns the plugin off, its command-line options would be unknown.
SHORT = f"{THOUGH_BUSY} -o bandwidth_max_time=0.1 -o bandwidth_settle=never"
# In test_demo.py, test_make.py, test_gpu_session_script.py, browser/test_pictures.py and tests/card; the page is
# gpu.py's, the arena gate.py's.
ELSEWHERE = {"arena.py", "card_judging.py", "card_mutations.py", "demo.py", "gpu.py", "gpu_gate.py", "gpu_page.py"}
ELSEWHERE |= {"gpu_session.py", "pictures.py"}
MEASURES = ("numba", "cpu")
NEEDS = {
    **dict.fromkeys(("ceiling.py", "gate.py", "in_turn.py", "overhead.py"), MEASURES),
    "history.py": ("duckdb", "history"),
    "report.py": ("vl_convert", "report"),
    **dict.fromkeys(("code_identity.py", "traffic.py"), ("cuda.bindings", "traffic")),
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


def test_gate_counts_what_pytest_failed(arena):
    failed = arena.failed_by_pytest(1, REPORTED, ("add", "sum"))
    kept = arena.Tally()
    kept.add(arena.STRICT, arena.UNCHANGED, 0.0, {"add": "REGRESSED", "sum": "OK"}, failed, 2.0)
    gate = importlib.import_module("gate")
    red, undecided = list(gate.cells(kept, arena.STRICT, ("add", "sum"), [0.0]))[:2]
    assert (red.partition(" (")[0], undecided) == ("1 of 2", "0")
    assert kept.failed(arena.STRICT, [arena.UNCHANGED], ("add", "sum"), 0.0) == {"OK": 1, "REGRESSED": 0}


@pytest.mark.parametrize(
    ("mode", "red", "found"),
    [("OURS", "0 of 2", "1 of 2 (≥ 2.5 %), 1 passed"), ("STRICT", "1 of 2", "1 of 2 (≥ 2.5 %), 0 passed")],
    ids=["default", "strict"],
)
def test_gate_counts_undecided_by_default_and_strict(arena, mode, red, found):
    mode = getattr(arena, mode)
    undecided = {"sum"} if mode == arena.STRICT else set()
    kept = arena.Tally()
    kept.add(mode, arena.UNCHANGED, 0.0, {"add": "OK", "sum": "UNDECIDED"}, undecided, 2.0)
    kept.add(mode, arena.EDITED, 0.1, {"add": "REGRESSED", "sum": "UNDECIDED"}, {"add", *undecided}, 2.0)
    gate = importlib.import_module("gate")
    cells = list(gate.cells(kept, mode, ("add", "sum"), [0.0, 0.1]))
    assert (cells[0].partition(" (")[0], cells[1], cells[-1]) == (red, "1", found)


def test_each_edit_compiles_to_other_code(arena, tmp_path):
    arena_ = arena.Arena(tmp_path, arena.Tally(), mib=1, kernels=["scaled"], tolerance="5%")
    test = tmp_path / "test_kernels.py"
    committed = test.read_text()
    edits = []
    for _ in range(2):
        arena_.edit()
        edits.append(test.read_text())
        compile(edits[-1], str(test), "exec")
    assert len({committed, *edits}) == 3
    assert "{" not in committed.partition("def three_times")[2].partition("for i")[0]


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, REPORTED), (1, REPORTED.replace("FAILED", "PASSED")), (1, REPORTED.partition("FAILED")[0]), (4, "")],
    ids=["status 0", "status 1", "no outcome", "usage error"],
)
def test_an_exit_status_that_outcomes_contradict_ends_it(arena, code, text):
    with pytest.raises(SystemExit):
        arena.failed_by_pytest(code, text, ("add", "sum"))


def test_changes_are_looked_for_in_invented_series(monkeypatch, capsys):
    skip_without_what_it_needs("history.py")
    monkeypatch.setattr(sys, "path", list(sys.path))
    runpy.run_path(str(ROOT / "benchmarks" / "history.py"))["change_points_found"](series=2)
    rows = re.findall(r"^\| (normal|heavy-tailed \(t3\)) \| (20|50|200) \|", capsys.readouterr().out, re.MULTILINE)
    assert len(set(rows)) == 6
