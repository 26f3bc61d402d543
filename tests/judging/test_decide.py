"""The table of decisions: every rule of every verdict, at its exact boundaries; counts are exact."""

import math
from dataclasses import replace
from statistics import stdev

import pytest
from judged_kernels import (
    CODE,
    EDITED,
    FIVE,
    KEY,
    LIMITS,
    LIMITS_10,
    OF_CODE,
    at,
    baseline,
    compared,
    decided,
    evidence,
    measured,
    reference,
)

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import UNTOUCHED, WRONG, Finding, KernelResources, Measurement, Rounds
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import log_of_drop
from pytest_bandwidth.domain.verdict import NO_NUMBERS, Decision, Rule, Status
from pytest_bandwidth.judging.decide import (
    COSTS,
    decide,
    decide_comparison,
    decide_counts,
    decide_measured_counts,
    decide_processes,
    decide_stored,
    pattern_of,
    with_further_evidence,
)
from pytest_bandwidth.judging.evidence import Ask
from pytest_bandwidth.judging.limits import MarkerOptions, floor_of
from pytest_bandwidth.judging.pairs import Looks
from pytest_bandwidth.judging.stored import runs_needed

STEP = 1e-9
LIMIT = log_of_drop(0.05)
LOOKS = Looks()
OK, REGRESSED, IMPROVED, MISMATCH, UNDECIDED, SAVED = (
    *(Status.OK, Status.REGRESSED, Status.IMPROVED),
    *(Status.MISMATCH, Status.UNDECIDED, Status.SAVED),
)
TRIED = {"old_code_tried": True}


def ruled(found):
    assert isinstance(found, Decision), found
    return found.status, found.rule


def with_floor(limits=LIMITS, **floors):
    return replace(limits, marker=MarkerOptions(**floors))


# --- before anything is compared


def test_what_is_wrong_comes_before_bytes_floors_and_drops():
    code = "work:stale-result"
    spoilt = measured(10.0, invalid=Finding(code, "a sentence", WRONG), code=CODE)
    known = baseline(90.0, bytes_read=1, code=CODE.known())
    for limits in (LIMITS, with_floor(min_gbps=95.0), replace(LIMITS, writes="all")):
        found = decide(evidence(spoilt, known, limits), limits)
        assert ruled(found) == (MISMATCH, code)
        assert found.facts["text"] == "a sentence"


SAME_CODE = baseline(90.0, code=CODE.known())
FLOOR = with_floor(min_gbps=5.0)
LOST, HELD = compared(*[0.1] * 4), compared(*[0.0] * 4)


@pytest.mark.parametrize(
    ("known", "limits", "more", "status", "rule"),
    [
        # Its code still decides, and old code in new processes; stored figures do not, and nothing is saved.
        (SAME_CODE, LIMITS, {}, OK, Rule.CODE_UNCHANGED),
        (FIVE, LIMITS, {"compared": LOST}, REGRESSED, Rule.PAIRS),
        (FIVE, LIMITS, {"compared": HELD}, OK, Rule.PAIRS),
        (FIVE, LIMITS, {**TRIED, "why_not": ("no git",)}, UNDECIDED, "others"),
        (None, LIMITS, {}, UNDECIDED, "others"),
        # No floor is seen to hold.
        (SAME_CODE, FLOOR, {}, UNDECIDED, "others"),
        (FIVE, FLOOR, {"compared": LOST}, REGRESSED, Rule.PAIRS),
        *((known, replace(LIMITS, writes="all"), {}, UNDECIDED, "others") for known in (FIVE, None, SAME_CODE)),
        (baseline(90.0, bytes_read=1, code=CODE.known()), LIMITS, {}, MISMATCH, Rule.BYTES),
    ],
)
def test_figures_of_a_disturbed_measurement_decide_nothing(known, limits, more, status, rule):
    disturbed = measured(10.0, invalid=Finding("others", "a sentence"), code=CODE)
    found = decide(evidence(disturbed, known, limits, **more), limits)
    assert ruled(found) == (status, rule)
    if rule == "others":
        assert (found.facts["text"], found.why_not) == ("a sentence", more.get("why_not", ()))
        assert decide(evidence(disturbed, None, revision="main"), LIMITS) is Ask.OLD_CODE, "which measures anew"
    if rule == Rule.CODE_UNCHANGED:
        assert (found.numbers, found.why_not) == (NO_NUMBERS, ("its figures do not count: a sentence",))


@pytest.mark.parametrize(("known", "rule"), [(None, Rule.NO_BASELINE), (replace(FIVE, entries={}), Rule.NO_ENTRY)])
def test_without_an_entry_only_floors_decide(known, rule):
    assert ruled(decide(evidence(measured(90.0), known), LIMITS)) == (UNDECIDED, rule)
    floor = with_floor(min_gbps=90.0)
    assert ruled(decide(evidence(measured(90.0), known, floor), floor)) == (OK, Rule.FLOORS)


@pytest.mark.parametrize(
    ("writes", "known", "status"),
    [
        ("all", FIVE, SAVED),
        ("all", None, SAVED),
        ("new", replace(FIVE, entries={}), SAVED),
        ("new", FIVE, OK),
        ("none", FIVE, OK),
    ],
)
def test_an_update_saves_in_place_of_judging(writes, known, status):
    limits = replace(LIMITS, writes=writes)
    assert ruled(decide(evidence(measured(90.0), known, limits, **TRIED), limits))[0] is status


# --- the same code


@pytest.mark.parametrize("gbps", [10.0, 120.0])
@pytest.mark.parametrize("known", [OF_CODE, baseline(code=CODE.known())])
def test_the_same_code_is_ok_whatever_it_lost(gbps, known):
    found = decide(evidence(measured(gbps, code=CODE), known), LIMITS)
    assert ruled(found) == (OK, Rule.CODE_UNCHANGED)
    assert not found.status.fails(strict=True)
    if known is OF_CODE:
        assert found.numbers.drop == pytest.approx(1 - gbps / 90.0)


# --- floors


def test_a_floor_holds_at_equality_and_the_first_that_is_missed_is_named():
    assert MarkerOptions().floors == {}
    assert MarkerOptions(min_gbps=0.0, tolerance=0.1).floors == {"min_gbps": 0.0}
    holds = with_floor(min_gbps=90.0)
    assert ruled(decide(evidence(measured(90.0), OF_CODE, holds, **TRIED), holds))[0] is OK
    missed = with_floor(replace(LIMITS, confirm=0), min_gbps=89.0, min_relative=0.92, min_utilization=0.91)
    found = decide(evidence(measured(90.0, peak=Peak(100e9, "test")), OF_CODE, missed), missed)
    assert (found.rule, found.numbers.reference) == ("floor:min_utilization", 0.91)
    rules = {"floor:min_gbps": "min_gbps", "floors": None, "pairs": None, "setting:floor:x": None}
    assert {rule: floor_of(rule) for rule in rules} == rules


@pytest.mark.parametrize("limits", [LIMITS, replace(LIMITS, writes="all")])
@pytest.mark.parametrize("code", [CODE, CodeIdentity()])
def test_a_floor_is_missed_where_the_median_of_new_processes_misses_it_too(limits, code):
    limits = with_floor(limits, min_gbps=90.0)
    known = replace(FIVE.entries[KEY], code=CODE.known())
    here = evidence(measured(80.0, code=code), replace(FIVE, entries={KEY: known}), limits)
    assert decide(here, limits) is Ask.PROCESSES
    assert decide(replace(here, fresh=(at(0.8), at(0.8))), limits) is Ask.PROCESSES, "a floor rests on all of them"
    found = decide(replace(here, fresh=(at(0.8), at(0.85), at(1.0))), limits)
    assert ruled(found) == (REGRESSED, "floor:min_gbps")
    assert (found.numbers.observed, found.numbers.reference) == (pytest.approx(85.0), 90.0)
    assert found.numbers.confirmations == pytest.approx((80.0, 85.0, 100.0))
    held = decide(replace(here, fresh=(at(0.8), at(0.9), at(1.0))), limits)
    assert held is Ask.OLD_CODE or ruled(held) in ((SAVED, Rule.WRITTEN), (OK, Rule.CODE_UNCHANGED))


def test_a_missed_floor_that_no_process_could_confirm_is_undecided():
    limits = with_floor(min_gbps=90.0)
    here = evidence(measured(80.0), FIVE, limits, fresh=(at(0.8),), fresh_ended="exit status 4")
    found = decide(here, limits)
    assert ruled(found) == (UNDECIDED, Rule.NOT_RERUN)
    assert found.facts == {"floor": "min_gbps", "why": "exit status 4", "processes": 1}


# --- limits of registers and spills


@pytest.mark.parametrize("limits", [LIMITS, replace(LIMITS, writes="all")])
@pytest.mark.parametrize(("name", "limit", "seen"), [("max_registers", 64, 65), ("max_spill_bytes", 0, 8)])
def test_a_kernel_past_a_limit_of_its_resources_fails_whatever_the_code(limits, name, limit, seen):
    past = with_floor(limits, **{name: limit})
    known = replace(FIVE.entries[KEY], code=CODE.known())
    resources = KernelResources(registers=65, local_bytes=8, shared_bytes=0)
    now = replace(measured(90.0, code=CODE), resources=resources)
    found = decide(evidence(now, replace(FIVE, entries={KEY: known}), past), past)
    assert ruled(found) == (REGRESSED, f"floor:{name}")
    assert (found.numbers.observed, found.numbers.reference) == (seen, limit)
    fits = with_floor(limits, **{name: seen})
    assert ruled(decide(evidence(now, None, fits), fits))[0] in (UNDECIDED, SAVED)


def test_a_limit_of_resources_that_are_not_known_is_undecided():
    limits = with_floor(max_spill_bytes=0)
    known = replace(FIVE.entries[KEY], code=CODE.known())
    model = replace(measured(90.0).device, timed_on="gpu")
    now = replace(measured(90.0, code=CODE), device=model)
    here = evidence(now, replace(FIVE, entries={KEY: known}), limits)
    assert ruled(decide(here, limits)) == (UNDECIDED, "floor:max_spill_bytes")
    writes = replace(limits, writes="all")
    assert ruled(decide(evidence(now, None, writes), writes))[0] == SAVED, "an update writes it all the same"
    host = evidence(replace(now, device=replace(model, timed_on="host")), replace(FIVE, entries={KEY: known}), limits)
    assert ruled(decide(host, limits)) == (OK, Rule.CODE_UNCHANGED), "a host has none"
    spoilt = replace(here, entry=replace(known, bytes_read=1))
    assert ruled(decide(spoilt, limits)) == (MISMATCH, Rule.BYTES), "what fails already stays"


@pytest.mark.parametrize(("share", "rule"), [(2.0, Rule.FLOORS), (2.01, Rule.NO_PROBE)])
def test_a_floor_does_not_hold_by_a_share_that_tells_nothing(share, rule):
    limits = with_floor(min_relative=0.8)
    assert ruled(decide(evidence(measured(100 * share), None, limits), limits))[1] == rule


def test_a_floor_whose_figure_is_missing_does_not_hold():
    limits = with_floor(min_relative=0.8)
    beside_a_probe = measured(90.0)
    alone = replace(beside_a_probe, rounds=replace(beside_a_probe.rounds, probe_seconds=(), probe_bytes=0))
    assert alone.relative is None
    found = decide(evidence(alone, FIVE, limits), limits)
    assert ruled(found) == (UNDECIDED, Rule.NO_PROBE)
    assert found.facts == {"floor": "min_relative"}
    lacking = (at(0.7), replace(at(0.7), relative=None), at(0.7))
    again = evidence(measured(70.0), FIVE, limits, fresh=lacking)
    assert ruled(decide(again, limits)) == (UNDECIDED, Rule.NO_PROBE), "one of three confirms nothing"


@pytest.mark.parametrize("name", ["min_utilization", "min_sol"])
def test_a_floor_on_a_share_of_an_unknown_peak_is_an_error(name):
    limits = with_floor(**{name: 0.8})
    with pytest.raises(UsageError, match=rf"{name} asks .* peak of A card is unknown: use min_relative"):
        decide(evidence(measured(90.0), FIVE, limits), limits)
    on_peak = measured(90.0, peak=Peak(100e9, "test"))
    assert ruled(decide(evidence(on_peak, FIVE, limits, **TRIED), limits)) == (OK, Rule.STORED)


# --- old code next to new


def look(*drops, tolerance=0.05, looks=LOOKS, **more):
    return decide_comparison(compared(*drops, **more), tolerance, looks)


def four(centre, spread):
    """Four drops of this mean and standard deviation."""
    return [centre + spread * step / math.sqrt(4 / 3) for step in (-1, 1, -1, 1)]


def twelve(centre, spread):
    return [centre + spread * step / math.sqrt(12 / 11) for step in (-1, 1) * 6]


def status_of(found):
    return None if found is Ask.OLD_CODE else found.status


BOUNDS = [
    (LIMIT + STEP, REGRESSED),
    (LIMIT - STEP, OK),
    (0.0, OK),
    (-LIMIT + STEP, OK),
    (-LIMIT - STEP, IMPROVED),
]


@pytest.mark.parametrize("number", [4, 8, 12])
@pytest.mark.parametrize(("drop", "status"), BOUNDS)
def test_without_noise_the_tolerance_decides(drop, status, number):
    found = look(*[drop] * number, rule=Rule.OLD_KERNEL)
    assert (*ruled(found), found.facts["by"]) == (status, Rule.OLD_KERNEL, Rule.OLD_KERNEL)
    assert found.numbers.runs == number


def test_more_is_asked_for_between_looks_and_where_addresses_differ_unless_no_more_can_be_had():
    for number in (0, 1, 2, 3, 5, 7, 9, 11):
        assert look(*[0.5] * number) is Ask.OLD_CODE
    for number in (2, 3, 5, 11):
        assert look(*[0.5] * number, ended=True).status is REGRESSED
        assert look(*[0.0] * number, ended=True).status is OK
    assert look(*[0.5] * 4, alike=False) is Ask.OLD_CODE
    assert look(*[0.5] * 8, alike=False).status is REGRESSED
    assert look(*[0.5] * 4, alike=False, ended=True).status is REGRESSED, "no more can be had"


def reach(spread, level, number, degrees):
    return t_quantile(level, degrees) * spread / math.sqrt(number)


@pytest.mark.parametrize(("number", "drops"), [(4, four), (12, twelve)])
def test_a_mean_past_the_tolerance_needs_a_bound_above_nothing(number, drops):
    centre = 2 * LIMIT
    spread = centre / reach(1.0, 0.999, number, number - 1)
    undecided = None if number == 4 else UNDECIDED
    assert status_of(look(*drops(centre, 0.999 * spread))) is REGRESSED
    assert status_of(look(*drops(centre, 1.001 * spread))) is undecided
    assert status_of(look(*drops(-centre, 0.999 * spread))) is IMPROVED
    assert status_of(look(*drops(-centre, 1.001 * spread))) is not IMPROVED


@pytest.mark.parametrize(("number", "drops"), [(4, four), (8, lambda *given: four(*given) * 2)])
def test_each_look_takes_a_mean_within_an_error_of_the_tolerance_for_a_loss_of_it(number, drops):
    spread = 0.005
    error = stdev(drops(0.0, spread)) / math.sqrt(number)
    for share, status, gained in ((0.999, REGRESSED, IMPROVED), (1.001, None, OK)):
        assert status_of(look(*drops(LIMIT - share * error, spread))) is status
        assert status_of(look(*drops(share * error - LIMIT, spread))) is gained


@pytest.mark.parametrize("centre", [0.9 * LIMIT, 0.5 * LIMIT, 0.0, -LIMIT / 2])
def test_what_is_lost_passes_once_it_is_shown_to_be_no_more_than_the_tolerance(centre):
    spread = (LIMIT - centre) / reach(1.0, 1 - 0.01 / 3, 4, 3)
    found = look(*four(centre, 0.999 * spread))
    assert ruled(found) == (OK, Rule.PAIRS)
    assert found.numbers.high <= 0.05
    assert look(*four(centre, 1.001 * spread)) is Ask.OLD_CODE


def test_the_last_look_takes_a_sure_loss_that_may_be_past_the_tolerance_for_a_regression():
    centre = 0.9 * LIMIT
    sure = centre / reach(1.0, 0.999, 12, 11)
    within = (LIMIT - centre) / reach(1.0, 1 - 0.01 / 3, 12, 11)
    assert within < sure
    for spread, status in ((0.999 * within, OK), (1.001 * within, REGRESSED), (0.999 * sure, REGRESSED)):
        assert look(*twelve(centre, spread)).status is status
    assert ruled(look(*twelve(centre, 1.001 * sure))) == (UNDECIDED, Rule.TOO_NOISY)


def test_the_last_look_passes_what_is_nearer_to_nothing_by_noise_no_wider_than_the_tolerance():
    narrow = LIMIT / reach(1.0, 0.99, 12, 11)
    for centre, spread, status in (
        (0.0, 0.999 * narrow, OK),
        (0.0, 1.001 * narrow, UNDECIDED),
        (0.499 * LIMIT, 0.999 * narrow, OK),
        (0.499 * LIMIT, 1.001 * narrow, UNDECIDED),
        (0.501 * LIMIT, 0.999 * narrow, UNDECIDED),
    ):
        assert look(*twelve(centre, spread)).status is status
        assert look(*four(centre, spread * math.sqrt(12) / 2)) is Ask.OLD_CODE


@pytest.mark.parametrize("number", [0, 1])
def test_fewer_than_two_comparisons_decide_nothing(number):
    found = look(*[0.5] * number, ended=True, uneven=4)
    assert ruled(found) == (UNDECIDED, Rule.UNSTEADY)
    assert found.facts == {"compared": number, "uneven": 4, "other": "commit 3f2c1ab"}


@pytest.mark.parametrize(("number", "rule"), [(0, None), (1, Rule.NO_PROBE), (12, Rule.NO_PROBE)])
def test_a_share_that_only_the_old_code_shows_is_no_gain_and_no_loss(number, rule):
    found = look(*[-0.5] * number, lost_share=True)
    assert (None if found is Ask.OLD_CODE else found.rule) == rule


# --- stored figures

KNOWN = reference(1.0, 1.0, 1.0, 1.0, 1.0)
NOISY = reference(1.0)


def stored(share, fresh=(), known=KNOWN, tolerance=0.05, confirm=3, ended=None):
    return decide_stored(known, share, fresh, tolerance, confirm, ended)


def slower(log_drop):
    return math.exp(-log_drop)


@pytest.mark.parametrize(("side", "asks"), [(-STEP, False), (STEP, True)])
def test_slow_is_past_half_of_the_tolerance(side, asks):
    found = stored(slower(LIMIT / 2 + side))
    assert (found is Ask.PROCESSES) is asks
    assert asks or ruled(found) == (OK, Rule.STORED)


@pytest.mark.parametrize(("side", "status"), [(-STEP, OK), (STEP, REGRESSED)])
@pytest.mark.parametrize("known", [KNOWN, NOISY])
def test_regressed_begins_past_the_gate_of_the_median(side, status, known):
    value = slower(known.gate(0.05, 3) + side)
    found = stored(0.5, [0.4, value, 1.1], known)
    assert found.status is (status if known.resolves(0.05, 3) or status is REGRESSED else UNDECIDED)
    assert found.numbers.drop == pytest.approx(1 - value)
    assert (found.numbers.drop > found.numbers.allowed_drop) is (found.status is REGRESSED)
    assert found.numbers.confirmations == (0.4, value, 1.1)


@pytest.mark.parametrize(
    ("first", "rule"), [(slower(LIMIT + STEP), Rule.NOT_REPRODUCED), (slower(LIMIT - STEP), Rule.STORED)]
)
def test_what_new_processes_do_not_show_was_slow_once(first, rule):
    found = stored(first, [1.0, 1.0])
    assert ruled(found) == (OK, rule)
    assert found.facts["first_drop"] == pytest.approx(1 - first)
    assert found.numbers.drop == 0.0


SLOW, WELL = 0.8, 1.0


@pytest.mark.parametrize(
    ("fresh", "confirm", "status"),
    [
        ((), 1, None),
        ((SLOW,), 1, REGRESSED),
        ((SLOW,), 2, None),
        ((SLOW, WELL), 2, REGRESSED),  # the median of both is past the gate
        ((SLOW, SLOW), 3, REGRESSED),
        ((WELL, WELL), 3, OK),
        ((SLOW, WELL), 3, None),
        ((SLOW, WELL, WELL), 3, OK),
        ((SLOW, SLOW), 4, None),
    ],
)
def test_most_of_those_asked_for_decide_it_and_no_more_are_asked_for(fresh, confirm, status):
    found = stored(0.8, fresh, confirm=confirm)
    assert (None if found is Ask.PROCESSES else found.status) is status


def test_without_confirmation_the_first_look_decides_by_a_gate_of_its_own():
    gate = NOISY.gate(0.05, 1)
    assert gate > NOISY.gate(0.05, 3)
    assert stored(slower(gate + STEP), known=NOISY, confirm=0).status is REGRESSED
    assert ruled(stored(slower(gate - STEP), known=NOISY, confirm=0)) == (UNDECIDED, Rule.TOO_NOISY)
    assert stored(slower(LIMIT + STEP), confirm=0).status is REGRESSED


@pytest.mark.parametrize(("side", "status"), [(-STEP, OK), (STEP, IMPROVED)])
@pytest.mark.parametrize("tolerance", [0.05, 0.025])
def test_improved_is_past_the_gate_of_one_process(side, status, tolerance):
    gain = KNOWN.gate(tolerance, 1)
    assert KNOWN.resolves(tolerance, 3)
    assert stored(math.exp(gain + side), tolerance=tolerance).status is status


@pytest.mark.parametrize(("known", "needed"), [(NOISY, runs_needed(NOISY, 0.05, 3)), (reference(0.7, 1.0, 1.3), None)])
def test_noise_that_hides_the_tolerance_is_undecided_and_says_how_many_runs_would_do(known, needed):
    found = stored(known.value, known=known)
    assert ruled(found) == (UNDECIDED, Rule.TOO_NOISY)
    assert found.facts == {"by": Rule.STORED, "runs_needed": needed}
    assert found.numbers.allowed_drop > 0.05
    assert found.numbers.detects is None or found.numbers.detects > found.numbers.allowed_drop
    unseen = stored(known.value * 0.5, [known.value] * 2, known)
    assert ruled(unseen) == (UNDECIDED, Rule.TOO_NOISY), "normal in new processes, which could not have shown it"


@pytest.mark.parametrize("entry", [baseline().entries[KEY], Entry(KEY, code=CODE.known())])
def test_an_entry_without_figures_is_undecided(entry):
    found = decide(evidence(measured(80.0), replace(FIVE, entries={KEY: entry}), **TRIED), LIMITS)
    assert ruled(found) == (UNDECIDED, Rule.EMPTY_ENTRY)


@pytest.mark.parametrize(("share", "status"), [(2.0, OK), (2.01, UNDECIDED)])
def test_an_entry_judged_on_a_share_is_not_judged_by_one_that_tells_nothing(share, status):
    known = baseline(*[200.0] * 5, judged_on="relative")
    found = decide(evidence(measured(100 * share), known, **TRIED), LIMITS)
    assert found.status is status
    assert status is OK or found.rule == Rule.NO_PROBE
    by_gbps = replace(LIMITS, marker=MarkerOptions(judged_on="gbps"))
    assert decide(evidence(measured(100 * share), known, by_gbps, **TRIED), by_gbps).status is OK


def test_new_processes_without_a_probe_confirm_no_share():
    known = baseline(*[90.0] * 5, judged_on="relative")
    lacking = (at(0.8), replace(at(0.8), relative=None), replace(at(0.8), relative=None))
    found = decide(evidence(measured(80.0), known, **TRIED, fresh=lacking), LIMITS)
    assert ruled(found) == (UNDECIDED, Rule.NOT_RERUN)
    assert found.facts["why"] == "a probe ran in 1 of 3 new processes"
    assert decide(evidence(measured(80.0), known, **TRIED, fresh=lacking[:2]), LIMITS) is Ask.PROCESSES


def test_tolerance_of_the_marker_beats_entry_beats_file_beats_option():
    def tolerance(known, limits=LIMITS):
        return evidence(measured(80.0), known, limits).tolerance

    entry_allows = baseline(90.0, tolerance=0.3)
    assert tolerance(replace(entry_allows, tolerance=0.2), with_floor(tolerance=0.01)) == 0.01
    assert tolerance(entry_allows, with_floor(tolerance=0.0)) == 0.0, "0 % is a tolerance"
    assert tolerance(replace(entry_allows, tolerance=0.2)) == 0.3
    assert tolerance(replace(FIVE, tolerance=0.2)) == 0.2
    assert tolerance(FIVE, LIMITS_10) == tolerance(None, LIMITS_10) == 0.1


# --- some processes, none of them chosen (two runs that are compared)


@pytest.mark.parametrize(("side", "status"), [(-STEP, OK), (STEP, REGRESSED)])
@pytest.mark.parametrize("sign", [1, -1])
def test_two_runs_compare_by_the_gate_of_as_many_processes(side, status, sign):
    gate = KNOWN.gate(0.05, 3)
    found = decide_processes(KNOWN, [slower(sign * (gate + side))] * 3, 0.05)
    assert found.status is (status if sign > 0 or status is OK else IMPROVED)
    assert found.rule == Rule.STORED


@pytest.mark.parametrize("values", [[], [0.0], [1.0, -1.0]])
def test_figures_that_are_none_are_refused(values):
    with pytest.raises(ValueError, match="expected positive ones"):
        decide_processes(KNOWN, values, 0.05)


# --- a feature's evidence


@pytest.mark.parametrize("status", list(Status))
def test_further_evidence_decides_unless_the_test_fails_already(status):
    before = Decision(status, "x")
    fails = status in (REGRESSED, MISMATCH)
    assert with_further_evidence(before, REGRESSED, "dram", "DRAM read more", "DRAM bytes", "raise it") == (
        before
        if fails
        else Decision(REGRESSED, "dram", facts={"text": "DRAM read more", "about": "DRAM bytes", "remedy": "raise it"})
    )
    kept = fails or status is UNDECIDED
    assert with_further_evidence(before, UNDECIDED, "dram", "no ncu", "not counted") == (
        before if kept else Decision(UNDECIDED, "dram", facts={"text": "no ncu", "about": "not counted"})
    )


def test_which_verdicts_fail():
    for status in Status:
        always = status in (REGRESSED, MISMATCH)
        assert status.always_fails is status.fails(strict=False) is always
        assert status.fails(strict=True) is (always or status is UNDECIDED)
        assert status.warns is (status is UNDECIDED)


# --- counts

NOTHING = Traffic(0, 0)
KNOWN_COUNTS = {"load_sectors": 100, "store_sectors": 50, "bank_conflicts": 0}


def judge(counts, known=KNOWN_COUNTS, declared=NOTHING, tolerance=0.0, **more):
    moved = {"bytes_read": declared.bytes_read, "bytes_written": declared.bytes_written}
    return decide_counts(Entry(KEY, **moved, counts=counts), Entry(KEY, counts=known), tolerance, **more)


def beside(tolerance=0.0, **changes):
    return judge({**KNOWN_COUNTS, **changes}, tolerance=tolerance)


@pytest.mark.parametrize("name", [*COSTS, "of_a_device_that_is_plugged_in"])
def test_one_more_of_any_cost_is_a_regression(name):
    for count, status in ((8, REGRESSED), (7, OK), (6, IMPROVED)):
        assert judge({name: count}, {name: 7}).status is status


def test_occupancy_costs_where_it_falls():
    for warps, status in ((31, REGRESSED), (32, OK), (33, IMPROVED)):
        assert judge({"resident_warps": warps}, {"resident_warps": 32}).status is status
    for warps, status in ((29, OK), (28, REGRESSED)):
        assert judge({"resident_warps": warps}, {"resident_warps": 32}, tolerance=0.1).status is status


@pytest.mark.parametrize(("sectors", "status"), [(103, OK), (104, REGRESSED)])
def test_a_tolerance_lets_pass_what_it_says(sectors, status):
    found = beside(tolerance=0.03, load_sectors=sectors)
    assert (found.status, found.rule) == (status, Rule.COUNTS)
    assert found.facts["changes"] == (("load_sectors", 100, sectors),)


def test_what_rose_outweighs_all_else_and_what_costs_nothing_or_was_not_known_is_not_judged():
    found = beside(load_sectors=200, store_sectors=10, bank_conflicts=3)
    assert found.status is REGRESSED
    assert found.facts["changes"] == (("load_sectors", 100, 200), ("bank_conflicts", 0, 3))
    assert beside(load_bytes=10**6, local_bytes=64).status is OK
    counts, known = {"distinct_bytes_read": 50, "load_sectors": 2}, {"distinct_bytes_read": 100, "load_sectors": 1}
    assert judge(counts, known, Traffic(100, 0)).status is REGRESSED


@pytest.mark.parametrize(
    ("counts", "known", "uncounted"),
    [
        ({"function_calls": 8}, {"calls": 5}, ("calls",)),
        ({"calls": 5}, {"calls": 5, "frames": 0}, ("frames",)),
        ({"load_sectors": 100}, KNOWN_COUNTS, ("store_sectors", "bank_conflicts")),
        ({"load_sectors": 100}, {"load_sectors": 100, "load_bytes": 4}, ()),
    ],
)
def test_what_is_no_longer_counted_is_not_green(counts, known, uncounted):
    found = judge(counts, known)
    assert found.facts.get("uncounted", ()) == uncounted
    assert found.rule == (Rule.UNGATED if uncounted else Rule.COUNTS)


@pytest.mark.parametrize(("count", "ungated"), [(0, False), (1, True)])
@pytest.mark.parametrize("name", ["load_sectors", "store_sectors", "atomic_sectors"])
def test_sectors_that_the_entry_lacks_are_ungated_and_not_green(name, count, ungated):
    found = judge({name: count, "local_bytes": 0}, {"local_bytes": 0})
    assert (found.rule == Rule.UNGATED) is ungated
    assert found.status is (UNDECIDED if ungated else OK)
    gained = judge({name: count, "local_bytes": 0}, {"local_bytes": 8})
    assert gained.status is (UNDECIDED if ungated else IMPROVED)


def test_an_entry_without_counts_decides_nothing():
    found = judge({"load_sectors": 1}, {})
    assert (found.status, found.rule, found.facts) == (UNDECIDED, Rule.EMPTY_ENTRY, {"lacks": "counts"})


@pytest.mark.parametrize(
    ("seen", "then", "declared", "less"),
    [
        (99, 100, 100, True),
        (100, 100, 100, False),
        (0, 100, 100, True),
        (100, 150, 100, False),  # it no longer reads what nobody declared
        (99, 150, 100, True),
        (80, 80, 100, False),  # as ever
    ],
)
@pytest.mark.parametrize("name", ["distinct_bytes_read", "distinct_bytes_written"])
def test_a_part_of_the_work_that_is_not_done_is_no_gain(name, seen, then, declared, less):
    traffic = Traffic(declared, 0) if name == "distinct_bytes_read" else Traffic(0, declared)
    found = judge({name: seen}, {name: then}, traffic)
    assert ((found.status, found.rule) == (MISMATCH, Rule.LESS_WORK)) is less
    assert not less or found.facts == {"change": (name, then, seen, declared)}


@pytest.mark.parametrize(("sectors", "status"), [(99, "MISMATCH"), (100, "OK"), (101, "REGRESSED")])
def test_fewer_counts_are_no_gain_where_no_kernel_touches_a_declared_array(sectors, status):
    untouched = Finding(UNTOUCHED, "array 1 of writes= is written by no kernel")
    device = DeviceIdentity("traffic", "traffic sm_90", None, "t", timed_on="nothing")
    counts, rounds = {"load_sectors": sectors}, Rounds(stop="counted")
    measured = Measurement(None, NOTHING, device, "ptx", rounds, counts=counts, findings=(untouched,))
    found = decide_measured_counts(measured, Entry(KEY, counts={"load_sectors": 100}), 0.0)
    assert found.status == status
    unlike = decide_measured_counts(replace(measured, findings=()), Entry(KEY, counts={"load_sectors": 102}), 0.0)
    assert unlike.status is IMPROVED


COUNTING = DeviceIdentity("traffic", "traffic sm_90", None, "model", timed_on="nothing")


def counted(code=CODE, declared=64, settings=None, **counts):
    device = replace(COUNTING, settings=settings or {})
    return Measurement(None, Traffic(declared, 0), device, "ptx", Rounds(), counts=counts, code=code)


def of_counts(settings=None, tolerance=None, **counts):
    entry = Entry(KEY, counts=counts, code=CODE.known(), settings=settings or {}, tolerance=tolerance)
    return Baseline(BaselineDevice("traffic sm_90"), {KEY: entry}, path="b.yaml")


@pytest.mark.parametrize(
    ("code", "sectors", "settings", "rule"),
    [
        (CODE, 100, {}, Rule.CODE_UNCHANGED),
        (CODE, 101, {}, Rule.COUNTS),
        (CODE, 100, {"arch": "sm_80"}, "setting:arch"),
        (EDITED, 100, {}, "setting:nvrtc"),
        (CodeIdentity(), 100, {}, "setting:nvrtc"),
    ],
)
def test_counts_of_the_same_ptx_are_comparable_whichever_compiler_made_it(code, sectors, settings, rule):
    known = of_counts({"arch": "sm_90", "nvrtc": "13.5"}, load_sectors=100)
    here = counted(code, settings={"arch": "sm_90", "nvrtc": "13.0", **settings}, load_sectors=sectors)
    assert decided(here, known).rule == rule


@pytest.mark.parametrize(
    ("nvrtc", "local", "rule", "same"),
    [
        ("13.5", 4, Rule.CODE_UNCHANGED, True),
        ("13.5", 8, Rule.COUNTS, False),
        ("13.0", 4, Rule.CODE_UNCHANGED, True),
        ("13.0", 8, Rule.CODE_UNCHANGED, True),
        ("13.0", 0, Rule.CODE_UNCHANGED, True),
    ],
)
def test_the_same_ptx_that_the_same_compiler_made_worse_code_of_is_other_code(nvrtc, local, rule, same):
    known = of_counts({"nvrtc": "13.5"}, load_sectors=100, local_bytes_per_thread=4)
    found = decided(counted(settings={"nvrtc": nvrtc}, load_sectors=100, local_bytes_per_thread=local), known)
    assert (found.rule, found.facts.get("same_code")) == (rule, same)


@pytest.mark.parametrize(("of_marker", "status"), [(0.0, REGRESSED), (None, OK)])
def test_a_markers_tolerance_of_nothing_holds_for_counts_before_the_entrys(of_marker, status):
    limits = replace(LIMITS, marker=MarkerOptions(tolerance=of_marker))
    known = of_counts(tolerance=0.05, load_sectors=100)
    assert decided(counted(load_sectors=102), known, limits=limits).status is status
    assert decided(counted(load_sectors=102), of_counts(load_sectors=100)).status is REGRESSED


@pytest.mark.parametrize(
    ("known", "writes", "rule"),
    [
        (None, "none", Rule.NO_BASELINE),
        (of_counts(load_sectors=100), "all", Rule.WRITTEN),
        (replace(of_counts(), entries={}), "new", Rule.WRITTEN),
        (replace(of_counts(), entries={}), "none", Rule.NO_ENTRY),
    ],
)
def test_floors_of_time_say_nothing_where_no_time_is_measured(known, writes, rule):
    limits = replace(LIMITS, writes=writes, marker=MarkerOptions(min_gbps=1e9))
    assert decided(counted(load_sectors=900), known, limits=limits).rule == rule


def test_patterns_are_of_what_was_accessed():
    some, none = {"requests": 4, "pattern": "coalesced"}, {"requests": 0, "pattern": "none"}
    assert pattern_of({"loads": some, "stores": none}) == "loads coalesced"
    assert pattern_of({"loads": none, "stores": none}) == "no global access"
    assert pattern_of({}) is None
