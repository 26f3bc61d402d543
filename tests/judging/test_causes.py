"""What a regression's message names as its likely cause, from what the baseline recorded. No device."""

from dataclasses import asdict, replace

import pytest

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import KernelResources, Measurement, Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.judging.causes import likely_causes, recorded_resources
from pytest_bandwidth.judging.judge import Judged

FACTS = {"driver_version": "580.1", "max_sm_clock_mhz": 1980, "power_limit_w": 500.0}
DEVICE = DeviceIdentity("cuda", "Imaginary GPU", 2**30, "GPU-0", facts=FACTS, timed_on="gpu")
LEAN = KernelResources(registers=32, local_bytes=0, shared_bytes=4096, max_threads_per_block=1024, occupancy=1.0)
ROUNDS = Rounds(kernel_seconds=(2e-3,) * 3, probe_seconds=(1e-3,) * 3, probe_bytes=10**9, probe_name="add")


def measured(resources: KernelResources | None) -> Measurement:
    return Measurement(None, Traffic(10**9, 0), DEVICE, "events", ROUNDS, resources=resources)


def entry(resources: KernelResources | None, **facts: str) -> Entry:
    run = Run(gbps=1000.0, probe_gbps=1000.0, extra=facts)
    recorded = recorded_resources(asdict(resources) if resources else None)
    return Entry("t.py::t", gbps=1000.0, resources=recorded, runs=(run,))


SLOWER = Decision(Status.REGRESSED, Rule.STORED)
COUNTED = Decision(Status.REGRESSED, Rule.COUNTS)
OLD_CODE = Decision(Status.REGRESSED, Rule.OLD_KERNEL)
OF_FEATURE = Decision(Status.REGRESSED, "dram", facts={"about": "DRAM traffic"})


def causes_of(measurement, entry, decision=SLOWER, old=None):
    return likely_causes(Judged(measurement, entry, decision, old_resources=old))


@pytest.mark.parametrize(
    ("probe_seconds", "blame"),
    [
        (1.0e-3, "the kernel, not the device"),
        (1.1e-3, "the kernel, more than the device, which is 9.1 % slower, too"),
        (1.9e-3, "the device is 47.4 % slower, too"),
        (0.9e-3, "the kernel, while the device is faster now"),
    ],
)
def test_the_probe_tells_whether_kernel_or_device_lost_more(probe_seconds, blame):
    """The kernel lost half of its GB/s."""
    now = replace(measured(LEAN), rounds=replace(ROUNDS, probe_seconds=(probe_seconds,) * 3))
    (cause,) = causes_of(now, entry(LEAN))
    assert cause.startswith(f"{blame}: the probe (add) reached 1000 GB/s then, ")


def test_the_probe_is_no_cause_of_counts():
    spilling = replace(LEAN, local_bytes=64)
    assert causes_of(measured(spilling), entry(LEAN), COUNTED) == ("spills 0 → 64 B a thread",)
    assert causes_of(measured(LEAN), entry(LEAN), COUNTED) == ()
    alone = replace(measured(LEAN), rounds=replace(ROUNDS, probe_seconds=(), probe_bytes=0))
    assert causes_of(alone, entry(LEAN)) == ()


def test_what_is_recorded_is_whole_numbers_by_name():
    assert recorded_resources(asdict(LEAN)) == {
        "registers": 32,
        "local_bytes": 0,
        "shared_bytes": 4096,
        "max_threads_per_block": 1024,
        "occupancy_percent": 100,
    }
    launched = replace(LEAN, grid=(8, 1, 1), block=(64, 2, 1), dynamic_shared_bytes=0)
    shape = {"grid_x": 8, "block_x": 64, "block_y": 2}
    assert recorded_resources(asdict(launched)) == {**recorded_resources(asdict(LEAN)), **shape}
    assert recorded_resources({**asdict(launched), "grid": [8]}) == recorded_resources(asdict(LEAN))
    lean = {"registers": 16, "local_bytes": 0, "shared_bytes": 0}
    assert recorded_resources(asdict(KernelResources(16, 0, 0))) == lean
    assert recorded_resources({**lean, "of_another_version": 1}) == lean
    assert recorded_resources(None) == {}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"registers": 96}, "registers 32 → 96"),
        ({"local_bytes": 128}, "spills 0 → 128 B a thread"),
        ({"shared_bytes": 8192}, "shared memory 4096 → 8192 B a block"),
        ({"occupancy": 0.5}, "occupancy 100 → 50 %"),
    ],
)
def test_each_changed_resource_is_named(changed, said):
    causes = causes_of(measured(replace(LEAN, **changed)), entry(LEAN))
    assert causes[0] == said
    assert not any(known in " ".join(causes[1:]) for known in ("registers", "spills", "shared", "occupancy"))


def test_a_changed_launch_is_named_by_its_figures_where_both_sides_recorded_them():
    before = replace(LEAN, grid=(4096, 1, 1), block=(256, 1, 1), dynamic_shared_bytes=0)
    wide = replace(before, grid=(8192, 1, 1), block=(128, 1, 1))
    code = CodeIdentity(ptx="p", sass="s", launch="l", arguments="a")
    relaunched = replace(measured(wide), code=replace(code, launch="m"))
    known = replace(entry(before), code=code.known())
    assert causes_of(relaunched, known, COUNTED) == ("the launch changed: grid 4,096 → 8,192, block 256 → 128",)
    unrecorded = replace(entry(LEAN), code=code.known())
    assert causes_of(relaunched, unrecorded, COUNTED) == ("the launch changed: grid, block or shared memory",)
    also = replace(relaunched, code=replace(code, launch="m", arguments="b"))
    (arguments, shape) = causes_of(also, known, COUNTED)
    assert (arguments.startswith("the launch's arguments changed"), shape.endswith("block 256 → 128")) == (True, True)


def test_code_that_ran_next_to_its_old_code_is_the_cause_whatever_the_device_does():
    faster = replace(measured(None), rounds=replace(ROUNDS, probe_seconds=(0.5e-3,) * 3))
    known = entry(LEAN, driver_version="570.0")
    assert causes_of(faster, known, OLD_CODE) == ("the code: old and new ran alternately on this machine",)
    spilled = replace(faster, resources=replace(LEAN, local_bytes=128))
    assert causes_of(spilled, known, OLD_CODE) == ("spills 0 → 128 B a thread",)
    # What the compiler gave the old code here counts, and no driver or probe.
    assert causes_of(spilled, known, OF_FEATURE, {"local_bytes": 64}) == ("spills 64 → 128 B a thread",)
    assert causes_of(faster, known, OF_FEATURE, {}) == ()
