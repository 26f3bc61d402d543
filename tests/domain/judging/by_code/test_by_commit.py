"""What pairs against the baseline's commit make of a suspect."""

from dataclasses import replace

import pytest
from judged_kernels import FIVE, GPU, KEY, LIMITS, OTHER, again, baseline, for_both, measured, never, never_probe

from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.judging.by_code.by_commit import BY_COMMIT, is_cleared, judge_by_commit, limits_of
from pytest_bandwidth.domain.judging.by_code.last_word import LastWords
from pytest_bandwidth.domain.judging.by_code.same_code import NOTHING_DIFFERS, may_have_changed
from pytest_bandwidth.domain.judging.judge import judge_test
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.verdict import Status, Verdict

PAIRED = Verdict(Status.WITHIN, "pairs", "0.1 % below the commit in 4 pairs")


def suspect_of(gbps=70.0, known=FIVE, limits=LIMITS):
    """The suspect as the rule hands it to a way."""
    found = []
    judge_test({KEY: measured(gbps)}, known, limits, again(lambda: None), never_probe, ways=[lambda s: note(found, s)])
    return found[0]


def note(found, suspects):
    found.extend(suspects.values())
    return LastWords(dict.fromkeys(suspects, PAIRED))


def heads(*gbps):
    return [Metrics(one, one / 100, 100.0) for one in gbps]


@pytest.mark.parametrize("status", [Status.REGRESSED, Status.INSUFFICIENT])
def test_what_pairs_find_stands(status):
    paired = replace(PAIRED, status=status)
    assert judge_by_commit(suspect_of(), paired, heads(90.0, 90.0), 3) is paired


@pytest.mark.parametrize("status", [Status.INVALID, Status.NOT_COMPARABLE, Status.NO_BASELINE])
def test_pairs_that_compare_nothing_have_no_last_word(status):
    assert judge_by_commit(suspect_of(), replace(PAIRED, status=status), heads(70.0, 70.0), 3) is None


@pytest.mark.parametrize(("seen", "status"), [((70.0,) * 4, Status.DEVICE), ((90.0,) * 4, Status.WITHIN)])
def test_what_the_commit_lost_as_well_is_the_devices_if_it_is_still_lost(seen, status):
    verdict = judge_by_commit(suspect_of(), PAIRED, heads(*seen), 3)
    assert verdict.status is status
    assert PAIRED.reason in verdict.reason
    assert (verdict.code == BY_COMMIT) is (status is Status.DEVICE)


def cleared(suspects):
    """Pairs in turn: they clear the code, and have no share of a probe to hold to the baseline's."""
    return LastWords(cleared=dict.fromkeys(suspects, PAIRED))


@pytest.mark.parametrize("judged_on", ["relative", "gbps"])
def test_processes_in_turn_clear_code_and_cannot_tell_what_the_device_lost(judged_on):
    known = replace(FIVE, entries={KEY: replace(FIVE.entries[KEY], judged_on=judged_on)})
    suspect = suspect_of(known=known)
    assert is_cleared(suspect, PAIRED)
    assert not is_cleared(suspect, replace(PAIRED, status=Status.REGRESSED))


@pytest.mark.parametrize(("share", "status"), [(0.7, Status.DEVICE), (0.9, Status.WITHIN)])
def test_fresh_processes_say_whether_the_device_lost_what_cleared_code_did_not(share, status):
    fresh = again(lambda: {None: Metrics(100 * share, share, 100.0)})
    verdict = judge_test({KEY: measured(70.0)}, FIVE, LIMITS, fresh, never_probe, ways=[cleared])[KEY].verdict
    assert verdict.status is status
    assert PAIRED.reason in verdict.reason
    assert (verdict.code == BY_COMMIT) is (status is Status.DEVICE)


def fails():
    raise BandwidthError("a fresh process ended with exit status 4")


def invalid_there():
    """A fresh process in which another measurement alone is valid."""
    return {"b": Metrics(70.0, 0.7, 100.0)}


def without_probe():
    return {None: Metrics(70.0, None, None)}


@pytest.mark.parametrize(
    ("fresh", "why"),
    [
        (fails, "a fresh process ended with exit status 4"),
        (invalid_there, "0 fresh processes measured it, and validly; 3 have to"),
        (without_probe, "a probe ran in 0 of 3 fresh processes"),
    ],
)
def test_what_cleared_code_lost_is_not_waved_through_where_no_fresh_process_could_look(fresh, why):
    known = replace(FIVE, entries={KEY: replace(FIVE.entries[KEY], judged_on="relative")})
    verdict = judge_test({KEY: measured(70.0)}, known, LIMITS, again(fresh), never_probe, ways=[cleared])[KEY].verdict
    assert (verdict.status, verdict.code) == (Status.UNCONFIRMED, "no-fresh-process")
    assert verdict.reason.endswith(f"; not confirmed: {why}; the code is not why: {PAIRED.reason}")


def test_pairs_whose_processes_had_no_probe_leave_a_suspect_of_its_share_unconfirmed():
    known = replace(FIVE, entries={KEY: replace(FIVE.entries[KEY], judged_on="relative")})
    unprobed = [Metrics(90.0, None, None)] * 4
    assert judge_by_commit(suspect_of(known=known), PAIRED, unprobed, 3).status is Status.UNCONFIRMED


def on_a_slower_device(confirm, fresh):
    """The verdict on cleared code beside a device that is down, where that is to be settled as well."""
    known = replace(FIVE, entries={KEY: replace(FIVE.entries[KEY], judged_on="gbps")})
    limits = replace(LIMITS, confirm=confirm, unsure=True)
    slower = measured(63.0, probe_gbps=70.0)
    return judge_test({KEY: slower}, known, limits, again(fresh), lambda *_: 70.0, ways=[cleared])[KEY].verdict


def test_a_device_that_is_down_stays_so_where_no_fresh_process_could_look():
    verdict = on_a_slower_device(3, fails)
    assert verdict.status is Status.DEVICE
    assert verdict.reason.endswith(f"; {PAIRED.reason}")


def test_cleared_code_is_cleared_where_no_fresh_process_is_wanted():
    # Too few runs for the tolerance: without confirmation, too, pairs are to say what those cannot.
    limits = replace(LIMITS, confirm=0, unsure=True)
    found = judge_test({KEY: measured(88.0)}, baseline(90.0), limits, again(never), never_probe, ways=[cleared])
    assert found[KEY].verdict.status is Status.WITHIN
    assert on_a_slower_device(0, never).status is Status.WITHIN


def test_what_stored_runs_could_not_tell_is_cleared_where_no_fresh_process_can_be_had():
    """Nothing was lost that a fresh process had to look at."""
    limits = replace(LIMITS, unsure=True)
    found = judge_test({KEY: measured(88.0)}, baseline(90.0), limits, again(fails), never_probe, ways=[cleared])
    verdict = found[KEY].verdict
    assert verdict.status is Status.WITHIN
    assert verdict.reason.endswith("whether the device lost it is not known: a fresh process ended with exit status 4")


def test_cleared_code_beside_a_missed_floor_and_another_suspect():
    entries = for_both(FIVE)
    limits = replace(LIMITS, marker=replace(LIMITS.marker, min_gbps=75.0))
    both = {KEY: measured(80.0), OTHER: replace(measured(70.0), label="b")}  # the second one is below the floor
    fresh = again(lambda: {None: Metrics(80.0, 0.8, 100.0), "b": Metrics(70.0, 0.7, 100.0)})
    found = judge_test(both, entries, limits, fresh, never_probe, ways=[cleared])
    assert (found[KEY].verdict.status, found[KEY].verdict.code) == (Status.DEVICE, BY_COMMIT)
    assert (found[OTHER].verdict.status, found[OTHER].verdict.code) == (Status.REGRESSED, "floor:min_gbps")


def test_pairs_faster_than_the_commit_improve_nothing_that_was_suspect():
    assert judge_by_commit(suspect_of(), replace(PAIRED, status=Status.IMPROVED), heads(90.0, 90.0), 3).status is (
        Status.WITHIN
    )


def test_pairs_are_held_to_what_the_baseline_judges_by():
    known = replace(FIVE, entries={KEY: replace(FIVE.entries[KEY], tolerance=0.1, judged_on="gbps")})
    asked = limits_of(suspect_of(known=known), LIMITS).marker
    assert (asked.tolerance, asked.judged_on) == (0.1, "gbps")


@pytest.mark.parametrize("unsure", [False, True])
def test_what_stored_runs_cannot_tell_is_settled_where_that_is_asked_for(unsure):
    asked = []
    limits = replace(LIMITS, tolerance=0.01, unsure=unsure)
    found = judge_test({KEY: measured(90.0)}, FIVE, limits, again(None), never_probe, ways=[lambda s: note(asked, s)])
    assert found[KEY].verdict.status is (Status.WITHIN if unsure else Status.INSUFFICIENT)
    assert len(asked) == unsure


CODE, EDITED = (CodeIdentity(ptx=one * 32, sass=one * 32, launch="c" * 32) for one in "ab")
KERNEL = CodeIdentity(ptx="a" * 32, sass="b" * 32, launch="c" * 32)
FUNCTION = CodeIdentity(function="a" * 32, launch="c" * 32)
OF_CODE = baseline(90.0, 90.0, 90.0, 90.0, 90.0, code=CODE.known())


@pytest.mark.parametrize(
    ("gbps", "code", "unsure", "settled"),
    [
        (87.0, EDITED, True, True),
        (90.0, EDITED, True, True),  # by what the code lost the machine may have got better
        (87.0, EDITED, False, False),
        (87.0, CODE, True, False),
        (87.0, CodeIdentity(), True, True),  # it told itself when the baseline was taken
    ],
)
def test_changed_code_that_stored_runs_allow_is_settled_where_that_is_asked_for(gbps, code, unsure, settled):
    asked = []
    limits = replace(LIMITS, unsure=unsure)
    of = {KEY: measured(gbps, code=code)}
    found = judge_test(of, OF_CODE, limits, again(never), never_probe, ways=[lambda s: note(asked, s)])
    assert found[KEY].verdict.status is (Status.UNCHANGED if code is CODE else Status.WITHIN)
    assert len(asked) == settled


@pytest.mark.parametrize("shown", [Status.WITHIN, Status.IMPROVED])
def test_changed_code_that_is_faster_than_the_baseline_says_what_its_old_code_was_to_it(shown):
    limits = replace(LIMITS, unsure=True)
    ways = [lambda suspects: LastWords({}, {}, dict.fromkeys(suspects, replace(PAIRED, status=shown)))]
    of = {KEY: measured(120.0, code=EDITED)}
    verdict = judge_test(of, OF_CODE, limits, again(never), never_probe, ways=ways)[KEY].verdict
    assert verdict.status is Status.IMPROVED
    assert verdict.reason.startswith("33.3 % above the baseline")
    assert verdict.reason.endswith(f"; {PAIRED.reason}")


@pytest.mark.parametrize(
    ("entry", "now", "differs", "changed"),
    [
        (KERNEL, replace(KERNEL, ptx="d" * 32, sass="d" * 32), False, True),
        (KERNEL, replace(KERNEL, launch="d" * 32), False, True),
        (KERNEL, replace(KERNEL, sass="d" * 32), False, True),  # by other options
        (KERNEL, replace(KERNEL, sass="d" * 32), True, False),  # by another toolchain, which builds the old code, too
        (KERNEL, replace(KERNEL, sass=None), False, False),
        (KERNEL, KERNEL, True, False),
        (replace(KERNEL, sass=None), replace(KERNEL, ptx="d" * 32), False, True),
        (replace(KERNEL, sass=None), KERNEL, False, False),
        (FUNCTION, replace(FUNCTION, function="d" * 32), False, True),
        (FUNCTION, FUNCTION, True, False),
        (FUNCTION, CodeIdentity(), False, True),
        (CodeIdentity(), FUNCTION, False, False),
        (CodeIdentity(launch="c" * 32), FUNCTION, False, False),
    ],
)
def test_code_may_have_changed_where_it_told_itself_and_is_not_the_same(entry, now, differs, changed):
    of = replace(FIVE.entries[KEY], code=entry.known())
    of = replace(of, runs=(*of.runs[:-1], replace(of.runs[-1], extra={"cuda_runtime": "13.0"})))
    device = replace(GPU, facts={"cuda_runtime": "13.2" if differs else "13.0"})
    assert may_have_changed(replace(measured(90.0, code=now), device=device), of) is changed


@pytest.mark.parametrize(("sass", "changed"), [("d" * 32, True), (KERNEL.sass, False)])
def test_rebuilt_code_may_have_changed_where_its_machine_code_was_kept(sass, changed):
    of = replace(FIVE.entries[KEY], code={**KERNEL.known(), "cubin": "e" * 32})
    of = replace(of, runs=(*of.runs[:-1], replace(of.runs[-1], extra={"nvrtc": "13.0"})))
    now = replace(measured(90.0, code=replace(KERNEL, sass=sass)), device=replace(GPU, facts={"nvrtc": "13.5"}))
    assert may_have_changed(now, of) is changed


@pytest.mark.parametrize(("gbps", "seen"), [(87.0, "3.3 % below"), (120.0, "33.3 % above")])
def test_a_loss_that_pairs_show_to_be_past_the_tolerance_is_one_though_stored_runs_allow_it(gbps, seen):
    limits = replace(LIMITS, unsure=True)
    of = {KEY: measured(gbps, code=EDITED)}
    lost = replace(PAIRED, status=Status.REGRESSED)
    ways = [lambda suspects: LastWords(dict.fromkeys(suspects, lost))]
    verdict = judge_test(of, OF_CODE, limits, again(never), never_probe, ways=ways)[KEY].verdict
    assert verdict.status is Status.REGRESSED
    assert verdict.reason == f"{seen} the baseline here, but {PAIRED.reason}"


def test_a_loss_that_pairs_show_to_be_within_says_so_and_takes_no_fresh_process():
    limits = replace(LIMITS, unsure=True)
    of = {KEY: measured(87.0, code=EDITED)}
    verdict = judge_test(of, OF_CODE, limits, again(never), never_probe, ways=[cleared])[KEY].verdict
    assert verdict.status is Status.WITHIN
    assert verdict.reason.startswith("3.3 % below the baseline")
    assert verdict.reason.endswith(f"; {PAIRED.reason}")


def test_what_stays_unsure_says_why_and_takes_no_fresh_process():
    limits = replace(LIMITS, tolerance=0.01, unsure=True)
    ways = [lambda suspects: LastWords({}, dict.fromkeys(suspects, "its commit is gone"))]
    found = judge_test({KEY: measured(90.0)}, FIVE, limits, again(None), never_probe, ways=ways)
    assert found[KEY].verdict.status is Status.INSUFFICIENT
    assert found[KEY].verdict.reason.endswith("; its commit is gone")


REBUILT = "the same PTX became other machine code: the compiler, its options, or where constants lie"


@pytest.mark.parametrize(
    ("now", "runtime", "said"),
    [
        ({"sass": "d" * 32}, "13.2", f"{REBUILT}; what differs is cuda runtime 13.0 → 13.2: pairs with"),
        ({"sass": "d" * 32}, "13.0", REBUILT),
        ({"ptx": "d" * 32, "sass": "d" * 32}, "13.2", "what differs is cuda runtime 13.0 → 13.2: pairs with"),
        ({"ptx": "d" * 32, "sass": "d" * 32}, "13.0", NOTHING_DIFFERS),
    ],
)
def test_what_the_toolchain_made_of_the_code_is_named_which_pairs_built_today_cannot_see(now, runtime, said):
    entry = FIVE.entries[KEY]
    then = (*entry.runs[:-1], replace(entry.runs[-1], extra={"cuda_runtime": "13.0"}))
    known = replace(FIVE, entries={KEY: replace(entry, code=KERNEL.known(), runs=then)})
    device = replace(GPU, facts={"cuda_runtime": runtime})
    slower = replace(measured(70.0, code=replace(KERNEL, **now)), device=device)
    fresh = again(lambda: {None: Metrics(70.0, 0.7, 100.0)})
    verdict = judge_test({KEY: slower}, known, LIMITS, fresh, never_probe, ways=[cleared])[KEY].verdict
    assert (verdict.status, verdict.code) == (Status.DEVICE, BY_COMMIT)
    assert verdict.reason.partition(" allowed (")[2].partition("); ")[2].startswith(said)


def test_a_device_that_lost_more_than_the_code_clears_the_code_of_the_rest_alone():
    lost = replace(PAIRED, reason="4.9 % below the commit in 4 pairs (at least 3.9 % with 99.9 % confidence)")
    verdict = judge_by_commit(suspect_of(), lost, heads(*(70.0,) * 4), 3)
    assert verdict.status is Status.DEVICE
    assert verdict.reason.startswith(f"it lost more than its code explains: {lost.reason}; but ")


@pytest.mark.parametrize(("code", "status"), [(0.0, Status.DEVICE), (0.04, Status.WITHIN), (-0.02, Status.DEVICE)])
def test_what_the_code_lost_is_not_the_devices(code, status):
    paired = replace(PAIRED, drop=code)
    assert judge_by_commit(suspect_of(83.0), paired, heads(*(83.0,) * 4), 3).status is status
