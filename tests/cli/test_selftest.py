"""`pytest-bandwidth selftest`: over scripted processes, one of them on a scripted device, and real ones on the host."""

import json
import math
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import scripted
from children import HANGS_SECONDS, gone, wait_for
from scripted import SCRIPTED_IDENTITY, ScriptedDevice, repeat
from user_project import LINK

from pytest_bandwidth.cli import selftest
from pytest_bandwidth.cli.selftest import (
    Rates,
    answer,
    main,
    measured_triad,
    measurer_of,
    rates,
    recommendation,
    upper_limit,
)
from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.device import Conditions, Peak
from pytest_bandwidth.domain.errors import BandwidthError, DeviceUnavailable
from pytest_bandwidth.measuring import measurer as locking
from pytest_bandwidth.measuring.measurer import DeviceLock
from pytest_bandwidth.measuring.progress import ConsoleProgress

BUSY = "other processes kept 1.2 processors busy meanwhile (make (7): 1.20 processors)"
NINE = ("selftest", "--runs=9", "--drop=10%")
TEN = ("selftest", "--runs=10", "--drop=10%")


class Processes:
    """Stand in for the new processes. in_place_of: by number, what happens instead of an answer without noise."""

    def __init__(self):
        self.asked = []
        self.in_place_of = {}

    def __call__(self, module, asked, *, seconds):
        assert module == "pytest_bandwidth.cli.selftest"
        assert seconds > 0
        self.asked.append(json.loads(asked))
        do = self.in_place_of.get(len(self.asked), self.figures)
        return json.dumps(do())

    def figures(self):
        # str(drop) is what the real process writes.
        return {"runs": {str(drop): figures_at(1 - drop) for drop in (0.0, *self.asked[-1]["drops"])}}

    def leave_out(self, *numbers):
        self.in_place_of |= dict.fromkeys(numbers, lambda: {"invalid": BUSY})


def figures_at(share):
    return {"gbps": 80.0 * share, "relative": 0.8 * share, "probe_gbps": 100.0}


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def processes(monkeypatch):
    monkeypatch.setattr(selftest, "open_device", lambda _: ScriptedDevice())
    monkeypatch.setattr(selftest, "TRIALS", 20)
    stand_ins = Processes()
    monkeypatch.setattr(selftest, "output_of", stand_ins)
    return stand_ins


@pytest.fixture
def terminal(monkeypatch):
    """Standard error is a terminal's. To be called by the test, once its output is captured."""

    def watch():
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "200")

    return watch


def test_the_report_names_spread_rates_and_a_recommendation(command, processes):
    del processes
    said = command(*NINE)
    lines = said.out.splitlines()
    assert lines[:3] == [
        "scripted device: 9 new processes of identical code",
        "  GB/s               median 80.0, between-process sd 0.00 %",
        "  share of the probe median 0.80, between-process sd 0.00 %",
    ]
    assert "  judged on   tolerance  baseline runs  false alarms  unjudged  found  10 %" in lines
    assert "  relative          5 %              5        0.00 %     0.0 %      100.0 %" in lines
    assert lines[-1].startswith("Recommended: --bandwidth-tolerance=3% and --bandwidth-runs=5: drops of 10 % are found")


def test_as_json_with_every_processs_figures(command, processes):
    processes.leave_out(4)
    said = json.loads(command(*TEN, "--json").out)
    assert said.pop("schema") == 1
    assert said["device"] == "scripted device"
    assert said["runs"] == {"0.0": [figures_at(1.0)] * 9, "0.1": [figures_at(1 - 0.1)] * 9}
    assert said["left_out"] == [{"process": 4, "reason": BUSY}]
    assert set(said["rates"]) == {"relative", "gbps"}
    rows = said["rates"]["relative"]
    assert {row["tolerance"] for row in rows} == set(selftest.TOLERANCES)
    assert {row["baseline_runs"] for row in rows} == {1, 3, 5}, "with ten, nine processes leave none to judge"
    assert {row["false_alarms"] for row in rows} == {0.0}
    assert next(row for row in rows if row["tolerance"] == 0.05)["found"] == {"0.1": 1.0}


def test_an_invalid_process_is_left_out_and_said_in_a_line(command, processes):
    processes.leave_out(3)
    said = command(*TEN)
    assert said.status == 0
    assert said.err == f"pytest-bandwidth selftest: process 3 was left out: {BUSY}\n"
    assert said.out.startswith("scripted device: 9 new processes of identical code, 1 left out\n")


def test_too_few_that_stay_end_it_at_once(command, processes):
    processes.leave_out(2, 4)
    said = command(*TEN)
    assert (said.status, said.out) == (2, "")
    assert len(processes.asked) == 4, "what comes after cannot make them enough"
    assert said.err.splitlines()[-1] == (
        f"pytest-bandwidth selftest: 2 of 10 processes left out by now, at least 9 have to count (the last: {BUSY}): "
        "quiet the machine or raise --runs, or say in --busy-processors what others may use"
    )


@pytest.mark.parametrize(
    ("fault", "said_of_it"),
    [
        (
            subprocess.TimeoutExpired("python", 300),
            "a process did not measure the kernel 2 times in 300 s: try a smaller --mib or fewer of --drop",
        ),
        (BandwidthError("it ended: no room"), "a process measured nothing: it ended: no room"),
    ],
    ids=["hangs", "fails"],
)
def test_a_process_that_gives_no_answer_ends_it(command, processes, fault, said_of_it):
    def fails():
        raise fault

    processes.in_place_of[2] = fails
    said = command(*NINE)
    assert (said.status, said.out, said.err) == (2, "", f"pytest-bandwidth selftest: {said_of_it}\n")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--runs=8", "--runs: found '8', expected a whole number from 9 to 1000000"),
        ("--drop=51%", "--drop: found '51%', expected more than 0 % and at most 50 %"),
        ("--busy-processors=nan", "--busy-processors: found 'nan', expected a number of processors, more than 0"),
    ],
)
def test_unusable_arguments(command, processes, argument, expected):
    said = command("selftest", argument)
    refused = f"pytest-bandwidth selftest: argument {expected} (see --help)\n"
    assert (said.status, said.out, said.err, processes.asked) == (2, "", refused, [])


def test_what_measures_no_time_is_refused(command, processes, monkeypatch):
    monkeypatch.setattr(selftest, "open_device", lambda _: object())
    said = command("selftest", "--device=traffic")
    assert (said.status, processes.asked) == (2, [])
    assert said.err == (
        f"pytest-bandwidth selftest: --device traffic: it measures no time; expected auto, cuda, cuda:N or cpu{LINK}\n"
    )


class TestLock:
    def is_free(self):
        try:
            with DeviceLock(SCRIPTED_IDENTITY, 0.0).held():
                return True
        except DeviceUnavailable:
            return False

    def test_a_process_measures_alone_and_leaves_the_device_to_others(self, command, processes):
        free = []

        def looks():
            free.append(self.is_free())
            return processes.figures()

        processes.in_place_of = {2: looks}
        assert command(*NINE).status == 0
        assert free == [False]
        assert self.is_free()

    def test_a_device_that_stays_taken_is_blamed_on_who_holds_it_and_a_log_says_the_wait(
        self, command, processes, monkeypatch
    ):
        monkeypatch.setattr(selftest, "LOCK_SECONDS", 0.3)
        monkeypatch.setattr(locking, "LONG_WAIT_SECONDS", 0.1)
        with DeviceLock(SCRIPTED_IDENTITY, 1.0).held():
            said = command(*NINE)
        assert (said.status, said.out, processes.asked) == (2, "", [])
        waits, ended = said.err.splitlines()
        assert waits.startswith(f"pytest-bandwidth selftest: waits for process {os.getpid()} (")
        assert waits.endswith("), which measures on scripted device")
        assert ended.startswith(
            "pytest-bandwidth selftest: scripted device was not free for 0 s and is being measured by "
            f"process {os.getpid()} ("
        )
        assert ended.endswith("): wait for it or end it" + LINK.replace("usageerror", "deviceunavailable"))


class TestProgress:
    def test_a_terminal_shows_how_far_it_is_and_keeps_none_of_it(self, command, processes, terminal):
        processes.leave_out(6)
        terminal()
        said = command(*TEN)
        shown = said.err.split("\r\x1b[2K")
        assert "process 6 of 10" in shown
        assert f"pytest-bandwidth selftest: process 6 was left out: {BUSY}\n" in shown, "on a line of its own"
        assert shown[-1] == "", "the line is taken away"

    def test_the_line_is_taken_away_where_it_ends_early(self, command, processes, terminal):
        def interrupted():
            raise KeyboardInterrupt

        processes.in_place_of[3] = interrupted
        terminal()
        said = command(*NINE)
        assert said.status == 130
        assert said.err.endswith("\r\x1b[2Kinterrupted\n")

    def test_names_of_others_cannot_steer_a_terminal(self, capsys, terminal):
        terminal()
        ConsoleProgress("selftest").show("waits for process 7 (\x1b[31mred\nline)")
        odd = "\N{REPLACEMENT CHARACTER}"
        assert capsys.readouterr().err == rf"<line>waits for process 7 (\x1b[31mred{odd}line)".replace(
            "<line>", "\r\x1b[2K"
        )


class TestRecommendation:
    def test_the_smallest_tolerance_with_the_fewest_runs_that_holds(self):
        table = [
            Rates(0.02, 1, 0.006, {0.03: 1.0, 0.05: 1.0}, 0.0),  # cries wolf
            Rates(0.02, 5, 0.0, {0.03: 0.5, 0.05: 0.94}, 0.0),  # sleeps
            Rates(0.02, 10, 0.0, {0.03: 1.0, 0.05: 1.0}, 0.06),  # shrugs
            Rates(0.03, 1, 0.005, {0.03: 1.0, 0.05: 0.95}, 0.0),
            Rates(0.03, 3, 0.0, {0.03: 1.0, 0.05: 1.0}, 0.0),
        ]
        assert recommendation(table, 20) == (
            "Recommended: --bandwidth-tolerance=3% and --bandwidth-runs=1: drops of 5 % are found, identical code "
            "passes. 20 processes make 4 independent cases: false alarms in up to 53 % of runs could have gone "
            "unseen (95 % confidence); --runs lowers that."
        )

    @pytest.mark.parametrize(
        "row",
        [
            Rates(0.05, 5, 0.0, {0.10: 0.9}, 0.0),
            Rates(0.05, 5, 0.1, {0.10: 1.0}, 0.0),
            Rates(0.05, 5, 0.0, {0.05: 1.0}, 0.0),  # no larger than the tolerance: not what it is to find
        ],
        ids=["sleeps", "cries wolf", "finds what it may pass over"],
    )
    def test_none_holds(self, row):
        assert recommendation([row], 20) == (
            "Recommended: none of the tried settings finds these drops reliably without false alarms on this machine: "
            "quiet it (other users, clocks), or inject larger drops with --drop to see what it can find."
        )


def runs(*shares):
    """Processes that reached such shares of a probe of 100 GB/s."""
    return [Run(gbps=100 * share, probe_gbps=100.0, relative=share) for share in shares]


def found(same, slowed, *, tolerance=0.05, baseline_runs=5, **more):
    given = {"figure": "relative", "confirm": 3, "on_host": False, "trials": 200, **more}
    return rates(same, slowed, tolerance=tolerance, baseline_runs=baseline_runs, **given)


def test_what_cannot_be_told_from_noise_is_unjudged():
    assert found(runs(*[0.8] * 9), {}, tolerance=0.01, baseline_runs=1).unjudged == 1.0
    assert found(runs(*[0.8] * 9), {}, tolerance=0.1, baseline_runs=1).unjudged == 0.0


@pytest.mark.parametrize(("events", "cases"), [(0, 1), (1, 20), (19, 20)])
def test_a_rate_at_the_limit_would_show_so_few_events_once_in_twenty(events, cases):
    limit = upper_limit(events, cases)
    few = sum(math.comb(cases, i) * limit**i * (1 - limit) ** (cases - i) for i in range(events + 1))
    assert few == pytest.approx(0.05)
    assert upper_limit(cases, cases) == upper_limit(0, 0) == 1.0, "where nothing went well any rate may be"


ASKED = {"device": "cpu", "mib": 1, "drops": [0.05], "busy_processors": None, "turn": 1}
ELEMENTS = 2**20 // 4
IDLE = Conditions(others_processors=0.0)
BESIDE = Conditions(others=("make (7): 2.00 processors",), others_processors=2.0)
# Each measurement reads the state before its samples and after.
ALWAYS = (BESIDE,)
BUSY_ONCE = (IDLE, BESIDE, IDLE)


class Triads(ScriptedDevice):
    """Its kernels note how many elements they were launched with, and where the arrays lie."""

    def kernel(self, source):
        assert source.name == "triad_f32"
        self.launches = []
        return lambda a, b, c, scalar, n: self.launches.append(((id(a), id(b), id(c)), int(n), float(scalar)))


def answered(device, **more):
    measurer = measurer_of({**ASKED, **more})
    measurer.device = device
    return answer(measurer, {**ASKED, **more})


@pytest.mark.parametrize("drop", [0.05, 0.5])
def test_a_drop_is_more_work_in_the_same_arrays(drop):
    device = Triads()
    measurer = measurer_of(ASKED)
    measurer.device = device
    measured = measured_triad(measurer, 1, drop)
    works = device.timed.count("kernel")
    assert sum(n for _, n, _ in device.launches) == works * round(ELEMENTS / (1 - drop))
    assert max(n for _, n, _ in device.launches) == ELEMENTS, "none past the arrays' end"
    assert len({arrays for arrays, _, _ in device.launches}) == 1
    assert measured.bytes_moved == 12 * ELEMENTS, "what identical code declares"


@pytest.mark.parametrize(
    ("device", "more", "why"),
    [
        (lambda: Triads(states=BUSY_ONCE), {}, None),  # taken again
        (lambda: Triads(states=ALWAYS), {"busy_processors": 2.5}, None),
        (
            lambda: Triads(states=ALWAYS),
            {},
            "other processes kept 2.0 processors busy meanwhile (make (7): 2.00 processors)",
        ),
        (lambda: Triads(peak=Peak(1e9, "of a test")), {}, "3.15 GB/s is more than the peak of 1.00 GB/s (of a test)"),
        (
            lambda: Triads(repeat(1e-3), repeat(3e-3), peak=Peak(1e12, "of a test")),
            {},
            "300 % of the probe's bandwidth, more than 200 %, is not credible",
        ),
    ],
    ids=["busy once", "as busy as is said", "always busy", "above the peak", "an unbelievable share"],
)
def test_what_stays_invalid_says_why(device, more, why):
    found = answered(device(), **more)
    assert found["invalid"].startswith(why) if why else set(found["runs"]) == {"0.0", "0.05"}


def test_a_device_that_cannot_be_had_is_one_line_and_status_2(capsys):
    assert main(json.dumps({**ASKED, "device": "tape"})) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("device: found 'tape', expected auto, ")
    assert len(said.err.splitlines()) == 1


SELFTEST = [sys.executable, "-m", "pytest_bandwidth.cli", "selftest", "--device=cpu"]
SMALLEST = ("--runs=9", "--drop=10%", "--mib=1")
# Found by the interpreter at its start: every process measures on a scripted device, whatever the machine does. The
# self-test has no option for how often it draws, which does not matter here.
SCRIPTED = """
import random
from pytest_bandwidth.cli import selftest
from pytest_bandwidth.measuring import measurer
from scripted import ScriptedDevice, repeat

class Triads(ScriptedDevice):
    def kernel(self, source):
        return lambda *arguments: None

seconds = random.uniform(1e-4, 1.1e-4)
measurer.open_device = lambda _: Triads(repeat(seconds), repeat(seconds))
selftest.TRIALS = 20
"""
# Found by the interpreter at its start: the self-test's processes never end.
STUCK_IN_CHILDREN = """
import sys

if any("cli.selftest" in word for word in sys.orig_argv):
    import os, time
    open("pid", "w").write(str(os.getpid()))
    time.sleep(600)
"""


def in_processes(test):
    without = pytest.mark.skipif(find_spec("numba") is None, reason="kernels on the host need Numba: the extra cpu")
    return without(pytest.mark.processes(test))


@pytest.fixture
def environment(tmp_path):
    return {**os.environ, "TMPDIR": str(tmp_path)}


@in_processes
def test_from_processes_to_a_recommendation(environment, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SCRIPTED)
    folders = os.pathsep.join((str(tmp_path), str(Path(scripted.__file__).parent)))
    scripts = {**environment, "PYTHONPATH": folders}
    done = subprocess.run([*SELFTEST, *SMALLEST, "--json"], capture_output=True, text=True, env=scripts, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert {drop: len(runs) for drop, runs in said["runs"].items()} == {"0.0": 9, "0.1": 9}
    assert all(figure > 0 for runs in said["runs"].values() for run in runs for figure in run.values())
    assert said["left_out"] == []
    for rows in said["rates"].values():
        assert all(0 <= share <= 1 for row in rows for share in (row["false_alarms"], *row["found"].values()))
    assert list(tmp_path.glob("*/*.holder")) == [], "nobody holds the device"


@in_processes
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
def test_an_interrupt_leaves_no_child_and_the_device_free(environment, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(STUCK_IN_CHILDREN)
    parent = subprocess.Popen(
        [*SELFTEST, *SMALLEST],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(tmp_path / "pid")
        assert len(list(tmp_path.glob("*/*.holder"))) == 1
        parent.send_signal(signal.SIGINT)
        out, err = parent.communicate(timeout=HANGS_SECONDS)
    finally:
        parent.kill()
        parent.wait()
    assert (parent.returncode, out, err) == (130, "", "interrupted\n")
    assert gone(int((tmp_path / "pid").read_text()))
    assert list(tmp_path.glob("*/*.holder")) == []
