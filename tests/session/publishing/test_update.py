"""An update takes fresh runs for the same state of the code, or starts afresh, by the rule that tests are judged by."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from baseline_files import write_baseline

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.domain.measured.measurement import Measurement, Rounds
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.judging.stored import PRIOR_SPREAD, reference_of
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.entries import entries_of, joined, merged
from pytest_bandwidth.outcomes.outcome import outcome_of
from pytest_bandwidth.session.publishing.gathered import Row
from pytest_bandwidth.session.publishing.update import update_baseline

NOW = "2026-11-21T04:00:00Z"
KEY, OTHER = "tests/test_a.py::test_copy", "tests/test_a.py::test_other"
BYTES = 10**9
GPU = DeviceIdentity("cuda", "A device", 2**34, "1", timed_on="gpu")
WRITTEN = Decision(Status.SAVED, Rule.WRITTEN)
FRESH = Decision(Status.UNDECIDED, "new-process")
# One run and another, five degrees of freedom: what a GPU's prior explains, and what a host's does.
OF_GPU, OF_HOST = (t_quantile(0.999, 5) * PRIOR_SPREAD[prior] * math.sqrt(2) for prior in ("gbps", "gbps:host"))


def row(gbps: float, identity: DeviceIdentity = GPU, probe_gbps: float | None = None, decision=WRITTEN):
    """One process's row; without a probe it is judged on GB/s."""
    seconds = (BYTES / gbps / 1e9,)
    rounds = Rounds(kernel_seconds=seconds, host_kernel_seconds=seconds)
    if probe_gbps is not None:
        beside = (BYTES / probe_gbps / 1e9,)
        rounds = replace(rounds, probe_seconds=beside, kernel_first=(True,), probe_bytes=BYTES)
    measurement = Measurement(None, Traffic(BYTES // 2, BYTES // 2), identity, "clock", rounds)
    return outcome_of(KEY, KEY, Judged(measurement, None, decision), "")


def update(
    path: Path, gbps: float, *, kind: str = "cuda", probe_gbps: float | None = None, option=0.05, asked=None
) -> Entry:
    """What the file holds after one more run at so many GB/s."""
    identity = replace(GPU, kind=kind, timed_on="gpu" if kind == "cuda" else "host")
    outcome = row(gbps, identity, probe_gbps)
    evidence = entries_of(identity, [outcome], [], None, NOW)
    settings = Settings(baseline=path, update=True, runs=1, tolerance=option)
    update_baseline(settings, identity, [evidence], [Row(outcome, asked or MarkerOptions())])
    return baseline_files.load(path).entries[KEY]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "b.yaml"


@pytest.mark.parametrize(("kind", "runs"), [("cpu", 2), ("cuda", 1)])
def test_what_runs_on_the_host_is_updated_with_the_hosts_prior(path, kind, runs):
    assert update(path, 100.0, kind=kind).judged_on == "gbps"
    assert len(update(path, 100.0 * math.exp(-(OF_GPU + OF_HOST) / 2), kind=kind).runs) == runs


@pytest.mark.parametrize("figure", ["gbps", "relative"])
def test_the_prior_is_that_of_the_figure_which_the_entry_is_judged_on(path, figure):
    assert update(path, 100.0, kind="cpu", probe_gbps=110.0).judged_on == "relative"
    path.write_text(f"{path.read_text()}    judged_on: {figure}\n")
    kept = update(path, 100.0 * math.exp(-(OF_GPU + OF_HOST) / 2), kind="cpu", probe_gbps=110.0)
    assert (kept.judged_on, len(kept.runs)) == (figure, 2 if figure == "gbps" else 1)


@pytest.mark.parametrize(("asked", "runs"), [("gbps", 2), (None, 1)])
def test_runs_are_held_to_the_old_ones_by_the_markers_figure(path, asked, runs):
    """The same GB/s beside a probe that became faster: only the share dropped."""
    assert update(path, 100.0, probe_gbps=100.0).judged_on == "relative"
    assert len(update(path, 100.0, probe_gbps=130.0, asked=MarkerOptions(judged_on=asked)).runs) == runs


def test_runs_are_held_to_the_entrys_own_spread(path):
    device = BaselineDevice(GPU.name, GPU.memory_gib, GPU.kind)
    setup = {"bytes_read": BYTES // 2, "bytes_written": BYTES // 2, "method": "clock"}
    runs = tuple(Run(gbps) for gbps in (80.0, 90.0, 100.0, 110.0, 120.0, 130.0))
    entry = Entry(KEY, gbps=105.0, judged_on="gbps", runs=runs, **setup)
    write_baseline(path, Baseline(device, {KEY: entry}))
    logs = [math.log(run.gbps) for run in runs]
    mean = sum(logs) / 6
    squares = sum((value - mean) ** 2 for value in logs)
    spread = math.sqrt((5 * PRIOR_SPREAD["gbps"] ** 2 + squares) / 10)
    centre = (math.log(100.0) + math.log(110.0)) / 2
    limit = math.exp(centre - t_quantile(0.999, 10) * spread * math.sqrt(1 + 1 / 6))
    assert len(update(path, limit * 0.999).runs) == 1
    write_baseline(path, Baseline(device, {KEY: entry}))
    assert len(update(path, limit * 1.001).runs) == 7


@pytest.mark.parametrize(("gbps", "runs"), [(99.0, 2), (50.0, 1)])
def test_an_update_keeps_what_people_wrote(gbps, runs):
    by_hand = {"tolerance": 0.03, "xfail": "waits for the driver", "note": "ECC on"}
    old = Entry(KEY, gbps=100.0, judged_on="gbps", runs=(Run(100.0),), **by_hand)
    after = merged(
        old, Entry(KEY, gbps=gbps, judged_on="gbps", runs=(Run(gbps),)), 0.03, reference_of(old, "gbps", False)
    )
    assert {name: getattr(after, name) for name in by_hand} == by_hand
    assert len(after.runs) == runs


def test_invalid_further_runs_are_no_evidence():
    invalid = replace(row(90.0, decision=FRESH), is_valid=False)
    further = [[invalid.to_plain()], [row(101.0, decision=FRESH).to_plain()]]
    entry = entries_of(GPU, [row(100.0)], further, None, NOW)[KEY]
    assert [round(run.gbps, 6) for run in entry.runs] == [100.0, 101.0]


def test_the_share_of_a_hindered_probe_is_no_evidence_beside_others():
    """A probe of a hundredth of its speed, where a host's user lets others in."""
    further = [[row(gbps, GPU, probe, FRESH).to_plain()] for gbps, probe in ((99.0, 1.0), (98.0, 100.0))]
    entry = entries_of(GPU, [row(100.0, GPU, 1.0)], further, None, NOW)[KEY]
    assert [(round(run.gbps, 6), run.relative, run.probe_gbps) for run in entry.runs[:2]] == [
        (100.0, None, None),
        (99.0, None, None),
    ]
    assert entry.runs[2].relative == pytest.approx(0.98)
    assert merged(None, entry, 0.03, None).anchor.relative == pytest.approx(0.98)
    # Where each process says the same, the probe may be one thread's, and tells of the device.
    alike = entries_of(GPU, [row(100.0, GPU, 30.0)], [[row(99.0, GPU, 30.0, FRESH).to_plain()]], None, NOW)[KEY]
    assert [round(run.probe_gbps, 6) for run in alike.runs] == [30.0, 30.0]
    assert alike.judged_on == "gbps"


CODE, OTHER_CODE = ({"ptx": digit * 32, "sass": digit * 32, "launch": digit * 32} for digit in "ab")


def ran(gbps: float, code: dict[str, str]):
    return replace(row(gbps), code_identity=code, software={"numpy": "2.0.0"})


def test_an_entry_keeps_the_code_of_all_its_processes_and_runs_the_facts_that_explain_a_drop():
    entry = entries_of(GPU, [ran(100.0, CODE)], [[ran(101.0, CODE).to_plain()]], "0123456", NOW, dirty=True)[KEY]
    assert entry.code == CODE
    assert [(run.dirty, dict(run.extra)) for run in entry.runs] == [(True, {"numpy": "2.0.0"})] * 2
    for further in (ran(101.0, OTHER_CODE), row(101.0)):
        assert entries_of(GPU, [ran(100.0, CODE)], [[further.to_plain()]], None, NOW)[KEY].code == {}
    facts = {"cuda_runtime": "13.2", "power_limit_w": 700.0, "sm_count": 132, "default_sm_clock_mhz": None}
    (run,) = entries_of(replace(GPU, facts=facts), [ran(100.0, CODE)], [], None, NOW)[KEY].runs
    assert run.extra == {"cuda_runtime": "13.2", "power_limit_w": "700.0", "numpy": "2.0.0"}


def test_an_entry_is_of_the_code_of_its_newest_runs(path):
    """Whether the new runs continue the old ones or not."""
    for gbps, code in ((100.0, CODE), (101.0, OTHER_CODE), (50.0, CODE), (50.0, {})):
        evidence = entries_of(GPU, [ran(gbps, code)], [], None, NOW)
        update_baseline(Settings(baseline=path, update=True, runs=1), GPU, [evidence])
        assert baseline_files.load(path).entries[KEY].code == code


def of_device(gpu, *gbps, **fields):
    runs = tuple(Run(value, 100.0, value / 100, gpu=gpu) for value in gbps)
    return Entry("t", **{"judged_on": "relative", "bytes_read": 8, "method": "events", **fields}, runs=runs)


def test_runs_of_several_devices_are_taken_in_turn_and_the_newest_kept_are_of_each():
    found = joined([of_device("A", 1.0, 2.0, 3.0), of_device("B", 4.0), of_device("C", 5.0, 6.0)], on_host=False)
    assert [run.gpu + str(int(run.gbps)) for run in found.runs] == ["A1", "B4", "C5", "A2", "C6", "A3"]
    of_all = joined([of_device(gpu, *[90.0] * 5) for gpu in "ABCDEFGH"], on_host=False)
    found = merged(None, of_all, 0.05, None)
    older = merged(found, of_all, 0.05, reference_of(found, "relative", on_host=False))
    assert {run.gpu for run in older.runs} == set("ABCDEFGH")
    steady = [Run(90.0, 100.0 + n, 90.0 / (100.0 + n)) for n in (0, 30, 0, 30, 15)]
    of_devices = [Entry("t", judged_on="relative", runs=(run,)) for run in steady]
    assert joined(of_devices[:1], on_host=False).judged_on == "relative"
    assert joined(of_devices, on_host=False).judged_on == "gbps"


@pytest.mark.parametrize(
    "fields", [{"bytes_read": 9}, {"method": "clock"}, {"settings": {"ecc": "off"}}, {"counts": {"loads": 1}}]
)
def test_devices_that_measured_something_else_do_not_share_an_entry(fields):
    with pytest.raises(BaselineError, match=f"found {next(iter(fields))} .* expected one"):
        joined([of_device("A", 1.0), of_device("B", 1.0, **fields)], on_host=False)
