"""Every status of the verdict table, from measurements that a scripted history stands behind."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_kernels import (
    FIVE,
    KEY,
    LIMITS,
    LIMITS_10,
    OTHER,
    again,
    baseline,
    for_both,
    fresh_processes,
    judge,
    measured,
    never,
    never_probe,
)

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.judging import confirmation
from pytest_bandwidth.domain.judging.judge import judge_test
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.measured.measurement import Finding, Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Status


def test_within():
    assert judge(measured(89.0), FIVE).status is Status.WITHIN


def test_improved():
    assert judge(measured(96.0), FIVE).status is Status.IMPROVED


def test_regressed_when_fresh_processes_agree():
    verdict = judge(measured(80.0), FIVE, fresh=fresh_processes(81.0, 80.5, 80.0))
    assert verdict.status is Status.REGRESSED
    assert verdict.confirmations == (0.81, 0.805)  # whatever a third one says
    assert verdict.drop == pytest.approx(1 - (81.0 * 80.5) ** 0.5 / 90)


def test_unconfirmed_when_fresh_processes_do_not_agree():
    assert judge(measured(80.0), FIVE, fresh=fresh_processes(80.0, 90.0, 90.0)).status is Status.UNCONFIRMED


def test_unconfirmed_when_fresh_processes_cannot_run():
    def broken():
        raise BandwidthError("a fresh process ended with exit status 4")

    verdict = judge(measured(80.0), FIVE, fresh=broken)
    assert verdict.status is Status.UNCONFIRMED
    assert "exit status 4" in verdict.reason


def test_unconfirmed_when_the_label_does_not_turn_up_again():
    verdict = judge(measured(80.0), FIVE, fresh=lambda: {"other": Metrics(80.0, 0.8, 100.0)})
    assert verdict.status is Status.UNCONFIRMED


# Between the drop that noise seldom shows, seen from 5 %, and those 5 %.
IN_DOUBT = 90.0 * 0.962


@pytest.mark.parametrize(("fresh", "status"), [((85.0, 85.0), Status.REGRESSED), ((IN_DOUBT, IN_DOUBT), Status.WITHIN)])
def test_a_drop_that_is_allowed_and_in_doubt_is_held_to_fresh_processes(fresh, status):
    verdict = judge(measured(IN_DOUBT), FIVE, fresh=fresh_processes(*fresh))
    assert verdict.status is status
    assert len(verdict.confirmations) == (2 if status is Status.REGRESSED else 0)


def test_what_noise_explains_or_the_tolerance_is_far_from_is_in_no_doubt():
    assert judge(measured(90.0 * 0.966), FIVE).status is Status.WITHIN
    assert judge(measured(IN_DOUBT), FIVE, LIMITS_10).status is Status.WITHIN
    assert judge(measured(IN_DOUBT), FIVE, replace(LIMITS, confirm=0)).status is Status.WITHIN


def test_a_doubt_that_fresh_processes_cannot_settle_changes_nothing():
    def broken():
        raise BandwidthError("a fresh process ended with exit status 4")

    def on_faster_device():
        return {None: Metrics(90.0, 0.62, 146.0)}

    assert judge(measured(IN_DOUBT), FIVE, fresh=broken).status is Status.WITHIN
    assert judge(measured(IN_DOUBT), FIVE, fresh=on_faster_device).status is Status.WITHIN


def test_a_doubtful_entry_of_too_few_runs_advises_none_where_it_tells_after_all():
    noisy = baseline(88.0, 92.0, 89.0, 91.0, 90.0)
    limits = replace(LIMITS, tolerance=0.03)
    assert judge(measured(87.0), noisy, limits, fresh=fresh_processes(87.0, 87.0, 87.0)).status is Status.INSUFFICIENT
    found = judge(measured(87.0), noisy, limits, fresh=fresh_processes(80.0, 80.0))
    assert (found.status, found.runs_advised) == (Status.REGRESSED, None)


def test_insufficient():
    assert judge(measured(90.0), baseline(90.0)).status is Status.INSUFFICIENT


def test_no_baseline_at_all_and_no_entry():
    assert judge(measured(90.0), None).code == "no-baseline"
    verdict = judge(measured(90.0), replace(FIVE, entries={}))
    assert (verdict.status, verdict.code) == (Status.NO_BASELINE, "no-entry")


def test_not_comparable_before_anything_is_judged():
    known = baseline(90.0, 90.0, 90.0, 90.0, 90.0, bytes_read=1)
    assert judge(measured(10.0), known).status is Status.NOT_COMPARABLE


def test_invalid_comes_first():
    spoilt = measured(10.0, invalid=Finding("others", "another process was active"))
    verdict = judge(spoilt, baseline(90.0, bytes_read=1))
    assert (verdict.status, verdict.reason) == (Status.INVALID, "another process was active")


def test_device_trouble_is_not_the_kernels():
    # Kernel and probe fell together by a third; a probe alone in a fresh process is down as well.
    verdict = judge(measured(60.0, probe_gbps=66.7), FIVE, probe=lambda _r, _w: 66.0)
    assert verdict.status is Status.DEVICE
    assert "not the kernel" in verdict.reason


def test_a_probe_that_cannot_run_alone_is_told_and_excuses_nothing():
    def broken(_read, _written):
        raise BandwidthError("the probe could not run alone: no device")

    judged = judge_test({KEY: measured(60.0, probe_gbps=66.7)}, FIVE, LIMITS, again(never), broken)[KEY]
    assert judged.verdict.status is Status.WITHIN
    assert [finding.text for finding in judged.measurement.findings] == [
        "the probe could not run alone: no device; judged as if the device were well"
    ]


def test_a_slow_probe_beside_the_kernel_is_no_device_trouble_when_alone_it_is_well():
    verdict = judge(measured(60.0, probe_gbps=66.7), FIVE, probe=lambda _r, _w: 100.0)
    assert verdict.status is Status.WITHIN


def test_a_faster_device_is_not_a_slower_kernel():
    # The kernel's 89 GB/s are the baseline's 90, but the probe went from 100 to 145: a share of 61 % instead of 90 %.
    processes = []

    def run():
        processes.append(1)
        return {None: Metrics(89.0, 0.61, 146.0)}

    verdict = judge(measured(89.0, probe_gbps=145.0), FIVE, fresh=run)
    assert verdict.status is Status.DEVICE
    assert verdict.reason == (
        "the device is up, not the kernel down: a probe reaches 146 GB/s, 100 GB/s with the baseline; "
        "the kernel's 89.0 GB/s are no less than they were (90.0 GB/s)"
    )
    assert len(processes) == LIMITS.confirm  # all of which tell whether the device is to blame


@pytest.mark.parametrize(
    ("probes", "status"), [((145.0, 100.0, 145.0), Status.DEVICE), ((145.0, 100.0, 100.0), Status.REGRESSED)]
)
def test_most_of_the_fresh_processes_say_whether_the_device_was_faster(probes, status):
    left = iter(probes)

    def run():
        probe = next(left)
        return {None: Metrics(90.0, 0.62, probe)}

    verdict = judge(measured(90.0, probe_gbps=145.0), FIVE, fresh=run)
    assert (verdict.status, next(left, None)) == (status, None)


def test_a_floor_beside_a_drop_rests_on_all_that_were_asked_for():
    processes = []

    def run():
        processes.append(1)
        return {None: Metrics(80.0, 0.8, 100.0), "b": Metrics(90.0, 0.9, 100.0)}

    floor = replace(LIMITS, marker=MarkerOptions(min_gbps=95.0))
    both = {KEY: measured(80.0), OTHER: replace(measured(90.0), label="b")}
    judged = judge_test(both, for_both(FIVE), floor, again(run), never_probe)
    assert len(processes) == LIMITS.confirm
    assert (judged[OTHER].verdict.status, judged[OTHER].verdict.confirmations) == (Status.REGRESSED, (90.0,) * 3)


def test_a_drop_seen_before_the_device_became_faster_is_the_kernels():
    verdict = judge(measured(84.0), FIVE, fresh=lambda: {None: Metrics(120.0, 0.83, 145.0)})
    assert verdict.status is Status.REGRESSED


def test_a_slower_kernel_on_a_faster_device_is_a_slower_kernel():
    def run():
        return {None: Metrics(85.0, 0.59, 144.0)}  # 5.6 % under 90 GB/s: more than the tolerance

    verdict = judge(measured(85.0, probe_gbps=145.0), FIVE, fresh=run, probe=lambda _r, _w: 145.0)
    assert verdict.status is Status.REGRESSED


def test_a_probe_that_is_a_little_faster_excuses_nothing():
    def run():
        return {None: Metrics(86.0, 0.82, 105.0)}

    verdict = judge(measured(86.0, probe_gbps=105.0), FIVE, fresh=run, probe=lambda _r, _w: 105.0)
    assert verdict.status is Status.REGRESSED


def test_a_device_as_fast_as_in_one_of_the_baselines_runs_excuses_nothing():
    runs = tuple(Run(gbps=0.9 * probe, probe_gbps=probe) for probe in (100.0, 145.0, 100.0, 144.0, 101.0))
    known = replace(FIVE, entries={KEY: Entry(KEY, gbps=90.0, runs=runs)})

    def run():
        return {None: Metrics(117.0, 0.81, 144.5)}

    verdict = judge(measured(117.0, probe_gbps=144.5), known, fresh=run, probe=lambda _r, _w: 144.5)
    assert verdict.status is Status.REGRESSED


def test_judged_on_gbps_a_faster_probe_takes_nothing_away():
    entry = baseline(90.0, 90.0, 90.0, 90.0, 90.0, judged_on="gbps")
    assert judge(measured(89.0, probe_gbps=145.0), entry, LIMITS_10).status is Status.WITHIN


def test_a_larger_share_of_a_slower_device_is_no_improvement():
    verdict = judge(measured(90.5, probe_gbps=80.0), FIVE)
    assert (verdict.status, verdict.code) == (Status.WITHIN, "share-gain")


def test_floor_fails_whatever_the_baseline_says():
    limits = replace(LIMITS, marker=MarkerOptions(min_gbps=95.0))
    verdict = judge(measured(90.0), FIVE, limits, fresh=fresh_processes(90.0, 90.0, 90.0))
    assert (verdict.status, verdict.code) == (Status.REGRESSED, "floor:min_gbps")


def test_floor_without_baseline_is_a_verdict():
    verdict = judge(measured(90.0), None, replace(LIMITS, marker=MarkerOptions(min_gbps=80.0)))
    assert (verdict.status, verdict.code) == (Status.WITHIN, "floors")


def test_floor_on_a_share_of_an_unknown_peak_is_an_error():
    limits = replace(LIMITS, marker=MarkerOptions(min_utilization=0.8))
    with pytest.raises(UsageError, match=r"peak of A card is unknown: use min_relative"):
        judge(measured(90.0), FIVE, limits)
    on_peak = measured(90.0, peak=Peak(100e9, "test"))
    assert judge(on_peak, FIVE, limits).status is Status.WITHIN


def test_floor_whose_figure_is_missing_does_not_pass():
    limits = replace(LIMITS, marker=MarkerOptions(min_relative=0.8))
    beside_a_probe = measured(90.0)
    alone = replace(beside_a_probe, rounds=replace(beside_a_probe.rounds, probe_seconds=(), probe_bytes=0))
    assert alone.relative is None
    verdict = judge(alone, FIVE, limits)
    assert (verdict.status, verdict.code) == (Status.INVALID, "floor:unseen")


def test_a_floor_does_not_hold_by_a_share_that_tells_nothing():
    limits = replace(LIMITS, marker=MarkerOptions(min_relative=0.8))
    verdict = judge(measured(1577.0), None, limits)
    assert (verdict.status, verdict.code) == (Status.INVALID, "floor:unseen")
    assert verdict.reason == (
        "nothing to hold min_relative to: 1577 % of the probe's bandwidth, past 200 %, tell nothing: "
        "the probe was hindered, or less moved than was declared"
    )
    assert judge(measured(200.0), None, limits).status is Status.WITHIN


@pytest.mark.parametrize("writes", ["none", "new", "all"])
def test_an_entry_judged_on_a_share_is_not_judged_by_one_that_tells_nothing(writes):
    hindered = measured(90.0, probe_gbps=6.0)
    entry = baseline(90.0, 90.0, 90.0, 90.0, 90.0, judged_on="relative")
    verdict = judge(hindered, entry, replace(LIMITS, writes=writes))
    assert (verdict.status, verdict.code) == (Status.INVALID, "share")
    assert verdict.reason.startswith("1500 % of the probe's bandwidth, past 200 %, tell nothing")


def test_what_was_always_past_its_probe_and_what_is_judged_on_gbps_is_judged():
    past_it = baseline(300.0, 300.0, 300.0, 300.0, 300.0, judged_on="relative")
    assert judge(measured(299.0), past_it).figure == "relative"
    hindered = measured(90.0, probe_gbps=6.0)
    assert judge(hindered, FIVE, replace(LIMITS_10, marker=MarkerOptions(judged_on="gbps"))).status is Status.WITHIN


def test_tolerance_of_the_marker_beats_entry_beats_file_beats_option():
    slow = measured(80.0)
    entry_allows = baseline(90.0, 90.0, 90.0, 90.0, 90.0, tolerance=0.3)
    assert judge(slow, entry_allows).status is Status.WITHIN
    assert judge(slow, replace(FIVE, tolerance=0.3)).status is Status.WITHIN
    strict = replace(LIMITS, marker=MarkerOptions(tolerance=0.05))
    assert judge(slow, entry_allows, strict, fresh=fresh_processes(80.0, 80.0, 80.0)).status is Status.REGRESSED
    assert judge(slow, FIVE, replace(LIMITS, tolerance=0.3)).status is Status.WITHIN


def test_update_writes_instead_of_judging():
    everything, new = replace(LIMITS, writes="all"), replace(LIMITS, writes="new")
    assert judge(measured(50.0), FIVE, everything).status is Status.UPDATED
    assert judge(measured(50.0), replace(FIVE, entries={}), new).status is Status.UPDATED
    assert judge(measured(90.0), FIVE, new).status is Status.WITHIN


def test_an_update_does_not_write_what_misses_its_floor():
    limits = replace(LIMITS, writes="all", marker=MarkerOptions(min_gbps=95.0))
    assert judge(measured(90.0), FIVE, limits, fresh=fresh_processes(90.0, 90.0, 90.0)).status is Status.REGRESSED


def test_all_suspects_of_a_test_share_the_fresh_processes():
    calls = []

    def run():
        calls.append(1)
        return {None: Metrics(80.0, 0.8, 100.0), "b": Metrics(80.0, 0.8, 100.0)}

    known = for_both(FIVE)
    both = {KEY: measured(80.0), OTHER: replace(measured(80.0), label="b")}
    judged = judge_test(both, known, LIMITS, again(run), never_probe)
    assert [j.verdict.status for j in judged.values()] == [Status.REGRESSED, Status.REGRESSED]
    assert len(calls) == 2


def test_one_suspect_that_is_not_settled_takes_all_fresh_processes():
    calls = []

    def run():
        calls.append(1)
        share = 0.8 if len(calls) == 2 else 0.9
        return {None: Metrics(80.0, 0.8, 100.0), "b": Metrics(100 * share, share, 100.0)}

    known = for_both(FIVE)
    both = {KEY: measured(80.0), OTHER: replace(measured(80.0), label="b")}
    judged = judge_test(both, known, LIMITS, again(run), never_probe)
    assert [j.verdict.status for j in judged.values()] == [Status.REGRESSED, Status.UNCONFIRMED]
    assert len(calls) == 3


SEEN = st.tuples(st.floats(0.75, 0.95), st.sampled_from((99.0, 100.0, 145.0)))


@settings(deadline=None)
@given(
    figures=st.lists(st.tuples(SEEN, SEEN), min_size=10, max_size=10),
    confirm=st.integers(1, 5),
    runs=st.integers(1, 6),
    judged_on=st.sampled_from(("relative", "gbps")),
    tolerance=st.sampled_from((0.05, 0.001)),
)
def test_the_processes_that_are_spared_would_have_changed_no_verdict(figures, confirm, runs, judged_on, tolerance):
    known = for_both(baseline(*[90.0] * runs, judged_on=judged_on))
    limits = replace(LIMITS, confirm=confirm, tolerance=tolerance)
    suspects = {KEY: measured(70.0), OTHER: replace(measured(70.0), label="b")}

    def statuses():
        processes = iter(figures)

        def run():
            seen = zip((None, "b"), next(processes), strict=True)
            return {label: Metrics(share * probe, share, probe) for label, (share, probe) in seen}

        return [
            j.verdict.status for j in judge_test(suspects, known, limits, again(run), lambda _r, _w: 100.0).values()
        ]

    sparing = statuses()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confirmation, "is_settled", lambda *_: False)
        assert statuses() == sparing


def test_what_most_agree_on_is_not_confirmed_where_one_that_ran_lacks_it():
    shows = iter(({"b": 0.9}, {None: 0.8, "b": 0.8}, {None: 0.8, "b": 0.9}))

    def run():
        return {label: Metrics(100 * share, share, 100.0) for label, share in next(shows).items()}

    known = for_both(FIVE)
    both = {KEY: measured(80.0), OTHER: replace(measured(80.0), label="b")}
    judged = judge_test(both, known, LIMITS, again(run), never_probe)
    assert [j.verdict.status for j in judged.values()] == [Status.UNCONFIRMED, Status.UNCONFIRMED]
    assert "2 fresh processes measured it, and validly; 3 have to" in judged[KEY].verdict.reason


def test_what_most_agree_on_is_not_confirmed_where_one_more_ran_and_failed():
    shows = iter(((0.8, 0.9), (0.8, 0.8)))

    def run():
        try:
            shares = next(shows)
        except StopIteration:
            raise BandwidthError("a fresh process ended with exit status 4") from None
        return {label: Metrics(100 * s, s, 100.0) for label, s in zip((None, "b"), shares, strict=True)}

    known = for_both(FIVE)
    both = {KEY: measured(80.0), OTHER: replace(measured(80.0), label="b")}
    judged = judge_test(both, known, LIMITS, again(run), never_probe)
    assert [j.verdict.status for j in judged.values()] == [Status.UNCONFIRMED, Status.UNCONFIRMED]


def test_without_confirmation_a_clear_drop_fails_at_once():
    assert judge(measured(70.0), FIVE, replace(LIMITS, confirm=0)).status is Status.REGRESSED


SLOW, SLOW_ON_FASTER, NO_PROBE = Metrics(80.0, 0.80, 100.0), Metrics(80.0, 0.55, 145.0), Metrics(80.0)
# Shares, and not what probes they are of: a device that is faster cannot be told.
ONLY_SHARES = replace(FIVE, entries={KEY: Entry(KEY, gbps=90.0, runs=(Run(gbps=90.0, relative=0.9),) * 5)})


@pytest.mark.parametrize(
    ("known", "seen", "status"),
    [
        (FIVE, (SLOW, SLOW, SLOW), Status.REGRESSED),
        (FIVE, (SLOW, NO_PROBE, SLOW), Status.UNCONFIRMED),
        (ONLY_SHARES, (SLOW, NO_PROBE, SLOW), Status.UNCONFIRMED),
        (FIVE, (SLOW, SLOW, NO_PROBE), Status.REGRESSED),  # two agree: the third does not run
        (FIVE, (SLOW_ON_FASTER, SLOW_ON_FASTER, NO_PROBE), Status.UNCONFIRMED),
        (FIVE, (SLOW, NO_PROBE, SLOW_ON_FASTER), Status.UNCONFIRMED),
    ],
)
def test_as_many_fresh_processes_as_were_asked_for_must_hold_the_figure(known, seen, status):
    processes = iter(seen)

    def run():
        try:
            return {None: next(processes)}
        except StopIteration:
            raise BandwidthError("a fresh process ended with exit status 4") from None

    verdict = judge(measured(80.0), known, fresh=run)
    assert verdict.status is status
    if status is Status.UNCONFIRMED:
        assert verdict.code == "no-fresh-process"
        assert "not confirmed: a probe ran in " in verdict.reason


@pytest.mark.parametrize(("of_marker", "status"), [(0.0, Status.REGRESSED), (None, Status.WITHIN)])
def test_a_markers_tolerance_of_nothing_holds_for_counts_before_the_entrys(of_marker, status):
    device = DeviceIdentity("traffic", "traffic sm_90", None, "model")
    counted = Measurement(None, Traffic(64, 0), device, "ptx", Rounds(), counts={"load_sectors": 102})
    entry = Entry(KEY, tolerance=0.05, counts={"load_sectors": 100})
    known = Baseline(BaselineDevice("traffic sm_90"), {KEY: entry}, path="b.yaml")
    assert judge(counted, known, replace(LIMITS, marker=MarkerOptions(tolerance=of_marker))).status is status
