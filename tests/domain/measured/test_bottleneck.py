"""What a bottleneck's sentence says, and when there is none."""

from dataclasses import replace

import pytest

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.bottleneck import BOTTLENECK_FOUND, access_sentence, bottleneck_of
from pytest_bandwidth.domain.measured.measurement import Finding, KernelResources, Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.suite import traffic_models as traffic

DEVICE = DeviceIdentity("traffic", "traffic sm_90", None, "model", timed_on="nothing")


def measured(moved: Traffic, **more) -> Measurement:
    return Measurement(None, moved, DEVICE, "ptx", Rounds(), **more)


def counted(sectors: int, fewest: int, pattern: str) -> dict:
    return {"sectors": sectors, "coalescing": fewest / sectors, "pattern": pattern, "requests": 1}


COPY = traffic.copy(1024, "float32")


def test_strided_reads_are_told_with_the_sectors_they_need():
    detail = {"loads": counted(1024, 128, "strided (32 bytes)"), "stores": counted(128, 128, "coalesced")}
    assert bottleneck_of(measured(COPY, detail=detail)) == "strided reads ask for 8.0× the sectors they need"


def test_of_reads_and_writes_the_one_that_wastes_more_sectors_is_told():
    detail = {"loads": counted(150, 100, "misaligned"), "stores": counted(3200, 400, "strided (64 bytes)")}
    assert bottleneck_of(measured(COPY, detail=detail)) == "strided writes ask for 8.0× the sectors they need"


def test_a_pattern_that_most_requests_do_not_show_is_not_named():
    detail = {"loads": counted(200, 100, "coalesced")}
    assert bottleneck_of(measured(COPY, detail=detail)) == "reads ask for 2.0× the sectors they need"


@pytest.mark.parametrize("detail", [{}, {"loads": counted(128, 128, "coalesced")}, {"stores": {"requests": 0}}])
def test_well_ordered_accesses_have_no_bottleneck(detail):
    assert bottleneck_of(measured(COPY, detail=detail)) is None


def test_a_misaligned_warp_is_worth_telling_and_a_ragged_end_is_not():
    assert access_sentence("reads", "misaligned", 5 / 4) == "misaligned reads ask for 1.2× the sectors they need"
    assert access_sentence("reads", "strided", 8, "bytes") == "strided reads ask for 8.0× the bytes they need"
    assert access_sentence("reads", "coalesced", 1.05) is None


def test_spills_are_told():
    resources = KernelResources(registers=255, local_bytes=128, shared_bytes=0)
    assert "128 B of local memory a thread" in bottleneck_of(measured(COPY, resources=resources))
    assert bottleneck_of(measured(COPY, resources=replace(resources, local_bytes=0))) is None


def test_bytes_that_a_model_asks_for_again_are_told():
    naive = traffic.gemm(256, 256, 256, "float32", tile=1)
    assert bottleneck_of(measured(naive)) == (
        "reads ask for 256× the distinct bytes: what caches do not serve comes from memory again"
    )
    assert bottleneck_of(measured(traffic.softmax(8, 1024, "float32", row_reads=2))) is None
    assert bottleneck_of(measured(Traffic(0, 8, requested_read=8))) is None


def test_a_suites_own_finding_comes_first():
    own = Finding(BOTTLENECK_FOUND, "strided reads ask for 8.0× the bytes they need")
    resources = KernelResources(registers=255, local_bytes=128, shared_bytes=0)
    assert bottleneck_of(measured(COPY, findings=(own,), resources=resources)) == own.text
