"""Verdicts on code that is the baseline's: nothing regressed, and what was lost has a name. No device."""

from dataclasses import replace

import pytest
from judged_kernels import FIVE, GPU, KEY, LIMITS, LIMITS_10, baseline, fresh_processes, judge, measured

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import SLOWDOWN, Conditions, DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.judging.by_code.same_code import OTHER_DATA, may_have_changed
from pytest_bandwidth.domain.judging.causes import likely_causes
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.measured.measurement import Finding, Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Status

CODE = CodeIdentity(ptx="a" * 32, sass="b" * 32, launch="c" * 32)
OTHER = replace(CODE, ptx="d" * 32, sass="e" * 32)
KNOWN = baseline(90.0, 90.0, 90.0, 90.0, 90.0, code=CODE.known())
ONE_RUN = baseline(90.0, code=CODE.known())


def same(gbps, **more):
    return measured(gbps, code=CODE, **more)


def test_same_code_is_unchanged_whatever_noise_hides():
    for gbps, known in ((90.0, KNOWN), (96.0, KNOWN), (89.0, KNOWN), (90.0, ONE_RUN)):
        verdict = judge(same(gbps), known)
        assert (verdict.status, verdict.code) == (Status.UNCHANGED, "same-code")
        assert not verdict.status.fails(strict=True)
    assert judge(measured(96.0), FIVE).status is Status.IMPROVED
    assert judge(measured(90.0), baseline(90.0)).status is Status.INSUFFICIENT


def test_other_or_unknown_code_is_judged_as_ever():
    for code in (OTHER, CodeIdentity(), replace(CODE, launch="f" * 32), replace(CODE, sass="f" * 32)):
        now = measured(80.0, code=code)
        assert judge(now, KNOWN, fresh=fresh_processes(80.0, 80.0, 80.0)).status is Status.REGRESSED
        assert judge(replace(measured(90.0), code=code), KNOWN).status is Status.WITHIN
    assert judge(same(80.0), FIVE, fresh=fresh_processes(80.0, 80.0, 80.0)).status is Status.REGRESSED


def test_a_drop_of_same_code_that_fresh_processes_confirm_is_the_devices():
    verdict = judge(same(80.0), KNOWN, fresh=fresh_processes(80.0, 80.0, 80.0))
    assert (verdict.status, verdict.code) == (Status.DEVICE, "same-code")
    assert verdict.reason.startswith("the code is the baseline's, and 11.1 % below the baseline")
    assert verdict.reason.endswith(f"nothing that runs record differs from the newest; {OTHER_DATA}")
    assert verdict.status.fails(strict=True)
    assert not verdict.status.fails(strict=False)


@pytest.mark.parametrize("probe_gbps", [100.0, 109.0, 92.0])
def test_a_probe_like_that_of_the_newest_run_is_nothing_to_name(probe_gbps):
    now = same(60.0, probe_gbps=probe_gbps)
    assert "a probe at" not in judge(now, KNOWN, replace(LIMITS, confirm=0)).reason


def test_a_drop_beside_another_probe_names_both():
    verdict = judge(same(60.0, probe_gbps=146.0), KNOWN, replace(LIMITS, confirm=0))
    assert verdict.status is Status.DEVICE
    assert verdict.reason.endswith(
        f"; what differs is a probe at 146 GB/s, 100 GB/s beside the newest run; {OTHER_DATA}"
    )


def test_without_fresh_processes_the_first_look_decides():
    verdict = judge(same(60.0), KNOWN, replace(LIMITS, confirm=0))
    assert (verdict.status, verdict.code) == (Status.DEVICE, "same-code")


def test_a_drop_of_same_code_that_fresh_processes_do_not_show_is_none():
    verdict = judge(same(80.0), KNOWN, fresh=fresh_processes(90.0, 90.0, 90.0))
    assert verdict.status is Status.UNCHANGED
    assert "in fresh ones" in verdict.reason


def test_a_share_of_faster_memory_is_no_drop_of_same_code():
    on_faster = {None: Metrics(89.0, 0.61, 146.0)}
    known = measured(89.0, probe_gbps=146.0)
    assert judge(known, FIVE, fresh=lambda: on_faster).status is Status.DEVICE
    verdict = judge(replace(known, code=CODE), KNOWN, fresh=lambda: on_faster)
    assert verdict.status is Status.UNCHANGED
    assert verdict.reason.startswith("the code is the baseline's; the device is up, not the kernel down")


def test_a_drop_that_no_process_could_look_at_is_not_waved_through():
    def broken():
        raise BandwidthError("a fresh process ended with exit status 4")

    verdict = judge(same(80.0), KNOWN, fresh=broken)
    assert (verdict.status, verdict.code) == (Status.UNCONFIRMED, "no-fresh-process")


def test_a_small_drop_of_same_code_takes_no_fresh_process():
    gbps = 90.0 * 0.955  # in doubt, by a tolerance of 10 %: no fresh process is allowed here
    assert judge(same(gbps), KNOWN, LIMITS_10).status is Status.UNCHANGED


def test_floors_hold_for_same_code():
    limits = replace(LIMITS, marker=MarkerOptions(min_gbps=85.0))
    missed = judge(same(80.0), KNOWN, limits, fresh=fresh_processes(80.0, 80.0, 80.0))
    assert (missed.status, missed.code) == (Status.REGRESSED, "floor:min_gbps")
    assert judge(same(90.0), KNOWN, limits).status is Status.UNCHANGED


def test_same_code_that_cannot_be_compared_or_trusted_says_so():
    assert judge(
        replace(same(90.0), method="events+block"), baseline(90.0, code=CODE.known(), method="events")
    ).status is (Status.NOT_COMPARABLE)
    invalid = replace(same(90.0), invalid=Finding("clock", "a sample took no time"))
    assert judge(invalid, KNOWN).status is Status.INVALID


RECORDED = {"driver_version": "570.10", "power_limit_w": "700.0", "numpy": "2.0.0"}


def recorded(**more):
    run = Run(gbps=90.0, probe_gbps=100.0, gpu="GPU-1", extra=RECORDED)
    entry = replace(Entry(KEY, gbps=90.0, runs=(run,) * 5, code=CODE.known()), **more)
    return Baseline(BaselineDevice("A card"), {KEY: entry}, path="b.yaml")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"software": {"numpy": "2.0.0", "numba": "0.61"}}, "nothing that runs record differs from the newest"),
        (
            {"software": {"numpy": "2.1.0"}},
            "what differs is numpy 2.0.0 → 2.1.0: pairs with the old versions would tell whether they are why",
        ),
        (
            {"device": replace(GPU, facts={"driver_version": "580.65"}), "software": {"numpy": "2.0.0"}},
            "what differs is driver version 570.10 → 580.65: pairs with the old versions would tell whether "
            "they are why",
        ),
        (
            {"device": replace(GPU, facts={"power_limit_w": 500.0}), "software": {"numpy": "2.1.0"}},
            "what differs is power limit 700.0 → 500.0 W, numpy 2.0.0 → 2.1.0",
        ),
        ({"device": replace(GPU, serial="GPU-2")}, "what differs is another card, GPU-2"),
        ({"findings": (Finding(SLOWDOWN, "the driver reports heat"),)}, "what differs is the driver reports heat"),
        (
            {"conditions_after": Conditions(others_processors=0.4), "software": {"numpy": "2.1.0"}},
            "what differs is others keep 0.4 processors busy, numpy 2.0.0 → 2.1.0",
        ),
    ],
)
def test_the_reason_says_what_differs_now(change, said):
    now = replace(same(80.0), **change)
    verdict = judge(now, recorded(), fresh=fresh_processes(80.0, 80.0, 80.0))
    assert verdict.status is Status.DEVICE
    assert verdict.reason.endswith(f"; {said}; {OTHER_DATA}")


def test_other_indices_are_another_measurement_and_its_first_cause():
    code = replace(CODE, inputs="1" * 32)
    known = baseline(90.0, 90.0, 90.0, 90.0, 90.0, code=code.known())
    entry = known.entries[KEY]
    assert judge(measured(90.0, code=code), known).status is Status.UNCHANGED
    other = measured(80.0, code=replace(code, inputs="2" * 32))
    assert judge(other, known, fresh=fresh_processes(80.0, 80.0, 80.0)).status is Status.REGRESSED
    assert may_have_changed(other, entry)
    assert likely_causes(other, entry)[0] == "the contents of an index array changed"


def test_what_changed_in_the_code_is_the_first_cause():
    entry = KNOWN.entries[KEY]
    causes = likely_causes(measured(80.0, code=OTHER), entry)
    assert causes[0] == "the kernel's code changed"
    rebuilt = likely_causes(measured(80.0, code=replace(CODE, sass="e" * 32)), entry)
    assert rebuilt[0].startswith("the same PTX became other machine code")
    assert not any("code" in cause for cause in likely_causes(measured(80.0), entry))


COUNTING = DeviceIdentity("traffic", "traffic sm_90", None, "model")


def counted(code, **counts):
    return Measurement(None, Traffic(64, 0), COUNTING, "ptx", Rounds(), counts=counts, code=code)


def of_counts(**counts):
    entry = Entry(KEY, counts=counts, code=CODE.known())
    return Baseline(BaselineDevice("traffic sm_90"), {KEY: entry}, path="b.yaml")


def test_counts_are_unchanged_where_code_and_every_count_are():
    known = of_counts(load_sectors=100, load_requests=10)
    assert judge(counted(CODE, load_sectors=100, load_requests=10), known).status is Status.UNCHANGED
    rebuilt = replace(CODE, sass="e" * 32)  # what is counted is the PTX
    assert judge(counted(rebuilt, load_sectors=100, load_requests=10), known).status is Status.UNCHANGED
    assert judge(counted(OTHER, load_sectors=100, load_requests=10), known).status is Status.WITHIN
    assert judge(counted(CODE, load_sectors=100, load_requests=11), known).status is Status.WITHIN
    assert judge(counted(CODE, load_sectors=99, load_requests=10), known).status is Status.IMPROVED


def test_counts_of_the_same_ptx_are_comparable_whichever_compiler_made_it():
    entry = Entry(KEY, counts={"load_sectors": 100}, code=CODE.known(), settings={"arch": "sm_90", "nvrtc": "13.5"})
    known = replace(of_counts(load_sectors=100), entries={KEY: entry})

    def judged(code, sectors=100, **settings):
        device = replace(COUNTING, settings={"arch": "sm_90", "nvrtc": "13.0", **settings})
        return judge(replace(counted(code, load_sectors=sectors), device=device), known)

    assert judged(CODE).status is Status.UNCHANGED
    assert judged(CODE, 101).status is Status.REGRESSED
    assert (judged(CODE, arch="sm_80").status, judged(CODE, arch="sm_80").code) == (
        Status.NOT_COMPARABLE,
        "setting:arch",
    )
    assert judged(OTHER).code == judged(CodeIdentity()).code == "setting:nvrtc"


def test_counts_of_same_code_that_rose_are_of_other_data():
    verdict = judge(counted(CODE, load_sectors=101), of_counts(load_sectors=100))
    assert verdict.status is Status.REGRESSED
    assert verdict.reason.endswith("the code is the baseline's, so the test's data are others")
