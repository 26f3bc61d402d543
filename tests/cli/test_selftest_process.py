"""One process of the self-test on a scripted device: what it measures, and what it tells of an invalid measurement."""

from __future__ import annotations

import json

import pytest
from scripted import ScriptedDevice, repeat

from pytest_bandwidth.cli import selftest_processes
from pytest_bandwidth.cli.selftest_processes import answer, main, measurer_of
from pytest_bandwidth.domain.device import Conditions, Peak

ASKED = {"device": "cpu", "mib": 1, "drops": [0.05], "busy_processors": None, "turn": 1}
ELEMENTS = 2**20 // 4
IDLE = Conditions(others_processors=0.0)
BUSY = Conditions(others=("make (7): 2.00 processors",), others_processors=2.0)
# Each measurement reads the state before its samples and after.
ALWAYS_BUSY = (BUSY,)
BUSY_ONCE = (IDLE, BUSY, IDLE)


class Triads(ScriptedDevice):
    """Its kernels note how many elements they were launched with, and where the arrays lie."""

    def kernel(self, source):
        assert source.name == "triad_f32"
        self.launches = []
        return lambda a, b, c, scalar, n: self.launches.append(((id(a), id(b), id(c)), int(n), float(scalar)))


def answered(device, **more):
    measurer = measurer_of({**ASKED, **more})
    measurer.device = device
    return answer(measurer, {**ASKED, **more})


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_figures_by_drop():
    seconds = 12 * ELEMENTS / 100e9
    found = answered(Triads(repeat(seconds), repeat(seconds)))
    assert list(found) == ["runs"]
    assert set(found["runs"]) == {"0.0", "0.05"}
    for figures in found["runs"].values():
        assert figures == pytest.approx({"gbps": 100.0, "relative": 1.0, "probe_gbps": 100.0})


@pytest.mark.parametrize("drop", [0.05, 0.5])
def test_a_drop_is_more_work_in_the_same_arrays(drop):
    device = Triads()
    measurer = measurer_of(ASKED)
    measurer.device = device
    measured = selftest_processes.measured_triad(measurer, 1, drop)
    works = device.timed.count("kernel")
    assert sum(n for _, n, _ in device.launches) == works * round(ELEMENTS / (1 - drop))
    assert max(n for _, n, _ in device.launches) == ELEMENTS, "none past the arrays' end"
    assert len({arrays for arrays, _, _ in device.launches}) == 1
    assert measured.bytes_moved == 12 * ELEMENTS, "what identical code declares"


def test_turns_change_the_order():
    orders = {tuple(answered(Triads(), drops=[0.05, 0.1, 0.2], turn=turn)["runs"]) for turn in range(6)}
    assert len(orders) > 1


def test_what_stays_invalid_says_why():
    assert answered(Triads(states=ALWAYS_BUSY)) == {
        "invalid": "others kept 2.0 processors busy meanwhile (make (7): 2.00 processors)"
    }


def test_an_invalid_measurement_is_taken_again():
    device = Triads(states=BUSY_ONCE)
    assert set(answered(device)["runs"]) == {"0.0", "0.05"}


def test_others_may_use_what_is_said():
    assert set(answered(Triads(states=ALWAYS_BUSY), busy_processors=2.5)["runs"]) == {"0.0", "0.05"}


def test_more_than_the_peak_is_no_evidence():
    assert answered(Triads(peak=Peak(1e9, "of a test")))["invalid"].startswith(
        "3.15 GB/s is more than the peak of 1.00 GB/s (of a test)"
    )


def test_a_share_that_nobody_believes_is_no_evidence():
    assert answered(Triads(repeat(1e-3), repeat(3e-3), peak=Peak(1e12, "of a test")))["invalid"].startswith(
        "300 % of the probe's bandwidth, past 200 %, tell nothing"
    )


def test_a_device_that_cannot_be_had_is_one_line_and_status_2(capsys):
    assert main(json.dumps({**ASKED, "device": "tape"})) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("device: found 'tape', expected auto, ")
    assert len(said.err.splitlines()) == 1


def test_the_answer_is_one_json_document(capsys, monkeypatch):
    monkeypatch.setattr("pytest_bandwidth.measuring.measurer.open_device", lambda _: Triads())
    assert main(json.dumps(ASKED)) == 0
    assert set(json.loads(capsys.readouterr().out)["runs"]) == {"0.0", "0.05"}
