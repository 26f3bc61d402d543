"""Every wrong use: one line that names the place and the remedy, never a traceback, never a pass."""

import json
import re
import signal

import pytest
from children import HANGS_SECONDS, wait_for
from filelock import FileLock
from user_project import COPY

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.options.options import declared
from pytest_bandwidth.registry import hooks

pytestmark = pytest.mark.in_process


def failures(project, *bodies):
    """The messages of test functions with these bodies, each in a file of its own, of one run."""
    head = "import numpy as np\nimport pytest\n\ndef test_wrong(bandwidth):\n"
    for number, body in enumerate(bodies):
        project.file(f"{number:02}/test_wrong.py", f"{head}{body}\n")
    result = project.run_here("--import-mode=importlib")
    result.assert_outcomes(failed=len(bodies))
    text = result.stdout.str()
    assert "Traceback" not in text
    section = text.split("= FAILURES =")[1].split("short test summary")[0].split("memory bandwidth")[0]
    each = re.split(r"^_+ test_wrong _+$", section, flags=re.MULTILINE)[1:]
    return ["\n".join(line for line in one.splitlines() if line.strip(" =_")) for one in each]


# What follows `bandwidth` in line 6, or a body's lines from there, and what is said of it.
WRONG_CALLS = [
    ("(lambda: None)", r"test_wrong\.py:6: neither reads= nor writes= is declared"),
    ("(len, [a, (i for i in a)], reads='args')", r"6: obj\[1\] is a generator, which one run"),
    ("(lambda: None, reads=-4)", r"test_wrong\.py:6: reads=-4, expected .* not negative"),
    ("(len, a, read=a)", r"test_wrong\.py:6: found read=, expected reads="),
    (
        "(len, a, reads=a, honest=True)",
        r"py:6: found honest=, expected @pytest\.mark\.bandwidth\(honest=…\)",
    ),
    (
        "(np.add, np.array([0], 'M8[s]'), 1, reads=8, check=np.add)",
        r"test_wrong\.py:6: check: found no array of numbers that the work writes or returns",
    ),
    ("(len, a, reads=a, cold=0)", r"6: cold=0, expected True or False"),
    ("(len, a, reads=a, write=a)", r"test_wrong\.py:6: found write=, expected writes="),
    (".launch(None, 1, 1, (), shared=8)", r"6: launch: found shared=, expected shared_mem="),
    (".launch(bandwidth.kernel('stream.cu', 'triad_f32'), 1, 64, a, reads=a)", r"args is a ndarray, expected a tuple"),
    (".launch(None, 1, 1, (), read=a)", r"test_wrong\.py:6: launch: found read=, expected reads="),
    ("(lambda: None, reads=0)", r"test_wrong\.py:6: .*add up to 0 bytes"),
    ("(lambda: None, reads=object())", r"test_wrong\.py:6: a builtins\.object in reads= or writes= is not an array"),
    ("(a, reads=a)", r"found an object of type ndarray, expected a callable"),
    ("(lambda: None, reads=a, flop=-1)", r"flop=-1, expected"),
    ("(lambda: None, reads=a, label='')", r"label='', expected printable text"),
    (
        "    for _ in range(2):\n        bandwidth(lambda: None, reads=a)",
        r"test_wrong\.py:7: two measurements without a label in one test",
    ),
    ("(lambda: 1 / 0, reads=8)", r"py:6: the measured callable raised ZeroDivisionError: division by zero"),
    ("(lambda: __import__('sys').exit(3), reads=8)", r"py:6: the measured callable raised SystemExit: 3$"),
    ("(len, a, reads=8, setup=lambda: __import__('sys').exit('so'))", r"py:6: setup raised SystemExit: so$"),
    (
        "(lambda: None, reads=8)\n    bandwidth.tags['n'] = np.zeros(2)",
        r"tags: found 'n': .*0.*, expected text as name, text or a number as value",
    ),
    (".random(1 << 50)", r"py:6: an array of \(1125899906842624,\) float32 needs .*: use a smaller size"),
    (".random(4, 'colour')", r"test_wrong\.py:6: .*colour"),
    (".kernel('nowhere.cu', 'k')", r"no kernel file 'nowhere\.cu' in [^,;]*, [^,;]*; shipped files are .*stream\.cu"),
    (".kernel('stream.cu', 'triad_f31')", r"stream\.cu has no kernel 'triad_f31', it has .*triad_f32"),
    (".kernel('__device__ int one() { return 1; }  // on one line')", r"py:6: the source text holds no kernel: name "),
]


def test_wrong_calls(project):
    bodies = (call if call.startswith("    ") else f"    bandwidth{call}" for call, _ in WRONG_CALLS)
    messages = failures(project, *(f"    a = bandwidth.random(64)\n{body}" for body in bodies))
    for (_, expected), message in zip(WRONG_CALLS, messages, strict=True):
        assert re.search(expected, message), message
        assert len(message.splitlines()) == 1, message


WRONG_MARKERS = [
    ("min_gpbs=3", r"bandwidth marker: found 'min_gpbs', expected one of min_gbps, min_utilization"),
    ("3", r"found 3, expected keywords only"),
    ("tolerance=5", r"tolerance: found '5', expected a fraction below 1 or a percentage such as 5%"),
    ("tolerance=None", r"tolerance=None, expected a number or text"),
    ("min_gbps='3 parsecs'", r"min_gbps: found unit 'parsecs'"),
    ("judged_on='speed'", r"judged_on: found 'speed', expected relative or gbps"),
    ("min_utilization=200", r"min_utilization: found '200', expected a fraction below 1 or a percentage such as 5%"),
    ("min_relative='2000%'", r"min_relative: found '2000%', expected a share of the probe, .*, of 200% at most"),
    ("max_time=0", r"max_time: found '0', expected seconds"),
]


def test_wrong_markers(project):
    for number, (marker, _) in enumerate(WRONG_MARKERS):
        text = f"@pytest.mark.bandwidth({marker})\ndef test_wrong(bandwidth):\n    bandwidth(int, reads=1)\n"
        project.file(f"test_{number}.py", f"import pytest\n{text}")
    # As the wrong ones a line, though it is found once something was measured.
    floor = COPY.replace("def test", "import pytest\n@pytest.mark.bandwidth(min_utilization=0.5)\ndef test")
    project.file("test_floor.py", floor)
    result = project.run_here()
    result.assert_outcomes(errors=len(WRONG_MARKERS), failed=1)
    result.stdout.re_match_lines([r".*min_utilization asks for a share of the peak, and the peak of .* is unknown.*"])
    text = result.stdout.str()
    assert [expected for _, expected in WRONG_MARKERS if not re.search(expected, text)] == []
    assert "Traceback" not in text


WRONG_VALUES = {
    "device=gpu": r"found 'gpu', expected auto, cuda, cuda:N, cpu, tinygrad:METAL, traffic or traffic",
    "history=memory://h": r"found 'memory://h', which ends with this process",
    "tolerance=5": r"found '5', expected .* such as 5%",
    "max_time=-1": r"found '-1', expected seconds",
    "min_samples=many": r"found 'many', expected a whole number",
    "precision=0": r"found '0', expected more than 0 %",
    "pairs=3": r"found '3', expected a whole number from 4 to",
    "commit=3f2c1ab": r"found '3f2c1ab', expected a commit's full hash",
    "settle=unsure": r"found 'unsure', expected changed or never",
    "utilization_classes=80% 60%": r"expected three falling shares such as '80% 60% 35%'",
    "utilization_classes=35% 60% 80%": r"expected three falling shares",
    "device_tolerance=0": r"found '0', expected more than 0 %",
}
NEEDS_BASELINE = "needs --bandwidth-baseline=PATH to write to"
WRONG_OPTIONS = {
    "--bandwidth-tolerance=5": r"ERROR: --bandwidth-tolerance: found '5', expected .* such as 5%",
    "--bandwidth-baseline=none.yaml": r"no baseline file .*none\.yaml: check --bandwidth-baseline",
    "--bandwidth-update": f"ERROR: --bandwidth-update {NEEDS_BASELINE}",
    "--bandwidth-update-new": f"ERROR: --bandwidth-update-new {NEEDS_BASELINE}",
    "--bandwidth-update --bandwidth-update-new --bandwidth-baseline=b.yaml": (
        "--bandwidth-update and --bandwidth-update-new exclude each other"
    ),
    "--bandwidth-against=anchor": r"--bandwidth-against=anchor needs --bandwidth-baseline: .*anchors",
    "--bandwidth-runs=5": r"--bandwidth-runs needs --bandwidth-update",
}


def test_wrong_options(project):
    for given, expected in WRONG_VALUES.items():
        name, _, text = given.partition("=")
        with pytest.raises((ValueError, UsageError), match=expected):
            declared(hooks())[name].parse(text)
    project.file("test_copy.py", COPY)
    for option, expected in WRONG_OPTIONS.items():
        result = project.run_here(*option.split())
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert re.search(expected, result.stderr.str()), result.stderr.str()
        assert "Traceback" not in result.stderr.str() + result.stdout.str()


ENDED = """
import numpy as np
import pytest

kept = []

@pytest.fixture
def late(bandwidth):
    kept.append(bandwidth)
    yield
    bandwidth(np.sum, np.ones(9), reads=72)

def test_early(late):
    pass

def test_another():
    kept[0](np.sum, np.ones(9), reads=72)
"""


def test_a_fixture_whose_test_has_ended_measures_nothing(project):
    project.file("test_ended.py", ENDED)
    result = project.run_here("-p", "no:randomly")
    result.assert_outcomes(passed=1, errors=1, failed=1)
    has_ended = "the test of this bandwidth fixture has ended, so nothing can be judged: measure in the test"
    # A test that asks for the fixture is told in one line; one that does not is pytest's own to report.
    result.stdout.fnmatch_lines([f"test_ended.py:11: {has_ended}*"])
    assert result.stdout.str().count(has_ended) > 1
    assert "bandwidth.py" in result.stdout.str()


NOTHING_TO_JUDGE = """
import pytest

@pytest.mark.bandwidth(min_gbps=5)
def test_marked(bandwidth):
    bandwidth.random(4)

def test_arrays_only(bandwidth):
    bandwidth.random(4)

@pytest.mark.parametrize(
    "call",
    [
        lambda bandwidth: bandwidth(len, [], reads=-1),
        lambda bandwidth: bandwidth.launch(None, 1, 1, (), reads=8),
        lambda bandwidth: bandwidth.compare({"a": 1, "b": 2}, reads=8),
    ],
)
def test_caught(bandwidth, call):
    try:
        call(bandwidth)
    except Exception:
        pass

@pytest.mark.bandwidth(min_gbps=5)
def test_unasked():
    pass

@pytest.mark.bandwidth(min_gbps=5)
class TestMany:
    def test_other(self):
        pass
"""
WHY_NOTHING = {
    "marked bandwidth, and measured nothing: there is nothing to judge": 1,
    "called bandwidth, caught its error, and measured nothing: there is nothing to judge; let it raise": 3,
    "marked bandwidth, and does not take the fixture `bandwidth`: there is nothing to judge; take it, or remove the "
    "marker": 1,
}


def test_what_leaves_nothing_to_judge_fails_with_strict(project):
    project.file("test_nothing.py", NOTHING_TO_JUDGE)
    project.run_here("--bandwidth-disable").assert_outcomes(passed=7)
    result = project.run_here("--bandwidth-strict")
    result.assert_outcomes(passed=2, failed=5)
    assert {said: result.outlines.count(said) for said in WHY_NOTHING} == WHY_NOTHING


def test_outcomes_of_pytest_keep_their_meaning_in_a_callable(project):
    call = "bandwidth(lambda: getattr(pytest, end)('no'), reads=8)"
    ends = "@pytest.mark.parametrize('end', ['skip', 'fail', 'xfail'])"
    project.file("test_own.py", f"import pytest\n{ends}\ndef test_own(bandwidth, end):\n    {call}\n")
    result = project.run_here("-rsxf")
    result.assert_outcomes(skipped=1, failed=1, xfailed=1)
    assert "the measured callable raised" not in result.stdout.str()


def test_pytest_exit_and_ctrl_c_in_a_callable_end_the_run(project):
    text = "import pytest\ndef test_own(bandwidth):\n    def call():\n        {}\n    bandwidth(call, reads=8)\n"
    project.file("test_own.py", text.format("pytest.exit('enough', returncode=7)"))
    result = project.run_here()
    assert result.ret == 7
    result.stdout.fnmatch_lines(["*Exit: enough*"])
    project.file("test_own.py", text.format("raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        project.run_here()


@pytest.mark.processes
def test_ctrl_c_while_measuring_leaves_no_lock_and_no_half_written_file(project, monkeypatch):
    locks = project.path / "locks"
    locks.mkdir()
    monkeypatch.setenv("TMPDIR", str(locks))
    # Closed by name: what a file is told while it is closed for being used no more, Python keeps to itself.
    text = "def test_own(bandwidth):\n    bandwidth(lambda: Path('measured').write_text('once'), reads=8)\n"
    project.file("test_own.py", f"from pathlib import Path\n\n{text}")
    process = project.start("--bandwidth-max-time=600", "--bandwidth-json=run.json")  # warms up for half a minute
    wait_for(project.path / "measured")
    (holder,) = locks.glob("*/*.holder")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=HANGS_SECONDS)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    assert "KeyboardInterrupt" in said
    assert not holder.exists()
    for kind in (".lock", ".line"):
        FileLock(holder.with_suffix(kind)).acquire(timeout=0).lock.release()
    left = [path for path in project.path.iterdir() if "run" in path.name]
    assert [json.loads(path.read_text())["results"] for path in left if path.name == "run.json"] == [[]] * len(left)


def test_a_bad_value_is_blamed_on_where_it_was_given(project):
    by_option = project.run_here("-o", "bandwidth_lock_timeout=soon")
    assert by_option.ret == pytest.ExitCode.USAGE_ERROR
    by_option.stderr.fnmatch_lines(["ERROR: -o bandwidth_lock_timeout: found 'soon', expected *"])
    ini = project.file("pytest.ini", "[pytest]\nbandwidth_busy_processors = soon\n")
    by_file = project.run_here("-o", "bandwidth_tolerance=3%")
    by_file.stderr.fnmatch_lines([f"ERROR: bandwidth_busy_processors in {ini}: found 'soon', expected *"])


FROZEN = """
import time

def test_frozen(bandwidth, monkeypatch):
    for name in ("time", "monotonic", "perf_counter", "perf_counter_ns"):
        monkeypatch.setattr(time, name, lambda: 0)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    x = bandwidth.random(1 << 20)
    assert bandwidth(x.sum, reads=x).seconds > 0
"""


@pytest.mark.processes
def test_a_test_that_stops_the_clock_is_measured_by_the_real_one(project):
    project.file("test_clock.py", FROZEN)
    said, _ = project.start("test_clock.py").communicate(timeout=HANGS_SECONDS)
    assert "1 passed" in said, said
