"""Every sentence that a verdict needs: each rule has one, first lines say what failed, and a message stays short."""

from dataclasses import replace

import pytest
from judged_kernels import FIVE, KEY, measured, processes
from judged_kernels import decided as decide_one

from pytest_bandwidth.domain import errors
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.measured import validity
from pytest_bandwidth.domain.measured.measurement import HELD_UP, RUN_DELAY
from pytest_bandwidth.domain.text import DOCUMENTATION
from pytest_bandwidth.domain.verdict import NO_NUMBERS, Decision, Numbers, Rule, Status
from pytest_bandwidth.judging.decide import COSTS
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.outcomes.outcome import outcome_of
from pytest_bandwidth.outcomes.run_findings import DeviceLoss
from pytest_bandwidth.reports.wording import (
    MOST_LINES,
    Context,
    detail_of,
    device_sentence,
    failure_message,
    message_lines,
    reason_of,
    title_of,
    with_help,
)

RULES = {name: rule for name, rule in vars(Rule).items() if name.isupper()}
STORED = Numbers(
    *("relative", 0.67, 0.9),
    tolerance=0.05,
    drop=0.255,
    allowed_drop=0.05,
    detects=0.066,
    spread=0.01,
    degrees=9,
    runs=5,
    confirmations=(0.66, 0.67),
)
PAIRS = Numbers(
    *("gbps", 20.1, 26.7),
    tolerance=0.03,
    drop=0.255,
    low=0.251,
    high=0.258,
    allowed_drop=0.03,
    detects=0.03,
    spread=0.004,
    degrees=3,
    runs=4,
)
CHANGES = (("store_sectors", 100, 104), ("load_sectors", 8192, 65536))
OLD = {"by": Rule.PAIRS, "other": "commit 3f2c1ab"}


def of(status, rule, numbers=NO_NUMBERS, **facts):
    return Decision(Status[status], rule, numbers, facts)


def mismatch(rule, name, here, there):
    return of("MISMATCH", rule, name=name, here=here, there=there)


EXACT = Numbers(tolerance=0.0)
BELOW = Numbers(observed=80.0, reference=90.0)
NO_PROBE = "cannot be {}: no credible probe ran with the kernel; judged_on=gbps needs none"
AS_IN_BASELINE = "(code unchanged): code, launch and inputs are as in the baseline"
# One decision of each rule and status, with its first line behind the verdict's name.
SAID = [
    (of("SAVED", Rule.WRITTEN), ": this run saves the entry"),
    (of("OK", Rule.FLOORS), " (floors met): every floor of the marker is met"),
    (of("OK", Rule.CODE_UNCHANGED, replace(STORED, drop=-0.02)), f" {AS_IN_BASELINE}; 2.0 % faster than its figures"),
    (
        of("OK", Rule.CODE_UNCHANGED, replace(STORED, drop=0.2)),
        f" {AS_IN_BASELINE}; 20.0 % slower than its figures: the device or other input data may be the cause (values "
        "of floats are not hashed)",
    ),
    (of("OK", Rule.CODE_UNCHANGED, revision="main"), " (code unchanged): code, launch and inputs are as in main"),
    (of("OK", Rule.CODE_UNCHANGED), f" {AS_IN_BASELINE}"),
    (of("REGRESSED", Rule.PAIRS, PAIRS, **OLD), ": 25.5 % slower than the old code (tolerance 3.0 %)"),
    (
        of("REGRESSED", Rule.OLD_KERNEL, replace(PAIRS, drop=0.025, high=0.041), **OLD),
        ": 2.5 % slower than the old code, and up to 4.1 % (tolerance 3.0 %)",
    ),
    (
        of("REGRESSED", Rule.OLD_KERNEL, PAIRS, **OLD, floor_seconds=3.4e-6, floor_share=0.4),
        ": 25.5 % slower than the old code, overhead of 3.4 µs excluded (tolerance 3.0 %)",
    ),
    (
        of("REGRESSED", Rule.OLD_KERNEL, PAIRS, **OLD, floor_seconds=3.4e-6, floor_share=0.05),
        ": 25.5 % slower than the old code (tolerance 3.0 %)",
    ),
    (
        of("IMPROVED", Rule.PAIRS, replace(PAIRS, drop=-0.1), **OLD),
        ": 10.0 % faster than the old code (tolerance 3.0 %)",
    ),
    (
        of("OK", Rule.OLD_KERNEL, replace(PAIRS, drop=0.001, high=0.004), **OLD),
        " (costs at most 0.4 %): costs at most 0.4 %: 0.1 % slower than the old code",
    ),
    (of("REGRESSED", Rule.STORED, STORED), ": 25.5 % slower than the baseline (tolerance 5.0 %)"),
    (
        of("OK", Rule.STORED, replace(STORED, drop=0.01)),
        " (within the tolerance): 1.0 % slower than the baseline (tolerance 5.0 %)",
    ),
    (of("IMPROVED", Rule.STORED, replace(STORED, drop=-0.1)), ": 10.0 % faster than the baseline (tolerance 5.0 %)"),
    (
        of("OK", Rule.NOT_REPRODUCED, STORED, first_drop=0.111),
        " (slow once, not reproduced): 11.1 % slower here, normal in 2 re-runs",
    ),
    (
        of("UNDECIDED", Rule.NOT_RERUN, STORED, why="exit status 4;\n  many\n  no such option"),
        " (could not re-run): 25.5 % slower than the baseline, and new processes could not confirm it: "
        "exit status 4; no such option",
    ),
    (
        of("UNDECIDED", Rule.NOT_RERUN, BELOW, floor="min_gbps", why="x"),
        " (could not re-run): 80.0 GB/s is below min_gbps, 90.0 GB/s, and new processes could not confirm it: x",
    ),
    (
        of("UNDECIDED", Rule.TOO_NOISY, STORED, by=Rule.STORED, runs_needed=8),
        " (too noisy): slowdowns below 6.6 % cannot be detected, the tolerance is 5.0 %",
    ),
    (
        of("REGRESSED", "floor:min_gbps", replace(BELOW, confirmations=(79.0, 80.0))),
        ": 80.0 GB/s is below min_gbps, 90.0 GB/s",
    ),
    (
        of("REGRESSED", "floor:min_relative", Numbers(observed=0.85, reference=0.9)),
        ": 85.0 % of the probe is below min_relative, 90.0 % of the probe",
    ),
    (
        of("REGRESSED", "floor:max_registers", Numbers(observed=72, reference=64)),
        ": 72 registers a thread exceed max_registers, 64",
    ),
    (
        of("UNDECIDED", "floor:max_spill_bytes"),
        " (limit): max_spill_bytes cannot be checked: registers and stack of this code are not known (they are known "
        "for CUDA C++, machine code and Triton's kernels)",
    ),
    (of("REGRESSED", Rule.COUNTS, EXACT, changes=CHANGES), ": 8× more sectors loaded than the baseline"),
    (of("REGRESSED", Rule.COUNTS, EXACT, changes=CHANGES[:1]), ": sectors stored 100 → 104 (+4.0 %)"),
    (of("REGRESSED", Rule.COUNTS, EXACT, changes=(("bank_conflicts", 0, 3),)), ": bank conflicts 0 → 3"),
    (of("IMPROVED", Rule.COUNTS, EXACT, changes=(("load_sectors", 100, 25),)), ": sectors loaded 100 → 25, 0.25×"),
    (
        of("OK", Rule.COUNTS, Numbers(tolerance=0.03), changes=(("load_sectors", 100, 103),)),
        " (counts): no count is worse by more than 3.0 %",
    ),
    (of("OK", Rule.COUNTS, EXACT), " (counts): no count has changed"),
    (
        of("MISMATCH", Rule.LESS_WORK, change=("distinct_bytes_read", 100, 50, 100)),
        ": distinct bytes read 100 → 50, of 100 declared: a part of the work is not done",
    ),
    (
        of("UNDECIDED", Rule.UNGATED, lacks=("load_sectors", "store_sectors")),
        " (counts missing): the entry has no load_sectors and no store_sectors: these counts are not judged",
    ),
    (
        of("UNDECIDED", Rule.UNGATED, uncounted=("load_sectors",)),
        " (counts missing): counted no sectors loaded, which the entry has",
    ),
    (of("REGRESSED", "dram", text="DRAM read 200 MB → 300 MB", about="DRAM bytes"), ": DRAM read 200 MB → 300 MB"),
    (of("UNDECIDED", "uncounted", text="no ncu", about="DRAM not counted"), " (DRAM not counted): no ncu"),
    (mismatch(Rule.BYTES, "bytes_read", 1000, 500), ": bytes_read is 1,000 (1 kB), was 500 (500 B)"),
    (mismatch(Rule.METHOD, "method", "events", "clock"), ": method is events, was clock"),
    (mismatch("setting:ecc", "ecc", "on", "off"), ": ecc is on, was off"),
    (of("UNDECIDED", Rule.NO_PROBE), f" (no probe): the share of the probe {NO_PROBE.format('compared')}"),
    (of("UNDECIDED", Rule.NO_PROBE, floor="min_relative"), f" (no probe): min_relative {NO_PROBE.format('checked')}"),
    (
        of("UNDECIDED", Rule.UNSTEADY, compared=1, uneven=4, other="main"),
        " (disturbed): only 1 pair can be compared with main: in 4 others the probe's GB/s differed "
        "by more than 10 % between both processes",
    ),
    (of("UNDECIDED", Rule.NO_BASELINE), " (no baseline): no baseline was given: measured only"),
    (of("UNDECIDED", Rule.NO_ENTRY, path="b.yaml"), " (no entry): b.yaml has no entry of this test"),
    (
        of("UNDECIDED", Rule.NO_ENTRY, path="b.yaml", name="test_t @ copi", others=["test_t @ copy", "test_t @ add"]),
        " (no entry): b.yaml has no entry 'test_t @ copi', it has 'test_t @ copy', 'test_t @ add'",
    ),
    (
        of("UNDECIDED", Rule.NO_ENTRY, path="b.yaml", code_of="That card"),
        " (no entry): b.yaml, the baseline of That card, has no code of this test",
    ),
    (
        of("UNDECIDED", Rule.EMPTY_ENTRY, lacks="bandwidth"),
        " (empty entry): the baseline's entry has no bandwidth and no runs",
    ),
    (
        of("UNDECIDED", Rule.CODE_ALONE, code_of="That card"),
        " (other device's baseline): the baseline is of That card, and it has other code for this test",
    ),
    (
        of("UNDECIDED", Rule.NOT_THERE, revision="main"),
        " (no old measurement): there is no measurement of main to compare with",
    ),
    (of("UNDECIDED", Rule.NOT_WRITTEN, text="interrupted"), " (not saved): interrupted"),
    (of("UNDECIDED", Rule.NOTHING_VALID, text="the reference"), " (disturbed): the reference measured nothing valid"),
    (of("OK", Rule.LEFT_OUT, text="not updated"), " (left out): not updated"),
    (
        of("UNDECIDED", "others", text="other processes kept 0.9 processors busy"),
        " (disturbed): other processes kept 0.9 processors busy",
    ),
    (of("MISMATCH", Rule.OUT_OF_BOUNDS, text="a write out of bounds: …"), ": a write out of bounds: …"),
    (of("MISMATCH", "faster-than-light", text="5200 GB/s is more than the peak"), ": 5200 GB/s is more than the peak"),
]
DECISIONS = [(decision, f"{decision.status}{rest}") for decision, rest in SAID]


@pytest.mark.parametrize(("decision", "first"), DECISIONS, ids=[f"{d.status} {d.rule}" for d, _ in DECISIONS])
def test_the_first_line_is_verdict_number_and_limit_and_the_last_a_link(decision, first):
    assert title_of(decision) == first
    message = failure_message(Judged(measured(80.0), FIVE.entries[KEY], decision)).splitlines()
    assert message[0] == first
    anchor = decision.rule.partition(":")[0].replace("_", "-")  # all floors and all settings have one place
    assert message[-1].split() == ["help", f"{DOCUMENTATION}/troubleshooting.html#{anchor}"]


def test_each_rule_has_a_sentence():
    assert {decision.rule for decision, _ in DECISIONS} >= set(RULES.values())
    assert len(set(RULES.values())) == len(RULES)


VALIDITY = [
    *(validity.CLOCK, validity.FASTER_THAN_LIGHT, validity.ABOVE_PROBE, validity.NO_WORK, validity.OTHERS),
    *(RUN_DELAY, HELD_UP, "no-samples"),
]


@pytest.mark.parametrize("rule", [*RULES.values(), *VALIDITY, "floor:min_gbps", "setting:ecc"])
@pytest.mark.parametrize("status", list(Status))
def test_each_rule_and_each_validity_code_has_a_detail(status, rule):
    detail = detail_of(status, rule, {"high": 0.01})
    assert (detail == "") is (status is Status.SAVED and rule == Rule.WRITTEN)
    assert detail == detail.strip()
    assert len(detail) <= 30


def test_details_of_costs_and_of_impossible_figures():
    impossible = (validity.CLOCK, validity.FASTER_THAN_LIGHT, validity.NO_WORK)
    assert {detail_of(Status.MISMATCH, code, {}) for code in impossible} == {"impossible figure"}
    assert detail_of(Status.MISMATCH, "work:stale-result", {}) == "stale result"
    assert detail_of(Status.OK, Rule.PAIRS, {"high": -0.02}) == "costs at most 0.0 %"
    assert detail_of(Status.OK, Rule.PAIRS, {}) == "time"


LONG = Context(
    causes=("registers 32 → 96", "grid 4,096 → 8,192"),
    command=f"pytest '{KEY}' --bandwidth-update",
    place="tests/test_a.py:9",
)


def with_every_row(decision):
    lines = [{"file": "k.cu", "line": n, "loads": access(n)} for n in (6, 7)]
    now = replace(measured(20.1), detail={"lines": lines})
    facts = {**decision.facts, "pattern": "loads coalesced", "same_code": True}
    if decision.rule == Rule.COUNTS:
        facts["changes"] = tuple((name, 100, 101 + number) for number, name in enumerate(COSTS))
    whole = replace(decision, facts=facts, why_not=("no old kernel", "its commit\nis gone", "a third"))
    return failure_message(Judged(now, FIVE.entries[KEY], whole, profile="profiles/test_copy.ncu-rep"), LONG)


def access(number):
    return {
        "requests": 1,
        "sectors": 100 * number,
        "sectors_per_request": 32.0,
        "coalescing": 0.5,
        "pattern": "strided",
    }


@pytest.mark.parametrize("decision", [d for d, _ in DECISIONS], ids=[f"{d.status} {d.rule}" for d, _ in DECISIONS])
def test_a_message_has_at_most_twelve_lines_and_the_place_last(decision):
    message = with_every_row(decision).splitlines()
    assert len(message) <= MOST_LINES
    assert message[-1] == f"tests/test_a.py:9: {decision.status}"
    assert all(line == f"    {line[4:]}" and line[4] != " " for line in message[1:-1])


def test_facts_are_aligned_this_against_that():
    decision = of("REGRESSED", Rule.PAIRS, PAIRS, **OLD)
    assert failure_message(Judged(measured(20.1, 26.6), FIVE.entries[KEY], decision), LONG) == (
        "REGRESSED: 25.5 % slower than the old code (tolerance 3.0 %)\n"
        "    measured      moved 1 GB in 49.8 ms: 20.1 GB/s (75.6 % of the probe's 26.6 GB/s)\n"
        "    this code     20.1 GB/s\n"
        "    old code      26.7 GB/s (commit 3f2c1ab, 4 pairs, ± 0.4 %)\n"
        "    likely cause  registers 32 → 96; grid 4,096 → 8,192\n"
        f"    accept it     pytest '{KEY}' --bandwidth-update\n"
        f"    help          {DOCUMENTATION}/troubleshooting.html#pairs\n"
        "tests/test_a.py:9: REGRESSED"
    )


def rows_of(decision, **context):
    message = failure_message(Judged(measured(80.0), FIVE.entries[KEY], decision), replace(LONG, **context))
    rows = (line[4:].partition("  ") for line in message.splitlines()[1:-1])
    return {label: text.strip() for label, _, text in rows}


def test_of_many_counts_the_worst_are_shown_and_the_others_counted():
    changes = tuple((name, 100, 101 + number) for number, name in enumerate(COSTS))
    rows = rows_of(of("REGRESSED", Rule.COUNTS, EXACT, changes=changes))
    worst = list(COSTS.values())[:-4:-1]
    assert list(rows)[:3] == worst
    assert rows[worst[0]] == "110, was 100"
    assert rows[worst[2]].endswith("; and 7 more counts")


@pytest.mark.parametrize(
    ("loads", "said"),
    [
        (((100, 0.5), (1000, 0.9), (10_000, 1.0)), "at              k.cu:11 loads strided, 32.0 sectors a request"),
        (((250, 1.0), (750, 1.0)), "most at         k.cu:11 loads, 75 % of the sectors"),
        (((500, 1.0), (500, 1.0)), "most at         k.cu:10, k.cu:11 loads, 50 % of the sectors each"),
        (
            ((9, 1.0),) * 6,
            "most at         k.cu:10, k.cu:11, k.cu:12, k.cu:13 and 2 more loads, 17 % of the sectors each",
        ),
    ],
    ids=["wastes most", "asks for most where none wastes any", "asks for as much as another", "one of many alike"],
)
def test_the_line_is_named_that(loads, said):
    lines = [
        {"file": "k.cu", "line": number, "loads": {**access(1), "sectors": sectors, "coalescing": coalescing}}
        for number, (sectors, coalescing) in enumerate(loads, 10)
    ]
    now = replace(measured(80.0), detail={"lines": [*lines, {"file": "k.cu", "line": 13}]})
    message = failure_message(Judged(now, None, of("REGRESSED", Rule.COUNTS, EXACT, changes=CHANGES)))
    assert f"    {said}" in message.splitlines()


@pytest.mark.parametrize(
    "changes",
    [(("atomic_sectors", 100, 200), ("load_sectors", 100, 101)), (("resident_warps", 64, 8), ("atomic_sectors", 1, 2))],
    ids=["more than loads", "but what the compiler gave"],
)
def test_a_line_is_named_of_the_accesses_that_grew(changes):
    lines = [{"file": "k.cu", "line": 2, "loads": access(1)}, {"file": "k.cu", "line": 7, "atomics": access(1)}]
    now = replace(measured(80.0), detail={"lines": lines})
    said = failure_message(Judged(now, None, of("REGRESSED", Rule.COUNTS, EXACT, changes=changes)))
    assert "k.cu:7 atomics strided" in said
    assert "k.cu:2" not in said


def test_of_narrower_loads_the_line_that_asks_most_often_is_named():
    lines = [{"file": "k.cu", "line": n, "loads": {**access(1), "requests": 25 * n}} for n in (1, 3)]
    now = replace(measured(80.0), detail={"lines": lines})
    decision = of("REGRESSED", Rule.COUNTS, EXACT, changes=(("load_requests", 25, 100),))
    said = failure_message(Judged(now, None, decision))
    assert said.splitlines()[0] == "REGRESSED: 4× more load requests than the baseline"
    assert "    most at        k.cu:3 loads, 75 % of the requests" in said.splitlines()


@pytest.mark.parametrize(
    ("rule", "status", "label", "text"),
    [
        (Rule.PAIRS, Status.REGRESSED, "accept it", LONG.command),
        ("floor:min_gbps", Status.REGRESSED, "accept it", "lower the floor in the test's marker"),
        ("floor:max_registers", Status.REGRESSED, "accept it", "raise the limit in the test's marker"),
        (Rule.NO_ENTRY, Status.UNDECIDED, "create it", LONG.command),
        ("others", Status.UNDECIDED, "remedy", "quiet the machine and run again"),
    ],
)
def test_the_remedy_is_of_the_rule(rule, status, label, text):
    decision = next(d for d, _ in DECISIONS if (d.rule, d.status) == (rule, status))
    assert rows_of(decision)[label] == text


@pytest.mark.parametrize(
    ("compiler", "version", "package"),
    [
        *(("nvrtc", "13.5", "nvidia-cuda-nvrtc==13.5.*"), ("nvrtc", "12.9", "nvidia-cuda-nvrtc-cu12==12.9.*")),
        ("triton", "3.8.0", "triton==3.8.0"),
    ],
)
def test_another_compiler_is_pinned_or_accepted(compiler, version, package):
    remedy = rows_of(mismatch(f"setting:{compiler}", compiler, "13.0", version))["remedy"]
    assert remedy == f"pin {package}, or update the baseline: {LONG.command}"


@pytest.mark.parametrize(("own", "text"), [({}, LONG.command), ({"remedy": "raise the limit"}, "raise the limit")])
def test_a_features_evidence_is_accepted_by_an_update_or_by_its_own_remedy(own, text):
    decision = of("REGRESSED", "dram", text="more", about="DRAM bytes", **own)
    assert rows_of(decision)["accept it"] == text
    assert detail_of(decision.status, decision.rule, {"facts": decision.facts}) == "DRAM bytes"


@pytest.mark.parametrize("rule", [Rule.NO_PROBE, Rule.NOT_RERUN])
def test_what_an_update_would_not_mend_advises_none(rule):
    decision = next(d for d, _ in DECISIONS if d.rule == rule)
    assert not {"accept it", "create it"} & set(rows_of(decision))


def test_against_a_revision_nothing_is_updated():
    decision = of("REGRESSED", Rule.PAIRS, PAIRS, **OLD)
    assert rows_of(decision, against_revision=True)["accept it"].startswith("in code review: ")
    assert "create it" not in rows_of(of("UNDECIDED", Rule.NO_ENTRY, path="b"), against_revision=True)


@pytest.mark.parametrize(
    ("facts", "runs", "remedy"),
    [
        (
            {"by": Rule.STORED, "runs_needed": 8},
            5,
            "8 baseline runs would be enough: --bandwidth-update -o bandwidth_runs=8",
        ),
        (
            {"by": Rule.STORED, "runs_needed": None},
            5,
            "the baseline's 5 runs differ by 1.0 %: raise the tolerance or quiet the machine",
        ),
        ({"by": Rule.STORED, "runs_needed": None}, 0, "the baseline has no runs: --bandwidth-update adds some"),
        ({"by": Rule.PAIRS}, 12, "12 pairs differ by 1.0 %: raise the tolerance or quiet the machine"),
    ],
)
def test_noise_has_a_remedy_in_message_and_reason(facts, runs, remedy):
    decision = of("UNDECIDED", Rule.TOO_NOISY, replace(STORED, runs=runs), **facts)
    assert rows_of(decision)["remedy"] == remedy
    assert reason_of(decision).endswith(f"; {remedy}")


@pytest.mark.parametrize(("decision", "first"), [pair for pair in DECISIONS if pair[0].status is Status.IMPROVED])
def test_a_gain_against_the_baseline_ends_with_how_to_keep_it(decision, first):
    advice = "; --bandwidth-update keeps it" if decision.rule != Rule.PAIRS else ""
    assert f"IMPROVED: {reason_of(decision)}" == f"{first}{advice}"


def test_numbers_shown_are_those_that_were_judged():
    found = decide_one(measured(80.0), FIVE, processes(81.0, 80.5))
    message = failure_message(Judged(measured(80.0), FIVE.entries[KEY], found))
    assert message.splitlines()[0] == "REGRESSED: 10.3 % slower than the baseline (tolerance 5.0 %)"
    assert "    this code  80.7 % of the probe\n" in message
    assert "    baseline   90.0 % of the probe (5 runs, spread 0.7 %)\n" in message
    assert "    re-runs    81.0 % of the probe, 80.5 % of the probe\n" in message


@pytest.mark.parametrize(
    "kind", [one for one in vars(errors).values() if isinstance(one, type) and BandwidthError in one.__mro__[1:]]
)
def test_an_errors_line_ends_with_the_place_of_its_kind_in_the_documentation(kind):
    anchor = f"{DOCUMENTATION}/troubleshooting.html#{kind.__name__.lower()}"
    assert with_help(kind("found x"), "found x") == f"found x (help: {anchor})"


def test_an_error_of_no_kind_has_no_such_place_and_one_of_a_feature_has_its_bases():
    class OfAFeature(UsageError):
        pass

    assert with_help(OfAFeature(), "no").endswith("#usageerror)")
    assert [with_help(kind(), "no") for kind in (BandwidthError, OSError)] == ["no", "no"]


def test_a_row_says_its_message_or_its_reason():
    decision = of("UNDECIDED", Rule.NO_BASELINE)
    row = outcome_of("t", "t", Judged(measured(80.0), None, decision), reason_of(decision))
    assert message_lines(row) == [
        "UNDECIDED (no baseline): no baseline was given: measured only",
        f"    help  {DOCUMENTATION}/troubleshooting.html#no-baseline",
    ]
    assert message_lines(replace(row, message="REGRESSED: slow\n    a  b\n\x1b[2J")) == [
        "REGRESSED: slow",
        "    a  b",
        "\\x1b[2J",
    ]
    assert len(message_lines(replace(row, message="x\n" * 100))) == MOST_LINES


@pytest.mark.parametrize(
    ("changes", "said"), [((), ""), (("numpy 2.0 → 2.1", "driver 570 → 580"), ": numpy 2.0 → 2.1, driver 570 → 580")]
)
def test_what_the_device_lost_is_one_sentence(changes, said):
    loss = DeviceLoss(0.1165, 0.0513, 0.1398, 140, changes)
    assert device_sentence(loss) == (
        f"unchanged tests run 11.0 % below the baseline (median of 140, from 5.0 % to 13.0 %){said}"
    )
    assert "5.0 % above the baseline" in device_sentence(replace(loss, median=-0.0488))
