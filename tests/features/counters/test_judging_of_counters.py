"""What DRAM moved beside what was declared and what the baseline's runs moved: at the limits themselves."""

from dataclasses import replace

import pytest

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import Measurement, Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.features.counters.dram_traffic import CountersFailed, DramTraffic
from pytest_bandwidth.features.counters.evidence import (
    RULE_DRAM,
    RULE_UNCOUNTED,
    declared_otherwise,
    judged_by_counts,
    judged_without_counts,
)
from pytest_bandwidth.judging.decide import continued
from pytest_bandwidth.judging.judge import Judged

MB = 10**6
CACHE = 10 * MB
GPU = DeviceIdentity("cuda", "GPU", 2**30, "GPU-0", {}, {"last_cache_bytes": CACHE}, timed_on="gpu")
DECLARED = Traffic(200 * MB, 100 * MB)
FINE = Decision(Status.OK, Rule.PAIRS)


def moved(read: float, written: float) -> DramTraffic:
    return DramTraffic(round(read * MB), round(written * MB), "ncu")


def judged(*counts: tuple[int, int], decision: Decision = FINE) -> Judged:
    runs = tuple(Run(1.0, dram_read=read * MB, dram_written=written * MB) for read, written in counts)
    entry = Entry("test", gbps=1.0, runs=(*runs, Run(1.0)))
    return Judged(Measurement(None, DECLARED, GPU, "events", Rounds()), entry, decision)


def shown_by(found: Judged) -> DramTraffic:
    dram = found.measurement.detail["dram"]
    return DramTraffic(dram["bytes_read"], dram["bytes_written"], dram["counted_by"])


def never() -> DramTraffic:
    raise AssertionError("nothing is counted again")


@pytest.mark.parametrize(
    ("read", "written", "said"),
    [
        (204, 100, None),
        (196, 100, None),
        (
            204.1,
            100,
            "declared 300 MB, DRAM moved 304 MB (1.01×): 4.1 MB more read; data read again after it left the cache, ",
        ),
        (195, 100, "(0.98×): 5 MB less read"),
        (200, 112, None),
        (200, 88, None),
        (200, 112.1, "12.1 MB more written; partial lines, or undeclared writes"),
        (200, 80, "(0.93×): 20 MB less written"),
        (250, 150, "or undeclared reads, 50 MB more written"),
    ],
)
def test_reads_are_held_strictly_and_writes_with_what_the_cache_holds(read, written, said) -> None:
    finding = declared_otherwise(DECLARED, moved(read, written), CACHE)
    assert (finding is None) == (said is None)
    if finding is not None:
        assert finding.code == "dram-differs"
        assert said in finding.text


def test_of_what_is_declared_as_nothing_a_share_of_all_is_let_pass() -> None:
    assert declared_otherwise(Traffic(100 * MB, 0), moved(100, 1), 0) is None
    assert declared_otherwise(Traffic(0, 100 * MB), moved(2.1, 100), 0) is not None
    assert declared_otherwise(Traffic(0, 0), moved(1, 0), 0) is not None


@pytest.mark.parametrize(
    ("counts", "now", "reason"),
    [
        ([(200, 100)], (204, 110), None),
        ([(200, 100)], (204.1, 100), "DRAM read 200 MB → 204 MB (+2.0 %, allowed 204 MB)"),
        # One count tells nothing of what stays in the cache; three do.
        ([(200, 100)], (200, 112), None),
        ([(200, 100)], (200, 112.1), "DRAM wrote 100 MB → 112 MB (+12.1 %, allowed 112 MB)"),
        ([(200, 100)] * 3, (200, 102), None),
        ([(200, 100)] * 3, (200, 102.1), "DRAM wrote 100 MB → 102 MB (+2.1 %, allowed 102 MB)"),
        # What the runs themselves show.
        ([(200, 100), (180, 100), (200, 100)], (220, 100), None),
        ([(200, 100), (180, 100), (200, 100)], (221, 100), "DRAM read 200 MB → 221 MB (+10.5 %, allowed 220 MB)"),
        ([(0, 100)], (1, 100), "DRAM read 0 B → 1 MB (allowed 0 B)"),
        ([(200, 100)], (100, 50), None),
        ([], (900, 900), None),
    ],
)
def test_a_rise_past_the_runs_is_a_regression(counts, now, reason) -> None:
    found = judged_by_counts(judged(*counts), moved(*now), None, (lambda: moved(*now)) if reason else never)
    assert shown_by(found) == moved(*now)
    if reason is None:
        assert found.decision == FINE
    else:
        assert (found.decision.status, found.decision.rule) == (Status.REGRESSED, RULE_DRAM)
        assert found.decision.facts == {"text": reason, "about": "DRAM bytes"}


@pytest.mark.parametrize(
    ("first", "again", "shown"),
    [
        ((300, 100), (203, 100), (203, 100)),
        # Reads past what is allowed, then not, while more of the written bytes had left the cache.
        ((206, 90), (203, 105), (203, 105)),
        ((206, 90), (203, 140), (206, 90)),
    ],
)
def test_what_rose_in_one_of_two_counts_alone_is_no_regression(first, again, shown) -> None:
    found = judged_by_counts(judged((200, 100)), moved(*first), None, lambda: moved(*again))
    assert (found.decision, shown_by(found)) == (FINE, moved(*shown))


def test_a_second_count_that_fails_confirms_nothing() -> None:
    def fails() -> DramTraffic:
        raise CountersFailed("no ncu")

    found = judged_by_counts(judged((200, 100)), moved(300, 100), None, fails)
    assert found.decision == FINE
    assert [finding.code for finding in found.measurement.findings] == ["dram-uncounted", "dram-differs"]


@pytest.mark.parametrize("status", [Status.UNDECIDED, Status.OK, Status.IMPROVED])
def test_counts_judge_where_time_cannot(status: Status) -> None:
    of_time = Decision(status, "x")
    found = judged_by_counts(judged((200, 100), decision=of_time), moved(300, 100), None, lambda: moved(300, 100))
    assert found.decision.status is Status.REGRESSED


@pytest.mark.parametrize("status", [Status.REGRESSED, Status.MISMATCH])
def test_what_fails_already_keeps_its_reason(status: Status) -> None:
    of_time = Decision(status, "x")
    found = judged_by_counts(judged((200, 100), decision=of_time), moved(300, 100), 1.1, lambda: moved(300, 100))
    assert found.decision == of_time
    assert "dram" in found.measurement.detail
    assert [finding.code for finding in found.measurement.findings] == ["dram-differs", "dram-risen"]
    assert "max_dram_ratio is 1.1" in found.measurement.findings[1].text


def test_an_entry_that_is_written_or_not_comparable_is_held_to_the_marker_alone() -> None:
    writes, other = (judged((200, 100), decision=Decision(status, "x")) for status in (Status.SAVED, Status.MISMATCH))
    for of_no_baseline in (writes, other):
        found = judged_by_counts(of_no_baseline, moved(400, 100), None, never)
        assert found.decision == of_no_baseline.decision
        assert [finding.code for finding in found.measurement.findings] == ["dram-differs"]
    assert judged_by_counts(writes, moved(400, 100), 1.5, lambda: moved(400, 100)).decision.status is Status.REGRESSED
    assert judged_by_counts(writes, moved(350, 100), 1.5, never).decision.status is Status.SAVED


def test_uncounted_is_a_finding_and_fails_only_what_asked_for_counts() -> None:
    error = CountersFailed("no ncu")
    free, held = (judged_without_counts(judged((200, 100)), error, most) for most in (None, 1.1))
    assert free.decision == FINE
    assert free.measurement.findings[0].text == "DRAM was not counted: no ncu"
    assert (held.decision.status, held.decision.rule) == (Status.UNDECIDED, RULE_UNCOUNTED)
    assert held.decision.facts["text"] == "max_dram_ratio cannot be checked: no ncu"
    assert not held.measurement.findings
    undecided = judged((200, 100), decision=Decision(Status.UNDECIDED, Rule.NO_BASELINE))
    kept = judged_without_counts(undecided, error, 1.1)
    assert kept.decision == undecided.decision
    assert [finding.text for finding in kept.measurement.findings] == ["DRAM was not counted: no ncu"]


def test_the_old_code_counted_here_stands_in_for_the_entrys_runs() -> None:
    """Those of another device's baseline are not this one's."""
    of_code = judged()
    assert judged_by_counts(of_code, moved(204, 110), None, never, moved(200, 100)).decision == FINE
    found = judged_by_counts(of_code, moved(300, 100), None, lambda: moved(300, 100), moved(200, 100))
    assert found.decision.status is Status.REGRESSED
    assert found.decision.facts["text"] == (
        "DRAM read 200 MB → 300 MB (+50.0 %, allowed 204 MB); the old kernel was counted here"
    )


def test_an_update_that_moves_other_bytes_forgets_the_old_counts_and_no_run() -> None:
    old = tuple(Run(1.0, dram_read=200 * MB, dram_written=100 * MB) for _ in range(3))
    assert continued(old, [Run(1.0, dram_read=203 * MB, dram_written=100 * MB)]) == old
    assert continued(old, [Run(1.0)]) == old
    for read in (150, 250):
        found = continued(old, [Run(1.0, dram_read=read * MB, dram_written=100 * MB)])
        assert found == tuple(replace(run, dram_read=None, dram_written=None) for run in old)
