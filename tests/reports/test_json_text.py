"""The JSON document as text: strict, and the same values again when it is read."""

import json
import math
from dataclasses import asdict

import pytest
from scripted import ScriptedDevice, dropped, except_at, repeat

from pytest_bandwidth.devices.base import Budget, Workload
from pytest_bandwidth.domain.device import Conditions
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.outcomes.outcome import outcome_of
from pytest_bandwidth.reports.documents import document, render_json


@pytest.mark.parametrize("text", ["é\N{CLOUD}", "t\udc80.py", "\ud83d alone", 'a "quoted" \\ud800 \x00', "\u2028"])
def test_any_text_comes_back_from_a_file(tmp_path, text):
    file = tmp_path / "run.json"
    file.write_text(render_json({"nodeid": text}), encoding="utf-8")
    assert json.loads(file.read_text(encoding="utf-8")) == {"nodeid": text}


def test_characters_are_kept_where_utf8_has_them():
    assert "é\N{CLOUD}" in render_json({"name": "é\N{CLOUD}"})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(value):
    assert json.loads(render_json({"results": [{"gbps": value, "samples": (1.0, value)}]})) == {
        "results": [{"gbps": None, "samples": [1.0, None]}]
    }


def test_every_stop_drop_clock_and_probe_figure_is_there():
    states = (
        Conditions(sm_clock_mhz=1980.0, memory_clock_mhz=2619.0, temperature_c=41.0, power_w=310.0),
        Conditions(sm_clock_mhz=1410.0, memory_clock_mhz=2619.0, event_reasons=("SwPowerCap",), others=("a (7)",)),
    )
    hot = dropped("throttled", 3e-3, "SM clock at 61 %")
    device = ScriptedDevice(except_at(range(20, 23), hot, repeat(2e-3)), repeat(1e-3), states=states)
    measured = device.measure(Workload(lambda: None, Traffic(10**9, 0)), Budget(30, 1.0), lambda _: None)
    outcome = outcome_of("t", "t", measured, Decision(Status.UNDECIDED, Rule.NO_BASELINE), "measured only")
    (row,) = json.loads(render_json(document("1", {}, {}, {}, [outcome], None)))["results"]
    assert row["stop"] == measured.rounds.stop != ""
    assert len(row["samples"]) == len(row["probe_samples"]) == len(row["kernel_first"]) >= 30
    dropped_for = [(d["code"], d["reason"], d["seconds"]) for d in row["dropped"]]
    assert dropped_for == [("throttled", "SM clock at 61 %", 3e-3)] * 3
    assert row["probe"]["bytes_moved"] == 10**9
    assert (row["gbps"], row["probe_gbps"], row["relative"]) == pytest.approx((500.0, 1000.0, 0.5))
    assert row["conditions"] == {"before": plain(states[0]), "after": plain(states[1])}
    assert row["warmup_runs"] >= 1


def plain(state):
    return json.loads(json.dumps(asdict(state)))
