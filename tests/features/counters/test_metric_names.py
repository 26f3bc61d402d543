"""The names that we ask each chip for exist there, and are counted in one pass: CUPTI's host library says so."""

import pytest
from cupti_host import CuptiError, CuptiHost

from pytest_bandwidth.features.counters.dram_traffic import CountersFailed
from pytest_bandwidth.features.counters.ncu_csv import metrics_of

# CUDA C++ Programming Guide, "Compute Capabilities", and the chips of NVIDIA's open kernel modules.
CAPABILITIES = {
    "GV100": "7.0",
    "GV11B": "7.2",
    **dict.fromkeys(["TU102", "TU104", "TU106", "TU116", "TU117"], "7.5"),
    "GA100": "8.0",
    **dict.fromkeys(["GA102", "GA103", "GA104", "GA106", "GA107"], "8.6"),
    "GA10B": "8.7",
    **dict.fromkeys(["AD102", "AD103", "AD104", "AD106", "AD107"], "8.9"),
    "GH100": "9.0",
    **dict.fromkeys(["GB100", "GB102"], "10.0"),
    "GB110": "10.3",
    "GB10B": "11.0",
    **dict.fromkeys(["GB202", "GB203", "GB205", "GB206", "GB207"], "12.0"),
    "GB20B": "12.1",
}


@pytest.fixture(scope="module")
def cupti() -> CuptiHost:
    try:
        return CuptiHost()
    except (ModuleNotFoundError, OSError) as reason:
        pytest.skip(str(reason))


def test_every_chip_that_the_library_knows_is_here(cupti: CuptiHost) -> None:
    assert sorted(cupti.chips()) == sorted(CAPABILITIES)


@pytest.mark.parametrize("chip", CAPABILITIES)
def test_all_of_a_chips_names_are_counted_in_one_pass(cupti: CuptiHost, chip: str) -> None:
    try:
        names = metrics_of(CAPABILITIES[chip]).names
    except CountersFailed:
        for spelling in ("", "op_"):
            with pytest.raises(CuptiError):
                cupti.passes(chip, [f"dram__bytes_{spelling}read.sum"])
        return
    assert cupti.passes(chip, names) == 1


def test_the_names_of_one_chip_are_not_those_of_the_other(cupti: CuptiHost) -> None:
    for chip, other in (("GH100", "12.0"), ("GB202", "9.0")):
        with pytest.raises(CuptiError):
            cupti.passes(chip, metrics_of(other).names)


@pytest.mark.parametrize(
    ("capability", "said"),
    [
        ("6.1", "counts from compute capability 7.0 on, this GPU has 6.1"),
        ("8.7", "this chip (compute capability 8.7) has no counters of DRAM"),
        ("None", "found compute capability 'None'"),
    ],
)
def test_chips_without_counters(capability: str, said: str) -> None:
    with pytest.raises(CountersFailed) as caught:
        metrics_of(capability)
    assert said in str(caught.value)
