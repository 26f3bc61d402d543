"""`pytest-bandwidth selftest` over scripted processes: rates, what is left out, what is shown, what is recommended."""

import json
import math
import os
import subprocess
import sys

import pytest
from scripted import SCRIPTED_IDENTITY, ScriptedDevice
from user_project import LINK

from pytest_bandwidth.cli import selftest, selftest_processes
from pytest_bandwidth.cli.selftest import Judge, Rates, rates, recommendation, upper_limit
from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.errors import BandwidthError, DeviceUnavailable
from pytest_bandwidth.measuring import device_lock as locking
from pytest_bandwidth.measuring.device_lock import DeviceLock
from pytest_bandwidth.measuring.progress import ConsoleProgress

BUSY = "others kept 1.2 processors busy meanwhile (make (7): 1.20 processors)"
NINE = ("selftest", "--runs=9", "--drop=10%")
TEN = ("selftest", "--runs=10", "--drop=10%")


class Processes:
    """Stand in for the fresh processes. in_place_of: by number, what happens instead of an answer without noise."""

    def __init__(self):
        self.asked = []
        self.in_place_of = {}

    def __call__(self, module, asked, *, seconds):
        assert module == "pytest_bandwidth.cli.selftest_processes"
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


@pytest.fixture
def processes(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(selftest, "open_device", lambda _: ScriptedDevice())
    monkeypatch.setattr(selftest, "TRIALS", 20)
    stand_ins = Processes()
    monkeypatch.setattr(selftest_processes, "output_of", stand_ins)
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
        "scripted device: 9 fresh processes of identical code",
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
    assert said.out.startswith("scripted device: 9 fresh processes of identical code, 1 left out\n")


def test_too_few_that_stay_end_it_at_once(command, processes):
    processes.leave_out(2, 4)
    said = command(*TEN)
    assert (said.status, said.out) == (2, "")
    assert len(processes.asked) == 4, "what comes after cannot make them enough"
    assert said.err.splitlines()[-1] == (
        f"pytest-bandwidth selftest: 2 of 10 processes left out by now, at least 9 have to stay (the last: {BUSY}): "
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
    ("arguments", "expected"),
    [
        (("--runs=8",), "--runs 8: expected 9 to 1000 processes"),
        (("--mib=0",), "--mib 0: expected 1 to 65536"),
        (("--drop=51%",), "--drop 51%: expected more than 0 % and at most 50 %"),
        (("--drop=much",), "--drop: found 'much', expected a number"),
        (("--busy-processors=nan",), "--busy-processors nan: expected more than 0 and at most 1000000"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_unusable_arguments(command, processes, arguments, expected):
    said = command("selftest", *arguments)
    assert (said.status, said.out, said.err) == (2, "", f"pytest-bandwidth selftest: {expected}{LINK}\n")
    assert processes.asked == []


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
        monkeypatch.setattr(selftest_processes, "LOCK_SECONDS", 0.3)
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
    def test_a_terminal_shows_a_bar_and_keeps_none_of_it(self, command, processes, terminal):
        processes.leave_out(6)
        terminal()
        said = command(*TEN)
        shown = said.err.split("\r\x1b[2K")
        assert f"[{'.' * 30}] 0/10" in shown
        assert any(line.startswith(f"[{'#' * 15}{'.' * 15}] 5/10, ") and line.endswith(" s left") for line in shown)
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
        ConsoleProgress(9).show("waits for process 7 (\x1b[31mred\nline)")
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
            "stays green. 20 processes make 4 independent cases: false alarms in up to 53 % of runs could have gone "
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


def test_processes_too_few_or_without_the_figure_are_refused():
    with pytest.raises(ValueError, match="8 processes, expected at least 9"):
        found(runs(*[0.8] * 8), {})
    judge = Judge(runs(*[0.8] * 5), "relative", 0.05, 3, on_host=False)
    with pytest.raises(ValueError, match="1 new processes, expected 3"):
        judge.decision([*runs(0.6, 0.6), Run(gbps=60.0)])
    with pytest.raises(ValueError, match="hold no figure to judge"):
        Judge([Run(gbps=80.0)], "relative", 0.05, 3, on_host=False)


def test_what_cannot_be_told_from_noise_is_unjudged():
    assert found(runs(*[0.8] * 9), {}, tolerance=0.01, baseline_runs=1).unjudged == 1.0
    assert found(runs(*[0.8] * 9), {}, tolerance=0.1, baseline_runs=1).unjudged == 0.0


@pytest.mark.parametrize(("events", "cases"), [(0, 1), (0, 10), (1, 20), (3, 40), (19, 20)])
def test_a_rate_at_the_limit_would_show_so_few_events_once_in_twenty(events, cases):
    limit = upper_limit(events, cases)
    few = sum(math.comb(cases, i) * limit**i * (1 - limit) ** (cases - i) for i in range(events + 1))
    assert few == pytest.approx(0.05)


def test_limits_of_nothing_seen():
    # 1 − 0.05^(1/n): the rule of three, for few cases.
    assert upper_limit(0, 2) == pytest.approx(1 - math.sqrt(0.05))
    assert upper_limit(0, 300) == pytest.approx(3 / 300, rel=0.01)
    # Where nothing went well any rate may be.
    assert upper_limit(0, 0) == upper_limit(5, 5) == 1.0
